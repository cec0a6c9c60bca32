"""policy/training/prompts.py: which prompts come, in which order, and what is told to the curriculum."""

import json
from collections import Counter

import pytest
import torch
from rewardlab.policy.training.prompts import CurriculumSampler, spread_over_variants
from rewardlab.policy.types import Cycle, Rollout
from rewardlab.rm.registry import load

ROWS = {"easy": ["e1", "e2", "e3"], "hard": ["h1", "h2"]}


def fixed(easy: float):
    """Shares that nothing changes; the state is what was told."""
    return lambda state, gains: ({"told": [*state.get("told", []), gains]}, {"easy": easy, "hard": 1 - easy})


def cycle(advantage, total, response) -> Cycle:
    """Two answers to each prompt."""
    mask = torch.tensor(response, dtype=torch.bool)
    rollout = Rollout(torch.arange(len(mask)) // 2, mask, torch.ones(len(mask), dtype=torch.bool))
    return Cycle([], rollout, torch.tensor(total), None, torch.tensor(advantage))


def test_kinds_come_by_their_shares_and_a_prompt_for_its_group_and_not_again_before_all_have_come():
    made = CurriculumSampler(fixed(1.0), ROWS)
    came = made.draw([None] * 12, 2)
    assert came[::2] == came[1::2]
    assert {*came[:6]} == {*came[6:]} == {"e1", "e2", "e3"}
    # 3/4 of 4000 with a standard deviation of sqrt(4000 · 3/16) = 27.4
    came = Counter(one[0] for one in CurriculumSampler(fixed(0.75), ROWS, seed=1).draw([None] * 4000, 1))
    assert abs(came["e"] - 3000) < 4 * 27.4


def test_the_curriculum_is_told_the_mean_size_of_each_answers_advantages():
    """The first has |-1| and |3| on its two tokens; the last misses its reward; what stands behind an answer is none of
    it."""
    made = CurriculumSampler(fixed(0.0), ROWS)
    made.draw([None] * 4, 2)
    facts = made.learn(
        cycle(
            [[-1.0, 3.0], [0.5, 9.0], [-0.25, -0.25], [0.0, 0.0]],
            [1.0, 0.0, 1.0, float("nan")],
            [[1, 1], [1, 0], [1, 1], [1, 1]],
        )
    )
    assert made.state()["formula"]["told"] == [{"easy": [], "hard": []}, {"easy": [], "hard": [2.0, 0.5, 0.25]}]
    assert facts == {"share/easy": 0.0, "share/hard": 1.0, "prompts/easy": 0, "prompts/hard": 2}


@pytest.mark.parametrize(("name", "settings"), [("sec", {"rate": 0.5, "temperature": 0.1}), ("dump", {"window": 4})])
def test_one_that_goes_on_from_a_state_draws_the_same(name, settings):
    def new():
        return CurriculumSampler(load("policy.curricula", name)(**settings), ROWS, seed=2)

    def step(one, place):
        came = one.draw([None] * 8, 2)
        told = one.learn(cycle([[0.1 * place]] * 4 + [[1.0]] * 4, [0.0] * 8, [[1]] * 8))
        return came, told

    whole, other = new(), new()
    for place in range(3):
        step(whole, place)
    other.load(json.loads(json.dumps(whole.state())))
    assert [step(whole, place) for place in range(4)] == [step(other, place) for place in range(4)]


def test_a_groups_completions_are_spread_over_its_prompts_variants():
    row = {"prompt": "ab", "variants": ["ab", "ba", "cc"], "row": 7}
    spread = spread_over_variants([row] * 6, 6)
    assert [one["prompt"] for one in spread] == ["ab", "ab", "ba", "ba", "cc", "cc"]
    assert {one["row"] for one in spread} == {7} and row["prompt"] == "ab"
    # 22 variants for 44 completions are two completions each; 30 / 44 * 22 is below 15 in floating-point numbers
    row = {"prompt": "a", "variants": [str(number) for number in range(22)]}
    spread = [one["prompt"] for one in spread_over_variants([row] * 44, 44)]
    assert spread == [str(index // 2) for index in range(44)]
    rows = [{"prompt": name, "variants": [name, f"{name} swapped"]} for name in "ab" for _ in range(4)]
    whole = spread_over_variants(rows, 4)
    assert spread_over_variants(rows[:2], 4) + spread_over_variants(rows[2:], 4, first=2) == whole
    assert [one["prompt"] for one in whole[4:]] == ["b", "b", "b swapped", "b swapped"]
    rows = [{"prompt": "a"}, {"prompt": "b", "variants": None}]
    assert spread_over_variants(rows, 2) == rows
