"""judges/kinds/generative/traces.py"""

from rewardlab.judges.backends.chat import Reply, failed_reply
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.kinds._comparison import comparison_prompt, orders_of
from rewardlab.judges.kinds.generative.traces import (
    NO_VERDICT,
    ONE_ORDER,
    WRONG,
    labelled_pairs,
    right_label,
    select_traces,
)
from rewardlab.judges.prompts import Sampling
from rewardlab.judges.rubrics.rubric import Principle, Rubric

from tests.judges.kinds.asking import case, longer, shown

PROMPT = comparison_prompt(ties=False)


def teacher(ask):
    """What it does with a pair is the first word of its instruction."""
    does = shown(ask, "instruction").split()[1]
    a_is_right = shown(ask, "answer_a").startswith("long")
    if does == "right":
        return longer(ask)
    if does == "wrong":
        return f"Winner: {'B' if a_is_right else 'A'}"
    if does == "first":
        return "Winner: A"
    if does == "half":
        return longer(ask) if a_is_right else "Hard to say."
    return "Both are fine answers."


def pair(does):
    return case(does, prompt=({"role": "user", "content": f"{does} please"},))


def test_only_pairs_that_are_right_in_both_orders_are_kept_and_the_others_are_counted():
    pairs = [pair(does) for does in ("right", "wrong", "first", "half", "none")]
    traces = select_traces(scripted(teacher), pairs, PROMPT)
    assert traces.ids == ["right"]
    assert traces.dropped == {"wrong": WRONG, "first": ONE_ORDER, "half": ONE_ORDER, "none": NO_VERDICT}
    assert traces.account() == {"kept": 1, "dropped": {ONE_ORDER: 2, WRONG: 1, NO_VERDICT: 1}}
    for reply in (Reply("Winner: A", "length"), failed_reply("timeout")):
        traces = select_traces(scripted(lambda ask, reply=reply: reply), [pair("right")], PROMPT)
        assert traces.dropped == {"right": NO_VERDICT} and not traces.records
    assert select_traces(scripted(lambda ask: "Winner: tie"), [pair("right")], PROMPT).dropped == {"right": NO_VERDICT}
    allowed = comparison_prompt(ties=True)
    assert select_traces(scripted(lambda ask: "Winner: tie"), [pair("right")], allowed).dropped == {"right": WRONG}


def test_a_trace_is_the_request_of_a_judge_with_its_rubric_and_the_reply_in_both_orders():
    right = pair("right")
    records = select_traces(scripted(teacher), [right], PROMPT).records
    for record, order in zip(records, orders_of(right), strict=True):
        assert record["prompt"] == [dict(turn) for turn in PROMPT.ask(right, order).messages]
        assert record["completion"][0]["role"] == "assistant"
        assert f'"winner": "{right_label(right, order)}"' in record["completion"][0]["content"]
    assert {right_label(right, order) for order in orders_of(right)} == {"A", "B"}
    rubrics = [Rubric(principles=(Principle("p1", "brief"),)), None]
    chat = scripted(teacher)
    traces = select_traces(chat, [pair("right"), pair("wrong")], PROMPT, rubrics=rubrics)
    assert ["brief" in shown(ask, "rubric") for ask in chat.asked] == [True, True, False, False]
    assert all("brief" in record["prompt"][-1]["content"] for record in traces.records)


def test_the_first_right_reply_of_each_order_is_kept_and_a_case_is_its_pairs_of_a_right_and_a_wrong_response():
    right = pair("right")
    labels = [right_label(right, order) for order in orders_of(right)]
    wrong = ["B" if label == "A" else "A" for label in labels]
    winners = [wrong[0], labels[0], labels[0], labels[1], "unsure", wrong[1]]
    replies = [f"{number}\nWinner: {label}" for number, label in enumerate(winners, start=1)]
    prompt = comparison_prompt(ties=False, sampling=Sampling(temperature=1.0, seed=3))
    chat = scripted(replies)
    records = select_traces(chat, [right], prompt, samples=3).records
    assert [record["completion"][0]["content"][0] for record in records] == ["2", "4"]
    assert [ask.seed for ask in chat.asked] == [3, 4, 5, 3, 4, 5]
    assert labelled_pairs(case()) == [case()]
    assert labelled_pairs(case(best=(0, 1))) == []
    pairs = labelled_pairs(case("list", answers=("a", "b", "c", "d"), best=(1, 3)))
    assert [pair.answers for pair in pairs] == [("b", "a"), ("b", "c"), ("d", "a"), ("d", "c")]
    assert [pair.id for pair in pairs] == ["list#1-0", "list#1-2", "list#3-0", "list#3-2"]
    assert {(pair.best, pair.cluster) for pair in pairs} == {((0,), "list")}
