"""RPO: pairs of a group's answers, the better one preferred and kept likely."""

import math

import pytest
import torch
from rewardlab.policy.composition.completion_losses import CompletionLossInputs
from rewardlab.policy.losses.rpo import rpo

GROUP = torch.tensor([0, 0, 0, 1, 1, 1])


def told(logprob, base, rewards, group=GROUP) -> CompletionLossInputs:
    rows = torch.arange(len(logprob))
    return CompletionLossInputs(
        logprob, logprob.detach(), rewards, group, torch.ones_like(rows), rows % 3, 3, base=base
    )


def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logprob, noise, rewards = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (logprob - 3).requires_grad_(), logprob.detach() - 3 + 0.5 * noise, rewards


def by_loop(logprob, base, rewards, beta, eta) -> float:
    """Mean over a group's ordered pairs of which the first is better, the others counting as 0, then over answers."""
    total = 0.0
    for i in range(6):
        for j in range(6):
            if GROUP[i] == GROUP[j] and rewards[i] > rewards[j]:
                gap = (logprob[i] - base[i]) - (logprob[j] - base[j])
                total += -math.log(1 / (1 + math.exp(-beta * gap))) - eta * logprob[i]
    return total / 2 / 6


def test_it_is_its_plain_loop():
    logprob, base, rewards = drawn()
    expected = by_loop(logprob.tolist(), base.tolist(), rewards.tolist(), 0.3, 0.01)
    assert rpo(beta=0.3, eta=0.01)(told(logprob, base, rewards)).mean().item() == pytest.approx(expected)


def test_by_hand():
    # h = 1 and 0, beta 0.5: log(1 + e^-0.5); eta 0.1 and log π of the better answer -1; a half with either answer
    logprob, base = torch.tensor([-1.0, -3.0]), torch.tensor([-2.0, -3.0])
    found = rpo(beta=0.5, eta=0.1)(told(logprob, base, torch.tensor([1.0, 0.0]), torch.tensor([0, 0])))
    assert found.tolist() == pytest.approx([(math.log(1 + math.exp(-0.5)) + 0.1) / 2] * 2)


def test_the_gradient_is_that_of_finite_differences_and_eta_0_is_dpo():
    logprob, base, rewards = drawn()
    assert torch.autograd.gradcheck(lambda x: rpo(beta=0.3, eta=0.1)(told(x, base, rewards)), logprob)
    two = torch.tensor([50.0, 0.0], dtype=torch.float64, requires_grad=True)
    for eta, least in ((0.0, 0.0), (0.2, 0.2)):
        found = rpo(beta=1.0, eta=eta)(told(two, 0 * two.detach(), torch.tensor([1.0, 0.0]), torch.tensor([0, 0])))
        (gradient,) = torch.autograd.grad(found.sum(), two)
        assert gradient.tolist() == pytest.approx([-least, 0.0], abs=1e-9), "pulled up for ever, or not at all"


def test_missing_rewards_and_ties_make_no_pair():
    logprob, base, _ = drawn()
    rewards = torch.tensor([1.0, math.nan, 0.0, 2.0, 2.0, 2.0], dtype=torch.float64)
    found = rpo(beta=0.3, eta=0.1)(told(logprob, base, rewards))
    assert found[[1, 3, 4, 5]].tolist() == [0.0] * 4 and found[0] == found[2] != 0
    odd = logprob.detach().clone()
    odd[1] = math.nan
    found = rpo(beta=0.3, eta=0.1)(told(odd.requires_grad_(), base, rewards))
    (gradient,) = torch.autograd.grad(found.sum(), odd)
    assert gradient.isfinite().all() and gradient[1] == 0


def test_refusals():
    for settings in ({"beta": 0.0, "eta": 0.1}, {"beta": 1.0, "eta": -0.1}):
        with pytest.raises(ValueError, match="beta is above 0 and eta is 0 or more"):
            rpo(**settings)
    logprob, _, rewards = drawn()
    with pytest.raises(ValueError, match="leave --measure_kl on"):
        rpo(beta=1.0, eta=0.0)(told(logprob, None, rewards))
