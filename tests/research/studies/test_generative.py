import numpy as np
import pytest
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.kinds._comparison import orders_of
from rewardlab.judges.kinds.rubric import rubric
from rewardlab.judges.types import Case
from rewardlab.research.studies.generative import arms, demands
from rewardlab.research.studies.generative.measures import ACCURACY, CONSISTENCY, EVIDENCE, FIRST, NO_VERDICT, measure
from rewardlab.research.worlds.small_policies import Completions
from rewardlab.rm.types import Example, user_turn

PAIR = Case("one", user_turn("tool fruit colour"), ("saw teal cat", "iron plum dog"))
SEES_ALL = demands.Teacher(0, 0.0, 0.0)


def replies(teacher, pair, orders=((0, 1), (1, 0))) -> list[str]:
    return [teacher(demands.PROMPT.ask(pair, order)) for order in orders]


def test_the_better_response_meets_more_demands():
    pairs = demands.draw_pairs(200, 0, "train")
    counts = np.array([[sum(demands.met(demands.demands_of(pair), text)) for text in pair.answers] for pair in pairs])
    assert (counts[:, 0] > counts[:, 1]).all() and len({pair.answers for pair in pairs}) == 200
    assert not {pair.answers for pair in pairs} & {pair.answers for pair in demands.draw_pairs(200, 0, "test")}


def test_a_teacher_that_sees_all_is_right_and_writes_what_the_judge_can_write():
    assert replies(SEES_ALL, PAIR) == [
        "tool saw fruit none colour teal tool none fruit plum colour none . Winner: A",
        "tool none fruit plum colour none tool saw fruit none colour teal . Winner: B",
    ]
    found = measure(scripted(SEES_ALL), demands.draw_pairs(50, 0, "test"))
    assert found[ACCURACY] == found[CONSISTENCY] == found[EVIDENCE] == 1.0
    assert found[NO_VERDICT] == 0.0 and found[FIRST] == 0.5
    words = tokenizer(demands.VOCABULARY)
    ids = words(replies(SEES_ALL, PAIR)).input_ids
    assert {len(row) for row in ids} == {demands.REPLY - 1} and words.unk_token_id not in {
        id for row in ids for id in row
    }
    assert words.unk_token_id not in arms.encoder().encode_prompt(demands.PROMPT.ask(PAIR, (0, 1)).messages)


def test_traces_are_right_in_both_orders_and_dropped_pairs_are_not():
    start = arms.Supervised(0, 200, 1)
    traces, by_id = start.traces(), {pair.id: pair for pair in start.labelled}
    assert 60 < len(traces.ids) < 160 and len(traces.records) == 2 * len(traces.ids)
    assert len(traces.ids) + len(traces.dropped) == 200
    texts = [record["completion"][0]["content"] for record in traces.records]
    for index, name in enumerate(traces.ids):
        assert {texts[2 * index][-1], texts[2 * index + 1][-1]} == {"A", "B"}
        assert all(demands.marks_of(text, demands.demands_of(by_id[name])) for text in texts[2 * index : 2 * index + 2])
    assert any(word in text.split() for text in texts for word in demands.RARE)


def test_measures_count_missing_verdicts_as_wrong():
    silent = measure(scripted(lambda ask: "nothing"), [PAIR])
    assert (silent[ACCURACY], silent[CONSISTENCY], silent[NO_VERDICT]) == (0.0, 0.0, 1.0)
    assert np.isnan(silent[FIRST]) and np.isnan(silent[EVIDENCE])
    biased = measure(scripted(lambda ask: "Winner: A"), [PAIR])
    assert (biased[ACCURACY], biased[CONSISTENCY], biased[FIRST]) == (0.5, 0.0, 1.0)


def rewarded(pairs, replies_to, **settings) -> list[float]:
    """Rewards of the replies to both requests of every pair."""
    source = arms.VerdictReward(pairs, **settings)
    examples = [Example(prompt, replies_to(Ask(prompt))) for prompt in source.prompts]
    return source(Completions(None, np.array([True] * len(examples)), None, examples)).tolist()


def test_the_reward_is_one_for_the_right_verdict_in_each_order():
    pairs = [PAIR, *demands.draw_pairs(10, 0, "train")]
    assert rewarded(pairs, SEES_ALL) == [1.0] * 22
    assert sorted(rewarded([PAIR], lambda ask: "Winner: A")) == [0.0, 1.0]
    assert rewarded([PAIR], lambda ask: "none") == [0.0, 0.0]
    assert np.isnan(rewarded([PAIR], lambda ask: "none", no_verdict=np.nan)).all()


def test_the_rubric_judge_counts_the_marks_of_replies():
    pairs = demands.draw_pairs(20, 0, "test")
    first = [SEES_ALL(demands.PROMPT.ask(pair, orders_of(pair)[0])) for pair in pairs]
    judge = rubric(arms.marks_as_chat(pairs, first), lambda cases: [*map(arms.rubric_of, cases)])
    for pair, judgment in zip(pairs, judge(pairs), strict=True):
        assert judgment.scores == pytest.approx(
            [sum(demands.met(demands.demands_of(pair), text)) / 3 for text in pair.answers]
        )
    unmarked = rubric(arms.marks_as_chat([PAIR], ["Winner: A"]), lambda cases: [*map(arms.rubric_of, cases)])
    assert unmarked([PAIR])[0].abstained
