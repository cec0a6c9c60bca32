"""HACPO's advantages: several agents' answers, capabilities over steps, and what the pooled baseline is worth."""

import json
import math
from statistics import stdev

import pytest
import torch
from rewardlab.policy.advantages.grpo import grpo
from rewardlab.policy.transforms.hacpo import hacpo, pooled_baseline, writers
from rewardlab.policy.types import Rollout


def told(rewards: torch.Tensor, size: int) -> Rollout:
    rows = len(rewards)
    made = Rollout(
        torch.arange(rows) // size, torch.ones(rows, 2, dtype=torch.bool), torch.ones(rows, dtype=torch.bool)
    )
    return made._replace(total=rewards)


def steps(number: int, size: int, seed: int = 0) -> list[torch.Tensor]:
    """Two prompts' verdicts, some of them missing; the answers behind the first two of a group are worse."""
    draw = torch.rand(number, 2, 2, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rates = torch.where(torch.arange(size) < 2, 0.7, 0.4)
    return [*(draw[:, 0] < rates).double().masked_fill(draw[:, 1] < 0.1, math.nan).flatten(1)]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def by_loop(history, rewards, size, agents, window, floor, epsilon) -> list[float]:
    """`history` are the step's rewards and those before, as lists."""
    each, P = size // agents, []
    for agent in range(agents):
        of_steps = []
        for one in history[-window:]:
            known = [r for place, r in enumerate(one) if place % size // each == agent and not math.isnan(r)]
            of_steps += [mean(known)] if known else []
        P.append(max(floor, mean(of_steps)))
    found = []
    for place, r in enumerate(rewards):
        first = place - place % size
        group = [(rewards[one], (one - first) // each) for one in range(first, first + size)]
        known = [(r, agent) for r, agent in group if not math.isnan(r)]
        values = [r for r, _ in known]
        if math.isnan(r) or len(values) < 2 or min(values) == max(values):
            found.append(0.0)
            continue
        baseline = mean([P[0] / P[agent] * r for r, agent in known])
        factor = P[place % size // each] / P[0]
        found.append(factor * (r - baseline) / (stdev(values) + epsilon))
    return found


@pytest.mark.parametrize(("agents", "size"), [(2, 4), (3, 6)])
def test_it_is_its_plain_loop_over_steps(agents, size):
    made, history = hacpo(floor=0.3, window=3, agents=agents), []
    state = made.start
    for rewards in steps(8, size):
        history.append(rewards.tolist())
        state, found = made.change(state, torch.zeros_like(rewards), told(rewards, size))
        assert found.tolist() == pytest.approx(by_loop(history, rewards.tolist(), size, agents, 3, 0.3, 1e-4))
        assert len(state["means"]) <= 3 and json.loads(json.dumps(state)) == state
    assert found.any()


def test_by_hand_one_agent_is_grpo_and_an_agent_without_anything_right_has_the_floor():
    # own answers 1 and 0, the partner's 1 and 1: P = (1/2, 1), μ = (1 + 0 + 1/2 + 1/2) / 4, std of all four 1/2
    rewards = torch.tensor([1.0, 0, 1, 1], dtype=torch.float64)
    state, found = hacpo(floor=0.1, epsilon=0.0, agents=2).change(
        {"means": []}, torch.zeros_like(rewards), told(rewards, 4)
    )
    assert found.tolist() == [1, -1, 2, 2] and state == {"means": [[0.5, 1.0]]}
    made = hacpo(floor=0.01)
    state = made.start
    for rewards in steps(6, 4):
        batch = told(rewards, 4)
        state, found = made.change(state, torch.zeros_like(rewards), batch)
        assert torch.equal(found, grpo()(rewards, batch))
    # P = (0.1, 1): the partner's answers weigh ten times, and count a tenth in the baseline, 0.2 / 4
    rewards = torch.tensor([0.0, 0, 1, 1], dtype=torch.float64)
    found = hacpo(floor=0.1, epsilon=0.0, agents=2).change({"means": []}, torch.zeros_like(rewards), told(rewards, 4))[
        1
    ]
    spread = math.sqrt(1 / 3)
    assert found.tolist() == pytest.approx([-0.05 / spread] * 2 + [10 * 0.95 / spread] * 2)


def test_agents_of_one_capability_are_grpo_over_all_answers():
    rewards = torch.tensor([1.0, 0, 1, 1, 1, 1, 0, 1], dtype=torch.float64)
    batch = told(rewards, 8)
    found = hacpo(floor=0.01, agents=2).change({"means": []}, torch.zeros_like(rewards), batch)[1]
    torch.testing.assert_close(found, grpo()(rewards, batch))


def test_missing_rewards_count_for_nobody_and_an_agent_without_any_is_as_good_as_the_others():
    rewards = torch.tensor([1.0, 0, math.nan, math.nan], dtype=torch.float64)
    batch = told(rewards, 4)
    state, found = hacpo(floor=0.1, agents=2).change({"means": []}, torch.zeros_like(rewards), batch)
    assert torch.equal(found, grpo()(rewards, batch)) and state == {"means": [[0.5, None]]}
    nothing = torch.full((4,), math.nan)
    assert not hacpo(floor=0.1, agents=2).change({"means": []}, torch.zeros(4), told(nothing, 4))[1].any()


def test_answers_are_told_apart_by_their_place_in_the_group_and_row_order_of_groups_means_nothing():
    assert writers(torch.tensor([7, 7, 7, 7, 2, 2, 2, 2]), 2).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert writers(torch.tensor([1, 0, 1, 0]), 2).tolist() == [0, 0, 1, 1]
    assert writers(torch.tensor([0, 0, 0]), 2).tolist() == [0, 0, 0]  # nobody to share with: an evaluation


# ---- what the baseline is worth ----


def baselines(rates: list[tuple[float, float]], number: int = 4000, each: int = 4) -> torch.Tensor:
    """[prompts, number] of verdicts drawn with each prompt's chances of agent 0, who learns, and agent 1."""
    chance = torch.tensor(rates, dtype=torch.float64)[:, None, :, None].expand(-1, number, -1, each)
    draw = torch.rand(chance.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rewards = (draw < chance).double().flatten()
    group = torch.arange(len(rewards)) // (2 * each)
    P = torch.tensor(rates, dtype=torch.float64).mean(0)
    found = pooled_baseline(rewards, group, writers(group, 2), P, 0)
    return found.view(len(rates), number, -1)[..., 0]


def test_what_the_baseline_is_worth():
    """It is right on average, wrong for a prompt where the gap depends on it, and varies less than own answers'."""
    found = baselines([(0.8, 0.4), (0.2, 0.6)]).mean(1)  # capabilities are equal, 0.5
    assert found.mean().item() == pytest.approx(0.5, abs=0.01)
    assert found.tolist() == pytest.approx([0.6, 0.4], abs=0.01)  # not 0.8 and 0.2
    assert baselines([(0.8, 0.4), (0.2, 0.1)]).mean(1).tolist() == pytest.approx([0.8, 0.2], abs=0.01)
    assert baselines([(0.5, 0.5)]).var().item() == pytest.approx(0.5 * 0.5 / 4 / 2, rel=0.1)


def test_refusals():
    for settings in ({"floor": 0.0}, {"floor": 0.1, "window": 0}, {"floor": 0.1, "agents": 0}):
        with pytest.raises(ValueError, match="floor is above 0, window and agents are 1 or more"):
            hacpo(**settings)
    with pytest.raises(ValueError, match=r"rewards are 0 or more; got -1.0"):
        hacpo(floor=0.1).change({"means": []}, torch.zeros(2), told(torch.tensor([1.0, -1.0]), 2))
    with pytest.raises(ValueError, match="no rewards to tell"):
        hacpo(floor=0.1).change({"means": []}, torch.zeros(2), told(torch.ones(2), 2)._replace(total=None))
