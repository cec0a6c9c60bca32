"""P3O: pairs of answers to one prompt."""

import math

import pytest
import torch
from rewardlab.policy.advantages.dr_grpo import dr_grpo
from rewardlab.policy.composition.completion_losses import CompletionLossInputs
from rewardlab.policy.losses.p3o import p3o
from rewardlab.policy.types import Rollout

GROUP = torch.tensor([0, 0, 0, 1, 1, 1])


def told(logprob, old, rewards, group=GROUP) -> CompletionLossInputs:
    rows = torch.arange(len(logprob))
    return CompletionLossInputs(logprob, old, rewards, group, torch.ones_like(rows), rows % 3, 3)


def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logprob, noise, rewards = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return logprob.requires_grad_(), logprob.detach() + 0.2 * noise, rewards


def by_loop(logprob, old, rewards, epsilon) -> list[float]:
    found = []
    for i in range(6):
        others = [j for j in range(6) if GROUP[j] == GROUP[i] and j != i]
        values = []
        for j in others:
            ratio = math.exp((logprob[i] - old[i]) - (logprob[j] - old[j]))
            gap = rewards[i] - rewards[j]
            values.append(-0.5 * min(ratio * gap, min(max(ratio, 1 - epsilon), 1 + epsilon) * gap))
        found.append(sum(values) / len(values))
    return found


def test_it_is_its_plain_loop():
    logprob, old, rewards = drawn()
    expected = by_loop(logprob.tolist(), old.tolist(), rewards.tolist(), 0.1)
    assert p3o(epsilon=0.1)(told(logprob, old, rewards)).tolist() == pytest.approx(expected)


def test_by_hand():
    # ratio e^{log 1.5} = 1.5 is clipped to 1.2 for the better answer: -0.6; from the worse one's side it is 2/3,
    # min(-2/3, -0.8) = -0.8 and the loss 0.4; no clip has a gradient
    logprob, old = torch.tensor([math.log(1.5), 0.0], requires_grad=True), torch.zeros(2)
    found = p3o(epsilon=0.2)(told(logprob, old, torch.tensor([1.0, 0.0]), torch.tensor([0, 0])))
    assert found.tolist() == pytest.approx([-0.6, 0.4])
    assert torch.autograd.grad(found.sum(), logprob)[0].tolist() == [0.0, 0.0]
    far = torch.tensor([900.0, -900.0, 0.0], requires_grad=True)
    found = p3o(epsilon=0.2)(told(far, torch.zeros(3), torch.tensor([0.0, 0.0, 1.0]), torch.zeros(3).long()))
    assert found.isfinite().all() and torch.autograd.grad(found.sum(), far)[0].isfinite().all()


def test_gradients_are_those_of_finite_differences():
    logprob, old, rewards = drawn()
    assert torch.autograd.gradcheck(lambda one: p3o(epsilon=0.1)(told(one, old, rewards)), (logprob,))


def test_what_all_answers_to_a_prompt_have_in_common_cancels():
    logprob, old, rewards = drawn()
    shifted = rewards + torch.tensor([5.0, -3.0])[GROUP]
    found = p3o(epsilon=0.1)
    torch.testing.assert_close(found(told(logprob, old, shifted)), found(told(logprob, old, rewards)))


def test_on_the_policy_that_wrote_the_answers_it_is_dr_grpo_of_whole_answers():
    logprob, _, rewards = drawn()
    (found,) = torch.autograd.grad(p3o(epsilon=0.2)(told(logprob, logprob, rewards)).sum(), logprob)
    batch = Rollout(GROUP, torch.ones(6, 1, dtype=torch.bool), torch.ones(6, dtype=torch.bool))
    torch.testing.assert_close(found, -dr_grpo()(rewards, batch) * 3 / 2)


def test_a_missing_reward_is_in_no_pair():
    logprob, old, rewards = drawn()
    holed = rewards.clone()
    holed[2] = math.nan
    found = p3o(epsilon=0.1)(told(logprob, old, holed))
    two = p3o(epsilon=0.1)(told(logprob[:2], old[:2], rewards[:2], GROUP[:2]))
    assert found[2] == 0
    torch.testing.assert_close(found[:2], two)
    (gradient,) = torch.autograd.grad(found.sum(), logprob)
    assert gradient[2] == 0 and gradient.isfinite().all()


def test_a_bound_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"epsilon lies in \[0, 1\), got 1.0"):
        p3o(epsilon=1.0)
