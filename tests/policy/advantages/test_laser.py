"""LaSeR: the verifier's verdict and the policy's own."""

import math
from statistics import mean, stdev

import pytest
import torch
from rewardlab.policy.advantages.grpo import grpo
from rewardlab.policy.advantages.laser import laser
from rewardlab.policy.types import Rollout

GROUP = [0] * 4 + [1] * 4


def rollout(finished=(True,) * 8) -> Rollout:
    return Rollout(torch.tensor(GROUP), torch.ones(8, 2, dtype=torch.bool), torch.tensor(finished))


def drawn() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    verdicts = torch.tensor([1.0, 0, 1, 0, 0, 0, 0, 1], dtype=torch.float64)
    said = -23 + 10 * torch.rand(8, generator=generator, dtype=torch.float64)
    said[4:] = -20 + 0.1 * said[4:] / 23  # of the second group nearly alike
    return torch.stack([verdicts, said], 1)


def z(values: list[float], one: float) -> float:
    return (one - mean(values)) / (stdev(values) + 1e-4)


def by_loop(rewards, finished, weights) -> list[float]:
    s = [min(max(0.1 * (x + 23), 0), 1) if done else 0.0 for (_, x), done in zip(rewards, finished, strict=True)]
    found = []
    for i, g in enumerate(GROUP):
        peers = [j for j in range(8) if GROUP[j] == g]
        of_r = z([rewards[j][0] for j in peers], rewards[i][0])
        own = [s[j] for j in peers]
        found.append(weights[0] * of_r + weights[1] * (z(own, s[i]) if stdev(own) > 0.1 else of_r))
    return found


def test_it_is_its_plain_loop_of_two_rewards():
    rewards, finished = drawn(), (True, False, True, True) * 2
    found = laser([0.8, 0.2], reference=-23.0)(rewards, rollout(finished))
    assert found.tolist() == pytest.approx(by_loop(rewards.tolist(), finished, (0.8, 0.2)))
    with pytest.raises(ValueError, match="log-probability, got 3; weight both"):
        laser([1.0, 1.0, 1.0], reference=-23.0)
    with pytest.raises(ValueError, match="log-probability, got 1"):
        laser(reference=-23.0)(drawn()[:, :1], rollout())


def test_without_its_share_it_is_grpo_and_a_row_that_misses_either_counts_for_nobody():
    rewards = drawn()
    plain = grpo()(rewards[:, 0], rollout())
    torch.testing.assert_close(laser([1.0, 0.0], reference=-23.0)(rewards, rollout()), plain)
    torch.testing.assert_close(laser(reference=-23.0)(rewards, rollout())[4:], plain[4:])
    rewards[1:, 1] = math.nan
    torch.testing.assert_close(laser([1.0, 0.0], reference=-23.0)(rewards, rollout()), plain)
    rewards = drawn()
    rewards[1, 1] = math.nan
    found = laser(reference=-23.0)(rewards, rollout())
    rewards[1] = torch.tensor([math.nan, -14.0])
    assert found[1] == 0
    torch.testing.assert_close(found, laser(reference=-23.0)(rewards, rollout()))
