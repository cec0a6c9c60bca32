"""Estimators of steps, worked out by hand, and the gradient of OREO as a composition."""

import math

import pytest
import torch
from rewardlab.policy.advantages.gae import gae
from rewardlab.policy.advantages.grpo import grpo
from rewardlab.policy.advantages.pav import pav
from rewardlab.policy.advantages.positionwise import positionwise
from rewardlab.policy.step.algorithm import Penalty
from rewardlab.policy.types import Rollout

NAN = math.nan
STEPS = torch.tensor([[1.0, NAN, 0.0, NAN], [0.0, 1.0, NAN, NAN], [1.0, NAN, NAN, NAN]], dtype=torch.float64)
"""Steps end in the tokens with a number: the first completion has two steps and a token of its second step after it."""


def batch(steps=STEPS, lengths=(4, 2, 3), group=(0, 0, 0)) -> Rollout:
    response = torch.arange(steps.shape[1]) < torch.tensor(lengths)[:, None]
    return Rollout(torch.tensor(group), response, torch.ones(len(group), dtype=torch.bool), steps=steps)


def rewards(outcome, steps=STEPS, lengths=(4, 2, 3)) -> torch.Tensor:
    """Outcomes at the last tokens, and the rewards of steps."""
    at_end = torch.arange(steps.shape[1]) == torch.tensor(lengths)[:, None] - 1
    return steps.nan_to_num(0) + torch.where(at_end, torch.tensor(outcome, dtype=torch.float64)[:, None], 0)


def rounded(found: torch.Tensor) -> list[list[float]]:
    return [[round(one, 4) for one in row] for row in found.tolist()]


def test_a_step_is_compared_with_the_same_step_of_the_others():
    # first steps 1, 0, 1: mean 2/3, deviation 1/√3; second steps 0, 1: deviation 1/√2, ± 1/2 · √2
    found = positionwise(epsilon=0.0)(rewards([0.0, 0.0, 0.0]), batch())
    first, second = round(3**0.5 / 3, 4), round(2**-0.5, 4)
    assert rounded(found) == [
        [first, -second, -second, -second],
        [round(-2 * 3**0.5 / 3, 4), second, 0, 0],
        [first, first, first, 0],
    ]
    # CM2 leaves out steps that few completions have
    found = positionwise(least=3, epsilon=0.0)(rewards([0.0, 0.0, 0.0]), batch())
    assert not found[0, 1:].any() and not found[1, 1] and found[2, 0] > 0


def test_an_outcome_belongs_to_the_last_step_and_progress_ends_at_the_first_wrong_step():
    # the last steps become 0 + 1, 1 + 0 and 1 + 1: second steps 1 and 1 are equal, first ones 1, 0 and 2
    found = positionwise(epsilon=0.0)(rewards([1.0, 0.0, 1.0]), batch())
    assert rounded(found) == [[0, 0, 0, 0], [-1, 0, 0, 0], [1, 1, 1, 0]]
    # with progress the second completion's right second step does not count after its wrong first one
    found = positionwise(progress=True, epsilon=0.0)(rewards([0.0, 0.0, 0.0]), batch())
    assert not found[0, 1:].any() and not found[1, 1:].any()
    with pytest.raises(ValueError, match="`least` must be 2 or more completions, got 1"):
        positionwise(least=1)


def test_one_step_a_completion_is_grpo_and_a_missing_reward_counts_for_nobody():
    steps = torch.tensor([[NAN, 0.2], [NAN, 0.9], [NAN, 0.5], [NAN, 0.3]], dtype=torch.float64)
    rollout = batch(steps, (2, 2, 2, 2), (0, 0, 1, 1))
    given = rewards([1.0, 2.0, NAN, 4.0], steps, (2, 2, 2, 2))
    found = positionwise()(given, rollout)
    assert found[:, 0].tolist() == pytest.approx(grpo()(given.sum(1), rollout).tolist())
    assert not found[2:].any()  # the fourth is alone in its prompt
    assert not pav(alpha=1.0)(given, rollout)[2:].any()


def test_progress_is_the_difference_of_values_beside_the_outcome():
    # values 1, 0 | 0, 1 | 1; the mean of the first ones is 2/3; outcomes 1, 0, 2 with mean 1
    found = pav(alpha=0.5, outcome=2.0)(rewards([1.0, 0.0, 2.0]), batch())
    expected = [[1 / 6, -0.5, -0.5, -0.5], [-2 - 1 / 3, -2 + 0.5, 0, 0], [2 + 1 / 6] * 3 + [0]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    # Q values alone: the sum over a completion's steps is the last value minus the prompt's
    found = pav(alpha=1.0, outcome=0.0)(rewards([1.0, 0.0, 2.0]), batch())
    assert (found[0, 0] + found[0, 2]).item() == pytest.approx(0 - 2 / 3)
    with pytest.raises(ValueError, match="both 0"):
        pav(alpha=0.0, outcome=0.0)
    with pytest.raises(ValueError, match="no reward source scores steps"):
        pav(alpha=1.0)(torch.zeros(3), batch()._replace(steps=None))


def test_oreo_is_reinforce_with_gae_of_lambda_1_and_the_kl_in_the_rewards_of_tokens():
    """Its two losses by their formulas (arXiv:2412.16145): the gradients, and the target of the value, are the same.

    L_π = (sg V_t - R + β ℓ_t + β Σ_{i>t} sg ℓ_i)², with the slope 2β (V_t - R + β Σ_{i>=t} ℓ_i) of log π.
    """
    beta, R = 0.3, torch.tensor([1.0, 0.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    logprobs, base, values = -torch.rand(3, 2, 5, generator=generator, dtype=torch.float64)
    response = torch.arange(5) < torch.tensor([[5], [3]])
    learned = logprobs.clone().requires_grad_()
    gap = torch.where(response, learned - base, 0)
    later = gap.detach().flip(1).cumsum(1).flip(1) - gap.detach()
    losses = (values - R[:, None] + beta * gap + beta * later).square()
    (slope,) = torch.autograd.grad(losses[response].sum(), learned)
    rollout = Rollout(torch.tensor([0, 1]), response, torch.ones(2, dtype=torch.bool), values=values * response)
    rollout = rollout._replace(logprobs=logprobs * response, base=base * response)
    at_end = torch.arange(5) == torch.tensor([[4], [2]])
    given = torch.where(at_end, R[:, None], 0) - Penalty(beta, "token", "k1").cost(rollout)
    advantages = gae(lam=1.0)(given, rollout)
    torch.testing.assert_close(slope, -2 * beta * advantages)
    returns = (advantages + values)[response]  # what the critic learns
    torch.testing.assert_close(returns, (R[:, None] - beta * (gap + later)).detach()[response])
