import json
import re

import pytest
from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.kinds.checklist import Question, checklist
from rewardlab.judges.types import Reason
from rewardlab.rm.errors import UsageError

from tests.judges.kinds.asking import case, shown

TALK = (
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello, what is your name?"},
    {"role": "user", "content": "Ada. Book a table."},
)
ITEMS = [
    Question("greets", "Does it greet?", turn=0),
    Question("books", "Does it book a table?", weight=3.0),
    Question("name", "Is the name used?", depends_on=("books",), passes_if="the booking names Ada"),
]


def ticks(ask: Ask) -> str:
    turn = shown(ask, "conversation").split("assistant: ")[-1]
    found = {"greets": "Hello" in turn, "books": "booked" in turn, "name": "Ada" in turn}
    ids = re.findall(r"^\[(\w+)\]", shown(ask, "checklist"), re.MULTILINE)
    return json.dumps({"rules": [{"id": i, "evidence": turn, "met": "yes" if found[i] else "no"} for i in ids]})


def test_a_checklist_scores_every_turn_with_its_own_questions_and_a_wrong_one_is_refused():
    chat = scripted(ticks)
    answers = ("I booked it, Ada.", "I booked it.", "Sure, Ada.")
    judged = checklist(chat, ITEMS)([case(prompt=TALK, answers=answers)])[0]
    # turn 0 is 1 for all; turn 1 is 4/4, 3/4, and 0 as the name depends on the booking
    assert judged.scores == (1.0, 0.875, 0.5) and len(chat.asked) == 1 + 3
    assert shown(chat.asked[0], "conversation").endswith("what is your name?")
    assert "Yes if: the booking names Ada" in shown(chat.asked[1], "checklist")
    assert all(one.quoted for one in judged.criteria) and len(judged.criteria) == 3 * 3
    ask = checklist(scripted(ticks), [Question("q", "?", turn=3)])
    with pytest.raises(UsageError, match="is about turn 3; turns are 0 to 1"):
        ask([case(prompt=TALK)])
    with pytest.raises(UsageError, match="depends on 'x', which is not a question"):
        checklist(scripted(ticks), [Question("q", "?", depends_on=("x",))])([case()])
    partial = checklist(scripted(lambda ask: '{"q": "partial"}'), [Question("q", "?")])([case()])[0]
    assert partial.abstained == f"{Reason.MALFORMED}: q is neither yes nor no"
