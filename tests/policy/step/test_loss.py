"""Losses that compare completions have one gradient, whatever the micro-batches."""

import copy
from types import SimpleNamespace

import pytest
import torch
from rewardlab.policy.losses._kinds import CompletionLossInputs
from rewardlab.policy.losses.kimi import kimi
from rewardlab.policy.losses.p3o import p3o
from rewardlab.policy.losses.rpo import rpo
from rewardlab.policy.step.forward import CompletionBatch
from rewardlab.policy.step.step import PolicyStep, Processes, completion_loss, shares_and_slopes
from rewardlab.rm.errors import UsageError
from transformers import TrainerCallback

from tests.policy.toy_training import algorithm, logged, prompts


def completions(logprob) -> CompletionLossInputs:
    """Two groups of four completions."""
    rows = torch.arange(8)
    old, base, rewards = torch.randn(3, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return CompletionLossInputs(logprob, old, rewards, rows // 4, rows * 0 + 1, rows % 4, 4, base=base)


@pytest.mark.parametrize("rule", [p3o(epsilon=0.9), rpo(beta=0.3, eta=0.1), kimi(tau=0.1)], ids=["p3o", "rpo", "kimi"])
def test_shares_and_slopes_make_up_the_loss_and_its_gradient_one_completion_at_a_time(rule):
    values, weight = torch.randn(2, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logprob, weight = values.requires_grad_(), weight.abs()
    whole = (weight * rule(completions(logprob))).sum()
    (expected,) = torch.autograd.grad(whole, logprob)
    shares, slopes = shares_and_slopes(rule, completions(logprob), weight)
    parts = []
    for row in range(8):
        alone = CompletionLossInputs(
            *(one[row : row + 1] if isinstance(one, torch.Tensor) else one for one in completions(logprob))
        )
        inputs = {"loss_share": shares[row : row + 1], "loss_slope": slopes[row : row + 1]}
        parts.append(completion_loss(rule, alone, weight[row : row + 1], inputs))
    total = torch.stack(parts).sum()
    torch.testing.assert_close(total, whole)
    torch.testing.assert_close(torch.autograd.grad(total, logprob)[0], expected)
    assert expected.any()


def test_a_loss_without_a_gradient_has_slopes_of_0():
    shares, slopes = shares_and_slopes(lambda one: one.advantage, completions(torch.zeros(8)), torch.ones(8))
    assert shares.any() and not slopes.any()


class Gradients(TrainerCallback):
    """The gradient of every optimizer step, and what it was taken on."""

    def __init__(self):
        self.flat: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args, state, control, *, model, **kwargs):
        self.flat.append(torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None]))


@pytest.fixture
def gradients(base, make_trainer):
    """Gradients of a run on the same 4 groups of 8 completions, with the losses that it logged."""

    def run(rule, micro_batch, steps, **settings) -> tuple[list[torch.Tensor], list[float]]:
        seen = Gradients()
        changes = {"gradient_accumulation_steps": 32 // micro_batch, "max_steps": steps, "num_iterations": steps}
        changes |= {"optim": "sgd", "learning_rate": 1e-3, "max_grad_norm": 0.0, "num_generations": 8} | settings
        changes |= {"max_completion_length": 8, "per_device_train_batch_size": micro_batch}
        trainer = make_trainer(
            algorithm("dr_grpo", rule, "completion_mean"), model=copy.deepcopy(base).double(), data=prompts(16),
            callbacks=[seen], **changes,
        )  # fmt: skip
        trainer.train()
        return seen.flat, logged(trainer, "loss")

    return run


@pytest.mark.slow
def test_the_gradient_is_the_same_at_every_micro_batch_size(gradients):
    """Also in the second step on the same completions, where the policy has moved away from the one that wrote them."""
    rule = p3o(epsilon=0.2)
    expected, losses = gradients(rule, 32, 2)
    assert len(expected) == 2 and all(one.norm() > 0.05 for one in expected)
    for micro_batch in (1, 2, 4, 8):
        found, values = gradients(rule, micro_batch, 2)
        for one, other in zip(found, expected, strict=True):
            assert (one - other).abs().max() < 1e-6
        assert values == pytest.approx(losses, abs=1e-6)


def test_the_steps_of_a_generation_share_its_pairs_and_dropout_is_refused(gradients):
    """Two optimizer steps of 16 completions each: the shuffle before the split leaves no group whole in either."""
    changes = {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "learning_rate": 0.0, "num_iterations": 1}
    (first, second), _ = gradients(p3o(epsilon=0.2), 8, 2, **changes)
    (whole,), _ = gradients(p3o(epsilon=0.2), 32, 1)
    torch.testing.assert_close((first + second) / 2, whole)
    with pytest.raises(UsageError, match="set disable_dropout True"):
        gradients(p3o(epsilon=0.2), 32, 1, disable_dropout=False)


def test_groups_are_numbered_over_all_processes():
    """Of 12 completions, 4 to a prompt, the second of two processes has the last six: places 2, 3 and 0 to 3."""
    one = torch.zeros(6, 1)
    rows = CompletionBatch(one.long(), one.bool(), one[:, 0].long(), one.bool())
    processes = Processes(SimpleNamespace(num_processes=2, process_index=1))
    step = PolicyStep(algorithm("dr_grpo", p3o(epsilon=0.2), "completion_mean"), 4, processes)
    batch = {"row": torch.arange(6), "advantages": one, "weights": one}
    found = step._completions(one, rows.response, batch, 6, 0)
    assert found.group.tolist() == [1, 1, 2, 2, 2, 2] and found.index.tolist() == [2, 3, 0, 1, 2, 3]
