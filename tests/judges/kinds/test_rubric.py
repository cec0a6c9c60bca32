import json
import re

from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.judge import is_quotation_of
from rewardlab.judges.kinds.rubric import rubric
from rewardlab.judges.rubrics.rubric import Principle, Rubric, Rule
from rewardlab.judges.rubrics.scoring import points
from rewardlab.judges.types import Reason

from tests.judges.kinds.asking import case, shown

RULES = Rubric(
    (Rule("city", "must", "Names a city.", "Find a city."), Rule("lie", "forbid", "Lies.", "Find a lie.", veto=True)),
    (Principle("short", "Is short."),),
)


def checks(ask: Ask) -> str:
    """Says that an answer names a city if Oslo is in it, lies if Bergen is, and is short below 20 letters."""
    answer = shown(ask, "answer")
    found = {
        "city": ("Oslo" in answer, "Oslo" if "Oslo" in answer else ""),
        "lie": ("Bergen" not in answer, "Bergen" if "Bergen" in answer else ""),
        "short": (len(answer) < 20, answer[:5]),
    }
    ids = re.findall(r"\[(\w+)\]", shown(ask, "rubric"))
    rules = [{"id": i, "evidence": found[i][1], "met": "yes" if found[i][0] else "no"} for i in ids]
    return json.dumps({"rules": rules})


def test_marks_become_scores_through_gates_and_vetoes():
    for together in [True, False]:
        chat = scripted(checks)
        answers = ("Oslo.", "The capital of Norway is Oslo.", "A town.", "Oslo or Bergen.")
        judged = rubric(chat, RULES, together=together)([case(answers=answers)])[0]
        # all kept and short; all kept; one of two rules kept, halved; a veto
        assert judged.scores == (1.0, 0.5, 0.25, 0.0), together
        assert len(chat.asked) == (4 if together else 12)
        marks = [(one.name, one.value, one.evidence, one.quoted) for one in judged.criteria if one.answer == 0]
        assert marks == [("city", 1.0, "Oslo", True), ("lie", 1.0, "", False), ("short", 1.0, "Oslo.", True)], together


def test_a_quotation_that_is_not_in_the_answer_is_refused_and_a_rule_without_a_mark_abstains():
    def invents(ask: Ask) -> str:
        return json.dumps([{"id": i, "met": "yes", "evidence": "Atlantis"} for i in ("city", "lie", "short")])

    judged = rubric(scripted(invents), RULES)([case()])[0]
    assert judged.scores == (1.0, 1.0) and not any(one.quoted for one in judged.criteria)
    refused = rubric(scripted(invents), RULES, evidence="required")([case()])[0]
    assert refused.reason == Reason.NO_EVIDENCE and refused.abstained.endswith("city of answer 0")
    assert rubric(scripted(checks), RULES, evidence="required")([case(answers=("Oslo", "Oslo!"))])[0].scores
    assert is_quotation_of("“FOUR\napples”", "four apples") and not is_quotation_of("apples four", "four apples")
    judged = rubric(scripted(lambda ask: '{"rules": [{"id": "city", "met": "yes"}]}'), RULES)([case()])[0]
    assert judged.abstained == f"{Reason.MISSING}: lie, short"
    replies = ['{"city": "n/a", "lie": "yes", "short": "yes"}', '{"city": "n/a", "lie": "n/a", "short": "n/a"}']
    judged = rubric(scripted(replies), RULES)([case()])[0]
    assert judged.abstained == f"{Reason.NO_VERDICT}: no criterion applies" and len(judged.criteria) == 2
    health = Rubric((), (Principle("c1", "Advises rest.", 4.0), Principle("c2", "Invents a dose.", -1.0)))
    replies = ['{"c1": true, "c2": true}', '{"c1": true, "c2": false}']
    assert rubric(scripted(replies), health, score=points)([case()])[0].scores == (0.75, 1.0)
