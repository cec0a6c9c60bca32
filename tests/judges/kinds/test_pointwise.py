import pytest
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.judge import ByCase
from rewardlab.judges.kinds.pointwise import pointwise
from rewardlab.judges.prompts import Sampling
from rewardlab.judges.rubrics.formats import Levels
from rewardlab.judges.types import Reason
from rewardlab.rm.errors import UsageError

from tests.judges.kinds.asking import by_length, case, shown


def test_each_answer_is_rated_alone_and_samples_are_averaged_where_most_are_readable():
    chat = scripted(by_length)
    judged = pointwise(chat)([case(answers=("abcd", "ab"))])[0]
    assert judged.scores == (4.0, 2.0) and "from 1 to 10" in chat.asked[0].messages[0]["content"]
    assert all("answer_b" not in ask.messages[-1]["content"] for ask in chat.asked)
    replies = ["Score: 4", "Score: 6", "no idea", "Score: 1", "Score: 1", "Score: 4"]
    judged = pointwise(scripted(replies), samples=3, sampling=Sampling(temperature=1.0, seed=7))([case()])[0]
    assert judged.scores == (5.0, 2.0) and len(judged.criteria) == 5
    unread = ["Score: 4", "no idea", "no idea", "Score: 1", "Score: 1", "Score: 4"]
    judged = pointwise(scripted(unread), samples=3, sampling=Sampling(temperature=1.0))([case()])[0]
    assert judged.abstained == Reason.NO_VERDICT
    chat = scripted(by_length)
    pointwise(chat, samples=2, sampling=Sampling(temperature=1.0, seed=7))([case()])
    assert [ask.seed for ask in chat.asked] == [7, 8, 7, 8]
    with pytest.raises(UsageError, match="2 samples at temperature 0"):
        pointwise(chat, samples=2)


def test_described_levels_set_the_scale_and_a_case_without_them_abstains():
    chat = scripted(lambda ask: "Score: 5")
    levels = Levels("Is it right?", {1: "Wrong.", 5: "Right."})
    assert pointwise(chat, levels=levels)([case()])[0].scores == (5.0, 5.0)
    assert shown(chat.asked[0], "scale") == "Is it right?\n1: Wrong.\n5: Right."
    other = Levels("Is it short?", {0: "No.", 1: "Yes."})
    judge = pointwise(scripted(lambda ask: "Score: 1"), levels=lambda cases: [levels, other])
    assert [one.scores for one in judge([case("1"), case("2")])] == [(1.0, 1.0)] * 2
    assert pointwise(scripted(lambda ask: "Score: 6"), levels=levels)([case()])[0].reason == Reason.OUT_OF_RANGE
    chat, levels = scripted(lambda ask: "Score: 2"), Levels("Is it right?", {1: "Wrong.", 2: "Right."})
    judged = pointwise(chat, levels=ByCase({"a": levels}))([case("a"), case("b")])
    assert [one.abstained for one in judged] == ["", Reason.NO_RUBRIC] and len(chat.asked) == 2
    contracts = {pointwise(chat, levels=one).contract for one in (levels, levels._replace(question="?"), None)}
    assert len(contracts) == 3
