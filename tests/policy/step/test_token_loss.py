"""The sum over tokens of the policy's loss, worked out by hand."""

import math

import pytest
import torch
from rewardlab.policy.advantages.rloo import rloo
from rewardlab.policy.aggregations.token_mean import token_mean
from rewardlab.policy.losses.kimi import kimi
from rewardlab.policy.losses.ppo import ppo
from rewardlab.policy.step.algorithm import Algorithm, Penalty
from rewardlab.policy.step.step import token_objective

RESPONSE = torch.tensor([[True, True], [True, False]])
OLD = torch.tensor([[-1.0, -2.0], [-1.0, 0.0]])
ADVANTAGES = torch.tensor([[1.0, 1.0], [-2.0, -2.0]])
WEIGHTS = torch.tensor([[0.5, 0.25], [0.25, 0.0]])
BASE = torch.tensor([[-1.0, -1.5], [-2.0, 0.0]])


def algorithm(rule=None, penalty=None) -> Algorithm:
    return Algorithm(rloo(), rule or ppo(), token_mean(), penalty=penalty or Penalty())


def objective(made, logprob=OLD, **options):
    return token_objective(made, logprob, OLD, ADVANTAGES, WEIGHTS, RESPONSE, **options)


def test_the_loss_is_minus_the_weighted_advantages_and_its_ratio_is_clipped():
    logprob = OLD.clone().requires_grad_()
    loss = objective(algorithm(), logprob).total
    assert loss.item() == pytest.approx(-(0.5 + 0.25 - 2 * 0.25))
    loss.backward()
    # the gradient of a ratio of 1 is 1: -w A for every token, 0 outside completions
    torch.testing.assert_close(logprob.grad, torch.tensor([[-0.5, -0.25], [0.5, 0.0]]))
    # A > 0: a ratio above 1 + 0.2 counts as 1.2, without a gradient
    logprob = (OLD + torch.tensor([[math.log(2), 0.0], [0.0, 0.0]])).requires_grad_()
    loss = objective(algorithm(), logprob).total
    loss.backward()
    assert loss.item() == pytest.approx(-(0.5 * 1.2 + 0.25 - 0.5))
    assert logprob.grad is not None and logprob.grad[0, 0] == 0


def test_a_penalty_adds_the_weighted_kl_in_the_loss_and_nothing_in_the_reward():
    # k1 = log π - log base: 0, -0.5 and 1
    loss = objective(algorithm(penalty=Penalty(0.1, "loss", "k1")), base=BASE).total
    assert loss.item() == pytest.approx(-0.25 + 0.1 * (0.25 * -0.5 + 0.25 * 1.0))
    for level in ("token", "completion"):
        loss = objective(algorithm(penalty=Penalty(0.1, level, "k1")), base=BASE).total
        assert loss.item() == pytest.approx(-0.25)


def test_importance_and_losses_of_whole_completions_leave_the_kl_alone():
    made = algorithm(penalty=Penalty(0.1, "loss", "k1"))
    loss = objective(made, base=BASE, importance=torch.tensor([[2.0], [3.0]])).total
    assert loss.item() == pytest.approx(-(2 * 0.75 - 3 * 0.5) + 0.1 * 0.125, abs=1e-6)
    assert objective(algorithm(kimi(tau=0.1))).total.item() == 0
    loss = objective(algorithm(kimi(tau=0.1), Penalty(0.1, "loss", "k1")), base=BASE).total
    assert loss.item() == pytest.approx(0.1 * 0.125)
