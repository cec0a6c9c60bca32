"""policy/losses, policy/aggregations: presets of the clip rule against the textbooks, in value and gradient."""

import pytest
import torch
from rewardlab.kernels.policy_loss import policy_loss
from rewardlab.policy.aggregations.completion_mean import completion_mean
from rewardlab.policy.aggregations.fixed_length import fixed_length
from rewardlab.policy.aggregations.token_mean import token_mean
from rewardlab.rm.registry import load, names
from torch import Tensor


def per_answer(log_ratio: Tensor) -> Tensor:
    return log_ratio.mean(1, keepdim=True).exp().expand_as(log_ratio)


def clipped(r: Tensor, A: Tensor, low: float, high: float) -> Tensor:
    """-min(r A, clip(r) A), as it is printed."""
    return -torch.minimum(r * A, r.clamp(low, high) * A)


def dual(lp: Tensor, old: Tensor, A: Tensor) -> Tensor:
    r = (lp - old).exp()
    inner = torch.minimum(r * A, r.clamp(0.8, 1.2) * A)
    return -torch.where(A < 0, torch.maximum(inner, 3.0 * A), inner)


def bounded(r: Tensor, A: Tensor, *bounds: float) -> Tensor:
    return torch.where(A >= 0, r.clamp(*bounds[:2]), r.clamp(*bounds[2:])).detach()


def of_tokens(lp: Tensor, old: Tensor) -> Tensor:
    return per_answer(lp - old).detach() * (lp - lp.detach()).exp()


TEXTBOOK = {
    "ppo": ({}, lambda lp, old, A: clipped((lp - old).exp(), A, 0.8, 1.2)),
    "dual_clip": ({}, dual),
    "dapo": ({}, lambda lp, old, A: clipped((lp - old).exp(), A, 0.8, 1.28)),
    "gspo": ({}, lambda lp, old, A: clipped(per_answer(lp - old), A, 1 - 3e-4, 1 + 4e-4)),
    "gspo_token": ({}, lambda lp, old, A: clipped(of_tokens(lp, old), A, 1 - 3e-4, 1 + 4e-4)),
    "cispo": ({"high": 1.3}, lambda lp, old, A: -(lp - old).exp().clamp(0, 1.3).detach() * A * lp),
    "reinforce": ({}, lambda lp, old, A: -A * lp),
    "dispo": (
        {"right_low": 0.9, "right_high": 1.3, "wrong_low": 0.5, "wrong_high": 1.1},
        lambda lp, old, A: -bounded((lp - old).exp(), A, 0.9, 1.3, 0.5, 1.1) * A * lp,
    ),
}


def test_every_file_is_tried_here_and_cispo_wants_its_bound():
    of_whole_answers = {"hacpo", "kimi", "p3o", "rpo"}  # a test file each
    others = {"critique_grpo", "rl_plus", "laser"}
    assert {*names("policy.losses")} == {*TEXTBOOK} | of_whole_answers | others
    with pytest.raises(TypeError, match="high"):
        load("policy.losses", "cispo")()


@pytest.mark.parametrize("name", TEXTBOOK)
def test_a_preset_is_the_printed_equation(name):
    settings, printed = TEXTBOOK[name]
    generator = torch.Generator().manual_seed(1)
    old, noise, A = torch.randn(3, 6, 9, generator=generator, dtype=torch.float64)
    A = A if name != "gspo" else A[:, :1].expand(6, 9)
    weight, rows = torch.full((54,), 1 / 54, dtype=torch.float64), torch.arange(0, 55, 9)
    for scale in (1e-4, 0.3, 2.0):
        lp = (old + scale * noise).requires_grad_()
        of_tokens = (lp.flatten(), old.flatten(), A.flatten(), weight, rows)
        found = policy_loss(*of_tokens, rule=load("policy.losses", name)(**settings))
        truth = printed(lp, old, A).mean()
        torch.testing.assert_close(found.total, truth)
        torch.testing.assert_close(*(torch.autograd.grad(one, lp)[0] for one in (found.total, truth)))


def test_aggregations_worked_out_by_hand():
    response = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert token_mean()(response, 2.0, 4.0).tolist() == [[0.25] * 3 + [0], [0.25, 0, 0, 0]]
    assert completion_mean()(response, 2.0, 4.0)[:, 0].tolist() == pytest.approx([1 / 6, 1 / 2])
    assert fixed_length(5)(response, 2.0, 4.0)[:, 0].tolist() == pytest.approx([0.1, 0.1])
    assert not any(weigh(response, 2.0, 4.0)[~response].any() for weigh in (completion_mean(), fixed_length(5)))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        fixed_length(0)


@pytest.mark.parametrize(("weigh", "total"), [(token_mean(), 1), (completion_mean(), 1), (fixed_length(5), 11 / 20)])
def test_micro_batches_add_up_to_the_step(weigh, total):
    response = torch.arange(5) < torch.tensor([3, 1, 5, 2])[:, None]
    parts = torch.cat([weigh(response[:1], 4.0, 11.0), weigh(response[1:], 4.0, 11.0)])
    assert torch.equal(parts, weigh(response, 4.0, 11.0))
    assert parts.sum().item() == pytest.approx(total)
