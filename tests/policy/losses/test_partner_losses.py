"""Losses that treat completions of partner models apart, worked out by hand."""

import math

import pytest
import torch
from rewardlab.policy.advantages.rloo import rloo
from rewardlab.policy.aggregations.token_mean import token_mean
from rewardlab.policy.losses.critique_grpo import critique_grpo
from rewardlab.policy.losses.ppo import ppo
from rewardlab.policy.losses.rl_plus import rl_plus
from rewardlab.policy.step.algorithm import Algorithm
from rewardlab.policy.step.step import PolicyStep, token_objective


def of_partner(rule, p: float, A: float) -> tuple[float, float]:
    """The loss of a partner's token, and its slope by log π."""
    logprob = torch.tensor([math.log(p)], dtype=torch.float64, requires_grad=True)
    loss = rule.of_partners(logprob, torch.tensor([A], dtype=torch.float64)).sum()
    (slope,) = torch.autograd.grad(loss, logprob)
    return loss.item(), slope.item()


def test_rl_plus_by_hand():
    # 2 · 0.2 / (0.3 + 0.5) = 0.5, times 0.8^0.5
    assert of_partner(rl_plus(agents=2), 0.2, 3.0) == pytest.approx([-0.5 * 3 * 0.8**0.5] * 2)
    assert of_partner(rl_plus(agents=2), 1.0, 3.0) == (0.0, 0.0)
    assert of_partner(rl_plus(power=0.0, agents=2), 1.0, -3.0) == (3.0, 3.0)
    with pytest.raises(ValueError, match="power must be 0 or more"):
        rl_plus(power=-1.0)


def test_critique_grpo_by_hand():
    # f = 0.1 / 0.2, slope f (1 - f), the largest; at 0.9 it is 0.9 · 0.1
    assert of_partner(critique_grpo(), 0.1, 2.0) == pytest.approx((-1.0, -0.5))
    assert of_partner(critique_grpo(), 0.9, 1.0) == pytest.approx((-0.9, -0.09))
    with pytest.raises(ValueError, match="gamma must be above 0"):
        critique_grpo(gamma=0.0)
    with pytest.raises(ValueError, match=r"epsilon must be in \[0, 1\)"):
        critique_grpo(epsilon=1.0)


def inputs():
    generator = torch.Generator().manual_seed(0)
    logprob, old, advantages = torch.randn(3, 4, 3, generator=generator, dtype=torch.float64)
    logprob, response = logprob.abs().neg(), torch.arange(3) < torch.tensor([[3], [1], [2], [3]])
    return logprob.requires_grad_(), logprob.detach() + 0.3 * old, advantages, response / 9, response


def test_the_policys_own_completions_have_the_clipped_loss():
    logprob, old, advantages, weights, response = inputs()
    found = rl_plus(agents=1).total(logprob, old, advantages, weights, response, torch.ones(4, dtype=torch.bool))
    plain = Algorithm(rloo(), ppo(), token_mean())
    truth = token_objective(plain, logprob, old, advantages, weights, response).total
    torch.testing.assert_close(found, truth)
    torch.testing.assert_close(*(torch.autograd.grad(one, logprob)[0] for one in (found, truth)))


def test_the_first_completions_of_a_group_are_the_policys_in_every_division_into_micro_batches():
    logprob, old, advantages, weights, response = inputs()
    algorithm = Algorithm(rloo(), critique_grpo(agents=2), token_mean())
    step = PolicyStep(algorithm, 2)
    batch = {"advantages": advantages, "weights": weights, "old_per_token_logps": old, "row": torch.arange(4)}

    def loss(rows: slice) -> torch.Tensor:
        part = {name: column[rows] for name, column in batch.items()}
        return step.loss(logprob[rows], None, response[rows], part, batch_rows=4).total

    whole = loss(slice(0, 4))
    torch.testing.assert_close(whole, loss(slice(0, 1)) + loss(slice(1, 4)))
    own = torch.tensor([True, False, True, False])
    torch.testing.assert_close(whole, algorithm.rule.total(logprob, old, advantages, weights, response, own))
