"""Kimi k1.5's loss of whole answers."""

import math

import pytest
import torch
from rewardlab.policy.composition.completion_losses import CompletionLossInputs
from rewardlab.policy.losses.kimi import kimi


def told(logprob, old, advantage) -> CompletionLossInputs:
    """Two answers to each prompt, of one token each."""
    rows = torch.arange(len(logprob))
    return CompletionLossInputs(logprob, old, advantage, rows // 2, torch.ones_like(rows), rows % 2, 2)


def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logprob, old, advantage = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return logprob.requires_grad_(), old, advantage


def test_by_hand():
    # -2 (-3) + 0.5/2 (-3 + 5)² = 6 + 1; without an advantage the square pulls back: downhill is back to -5
    one = kimi(tau=0.5)(told(*(torch.tensor([x]) for x in (-3.0, -5.0, 2.0))))
    assert one.item() == 7.0
    logprob = torch.tensor([-3.0], requires_grad=True)
    (found,) = torch.autograd.grad(kimi(tau=0.5)(told(logprob, torch.tensor([-5.0]), torch.zeros(1))).sum(), logprob)
    assert found.item() == 1.0


def test_gradients_are_those_of_finite_differences():
    logprob, old, advantage = drawn()
    assert torch.autograd.gradcheck(lambda one: kimi(tau=0.7)(told(one, old, advantage)), (logprob,))


def test_on_the_policy_that_wrote_the_answers_it_is_reinforce():
    logprob, _, advantage = drawn()
    for tau in (0.0, 3.0):
        (found,) = torch.autograd.grad(kimi(tau=tau)(told(logprob, logprob, advantage)).sum(), logprob)
        torch.testing.assert_close(found, -advantage)


def test_a_missing_reward_has_no_loss_and_no_gradient():
    logprob = torch.tensor([math.nan, -1.0], requires_grad=True)
    found = kimi(tau=1.0)(told(logprob, torch.tensor([-1.0, -1.0]), torch.tensor([math.nan, 1.0])))
    found.sum().backward()
    assert found.tolist() == [0.0, 1.0] and logprob.grad is not None and logprob.grad.tolist() == [0.0, -1.0]


def test_a_negative_weight_is_refused():
    with pytest.raises(ValueError, match="tau is 0 or more, got -1"):
        kimi(tau=-1.0)
