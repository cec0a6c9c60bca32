import pytest
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.judge import ByCase, Judging
from rewardlab.judges.kinds.cascade import cascade
from rewardlab.judges.kinds.consistent import consistent
from rewardlab.judges.kinds.pairwise import pairwise
from rewardlab.judges.kinds.panel import panel
from rewardlab.judges.rubrics.rubric import Principle, Rubric
from rewardlab.judges.types import Judgment, Reason
from rewardlab.rm.errors import UsageError

from tests.judges.kinds.asking import case, judge_of, longer


def test_a_panel_votes_keeps_its_disagreement_takes_means_and_may_be_decided_by_too_few():
    given = {"a": (1.0, 0.0), "b": (3.0, 7.0), "c": (0.5, 0.5), "d": "no reply"}
    judges = [judge_of(*one) for one in given.items()]
    judged = panel(judges)([case()])[0]
    assert judged.scores == (0.5, 0.5) and judged.tokens == (30, 3) and judged.cost == 3.0
    first = [("a", 0, 1.0), ("a", 1, 0.0), ("b", 0, 3.0), ("b", 1, 7.0)]
    assert [(one.name, one.answer, one.value) for one in judged.criteria][:4] == first
    given = {"a": ((1.0, 0.0), "no reply"), "b": ((0.5, 0.2), "no reply"), "c": ("x", (1.0, 0.0))}
    judges = [judge_of(name, *scores) for name, scores in given.items()]
    judged = panel(judges, how="mean")([case("1"), case("2")])
    assert judged[0].scores == pytest.approx((0.75, 0.1))
    assert judged[1].reason == Reason.DISAGREEMENT and "1 of 3 decided, 2 are needed (no reply)" in judged[1].abstained
    with pytest.raises(UsageError, match="two judges are called 'a'"):
        panel([judges[0], judges[0]])


def test_a_cascade_asks_the_strong_judge_only_where_the_cheap_one_is_unsure_and_keeps_what_was_not_read():
    asked = []

    def strong(cases):
        asked.extend(one.id for one in cases)
        return [Judgment(one.id, scores=(0.0, 1.0), tokens=(100, 5), cost=9.0) for one in cases]

    cheap = judge_of("cheap", (1.0, 0.0), (0.6, 0.5), "no reply: down")
    judged = cascade(cheap, Judging("strong", {}, strong), gap=0.2)([case("1"), case("2"), case("3")])
    assert asked == ["2", "3"] and [one.scores for one in judged] == [(1.0, 0.0), (0.0, 1.0), (0.0, 1.0)]
    assert [one.cost for one in judged] == [1.0, 10.0, 9.0] and judged[1].tokens == (110, 6)
    assert judged[1].criteria[0].name == "escalated" and judged[1].criteria[0].value == pytest.approx(0.1)
    both = cascade(judge_of("x", "no reply: a"), judge_of("y", "no reply: b"), gap=1.0)([case()])[0]
    assert both.abstained == "no reply: b"
    for combined in [lambda a, b: panel([a, b]), lambda a, b: cascade(a, b, gap=9.0), consistent]:
        reader = judge_of("reader", (1.0, 0.0))
        cut = Judging("cut", {}, lambda cases: [Judgment(cases[0].id, (1.0, 0.0), truncated=True, omitted="tool")])
        for judges in ((reader, cut), (cut, reader)):
            judged = combined(*judges)([case()])[0]
            assert judged.truncated and judged.omitted == "tool", combined


def test_scores_and_comparison_have_to_agree_and_a_single_response_is_not_unsure():
    scoring = judge_of("s", (7.0, 3.0), (7.0, 3.0), (5.0, 5.0), (1.0, 2.0))
    comparing = judge_of("c", (1.0, 0.0), (0.5, 0.5), (0.5, 0.5), "no stored score")
    judged = consistent(scoring, comparing)([case(str(i)) for i in range(4)])
    assert [one.scores for one in judged] == [(7.0, 3.0), (), (5.0, 5.0), ()]
    assert [one.abstained for one in judged][1::2] == [Reason.INCONSISTENT, "no stored score"]
    assert judged[0].tokens == (20, 2)
    one = case(answers=("alone",), values=(0.7,))
    strong = judge_of("strong")  # is not asked
    assert cascade(judge_of("cheap", (0.3,)), strong, gap=9.0)([one])[0].scores == (0.3,)
    chat = scripted(longer)
    assert cascade(pairwise(chat), judge_of("strong", (0.4,)), gap=0.5)([one])[0].scores == (0.4,)
    assert pairwise(chat)([one])[0].reason == Reason.SINGLE and not chat.asked
    source = ByCase({"a": Rubric((), (Principle("p", "Short."),))})
    assert pairwise(chat, rubric=source)([one])[0].reason == Reason.SINGLE
    assert pairwise(chat, rubric=source)([case("other")])[0].reason == Reason.NO_RUBRIC
    chat = scripted(longer)
    source = ByCase({"a": Rubric((), (Principle("p", "Short."),))})
    judge = cascade(pairwise(chat, rubric=source, name="with"), pairwise(chat, name="bare"), gap=0.1)
    judged = judge([case("a"), case("b")])
    assert [one.scores for one in judged] == [(1.0, 0.0)] * 2
    assert [len(one.criteria) for one in judged] == [0, 1] and judged[1].criteria[0].name == "escalated"
