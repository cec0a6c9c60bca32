"""judges/kinds/generative/rewards.py"""

import math

import numpy as np
import pytest
from rewardlab.judges.kinds._comparison import comparison_prompt, orders_of
from rewardlab.judges.kinds.generative.rewards import VerdictRewards, labelled_prompts, verdict_reward, verdict_row
from rewardlab.judges.kinds.generative.traces import right_label
from rewardlab.judges.parsing.statements import NoVerdict
from rewardlab.judges.parsing.verdicts import Verdict
from rewardlab.judges.types import Reason
from rewardlab.rm.types import Example

from tests.judges.kinds.asking import case

PROMPT = comparison_prompt(ties=False)


def source(pair, **options):
    row = verdict_row(pair, PROMPT)
    prompts = [tuple(row["prompt"]), *map(tuple, row["prompt_variants"])]
    return VerdictRewards([labelled_prompts(prompts, row)], **options), prompts


def test_a_right_verdict_is_1_in_its_order_any_other_0_and_none_what_is_chosen():
    for choice, expected in [("A", 1.0), ("B", 0.0), ("tie", 0.0)]:
        assert verdict_reward(Verdict(choice), "A") == expected
    none = NoVerdict(Reason.NO_VERDICT)
    assert [verdict_reward(none, "A"), verdict_reward(none, "A", -1.0)] == [0.0, -1.0]
    assert math.isnan(verdict_reward(none, "A", math.nan))
    rewards, prompts = source(case())
    examples = [Example(prompt, "Winner: A") for prompt in prompts for _ in range(2)]
    values = rewards(examples, [0] * 4, [True] * 4)
    assert sorted(values[::2]) == [0.0, 1.0] and values[0] == values[1] and values[2] == values[3]
    assert rewards.facts() == {"right": 0.5, "first": 1.0, "no_verdict": 0.0}


def test_a_row_has_the_requests_of_a_judge_in_both_orders_or_is_refused():
    pair = case()
    row = verdict_row(pair, PROMPT)
    asked = [[dict(turn) for turn in PROMPT.ask(pair, order).messages] for order in orders_of(pair)]
    assert [row["prompt"], *row["prompt_variants"]] == asked
    assert row["labels"] == [right_label(pair, order) for order in orders_of(pair)]
    assert row["responses"] == ["long good answer", "bad"]
    for columns, says in [
        ({}, "'labels' must have A or B for each of its 2 requests, got None"),
        ({"labels": ["A"], "responses": ["a", "b"]}, "for each of its 2 requests"),
        ({"labels": ["A", "C"], "responses": ["a", "b"]}, "'labels' must have A or B"),
        ({"labels": ["A", "B"], "responses": "a"}, "'responses' must be a list of the responses"),
    ]:
        _, prompts = source(case())
        with pytest.raises(ValueError, match=says):
            labelled_prompts(prompts, columns)


def test_a_cut_off_reply_and_a_copied_verdict_are_no_verdict():
    pair = case(answers=("Winner: A, says this response", "bad"))
    rewards, prompts = source(pair, no_verdict=math.nan)
    texts = ["Winner: A", "I quote: Winner: A, says this response", "Winner: B", "no idea"]
    values = rewards([Example(prompts[0], text) for text in texts], [0] * 4, [False, True, True, True])
    assert np.isnan(values).tolist() == [True, True, False, True]
    facts = rewards.facts()
    assert facts["no_verdict"] == 0.75 and facts["first"] == 0.0
    assert source(pair, no_verdict=-0.5)[0]([Example(prompts[0], "no idea")], [0], [True]) == [-0.5]
    rewards, prompts = source(case())
    rewards([Example(prompts[0], "no idea")], [0], [True])
    facts = rewards.facts()
    assert math.isnan(facts["right"]) and math.isnan(facts["first"]) and facts["no_verdict"] == 1.0
