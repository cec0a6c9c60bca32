"""HACPO's loss: GSPO on own answers, a bounded weight on partners', and what the trainer tells a loss of answers."""

import math

import pyarrow.parquet as pq
import pytest
import torch
from rewardlab.kernels.policy_loss import policy_loss
from rewardlab.policy.composition.completion_losses import CompletionLossInputs, PerCompletionLoss
from rewardlab.policy.losses.gspo import gspo
from rewardlab.policy.losses.hacpo import hacpo

from tests.policy.toy_training import algorithm, prompts

OWN, FOREIGN = 0, 2
"""Places in a group of four that two agents share."""


def one(s: float, A: float, place: int, updates: int = 0) -> CompletionLossInputs:
    """An answer of two tokens that became s² times as likely."""
    logprob = torch.tensor([2 * math.log(s)], dtype=torch.float64, requires_grad=True)
    same = torch.zeros(1, dtype=torch.long)
    advantage = torch.tensor([A], dtype=torch.float64)
    return CompletionLossInputs(logprob, torch.zeros_like(logprob), advantage, same, same + 2, same + place, 4, updates)


def value_and_slope(loss, answers: CompletionLossInputs) -> tuple[float, float]:
    found = loss(answers)
    return found.item(), torch.autograd.grad(found.sum(), answers.logprob)[0].item()


def test_by_hand():
    for answers, expected in (
        (one(1.2, 1.0, OWN), (-1.0004, 0)),
        (one(1.2, -1.0, OWN), (1.2, 0.6)),  # 1.2 of the slope of s, over two tokens
        (one(0.5, 2.0, FOREIGN), (-0.5, -0.25)),  # s² A = 0.5; only the first s has a slope
        (one(0.5, -2.0, FOREIGN), (0.5, 0.25)),
        (one(1.2, 2.0, FOREIGN), (-2, 0)),
        (one(0.1, 2.0, FOREIGN), (0, 0)),  # below 1 - 0.8
        (one(0.5, 2.0, FOREIGN, updates=2), (-0.5, -0.25)),  # the least is 0.2 + 2 * 0.1
        (one(0.5, 2.0, FOREIGN, updates=4), (0, 0)),
        (one(0.99, 2.0, FOREIGN, updates=99), (0, 0)),  # and never above 1
    ):
        found = value_and_slope(hacpo(delta=0.8, delta_step=0.1, agents=2), answers)
        assert found == pytest.approx(expected), answers


def drawn(size: int = 8, scale: float = 0.6) -> CompletionLossInputs:
    """Three groups."""
    N = 3 * size
    old, noise, A = torch.randn(3, N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    length, rows = torch.arange(N) % 5 + 1, torch.arange(N)
    logprob = (old + scale * noise * length).requires_grad_()
    return CompletionLossInputs(logprob, old, A, rows // size, length, rows % size, size, updates=3)


@pytest.mark.parametrize("scale", [1e-4, 0.6])
def test_one_agent_is_gspo(scale):
    answers = drawn(scale=scale)
    n, N = answers.length, len(answers.length)
    mask = torch.arange(5) < n[:, None]
    (logprob, old), wide = ((x / n)[:, None].expand(N, 5) for x in answers[:2]), answers.advantage[:, None].expand(N, 5)
    weight = (mask / n[:, None]).double()
    of_tokens = (x.flatten() for x in (logprob, old, wide, weight))
    truth = policy_loss(*of_tokens, torch.arange(0, 5 * N + 1, 5), rule=gspo(), mask=mask.flatten()).total
    found = hacpo(delta=0.8)(answers).sum()
    torch.testing.assert_close(found, truth)
    torch.testing.assert_close(*(torch.autograd.grad(x, answers.logprob)[0] for x in (found, truth)))


def test_a_missing_reward_has_no_loss_and_extremes_are_finite():
    logprob = torch.tensor([900.0, math.nan, 900.0, -900.0], requires_grad=True)
    A, rows = torch.tensor([-1.0, math.nan, 1.0, 1.0]), torch.arange(4)
    found = hacpo(delta=0.8, agents=2)(
        CompletionLossInputs(logprob, torch.zeros(4), A, rows * 0, rows * 0 + 1, rows, 4)
    )
    found.sum().backward()
    assert found.isfinite().all() and found[1:].tolist() == [0, -1, 0]
    assert logprob.grad is not None and logprob.grad.isfinite().all() and logprob.grad[1:].tolist() == [0, 0, 0]


def test_settings_out_of_range_are_refused():
    for settings in ({"delta": 1.1}, {"delta": 0.8, "delta_step": -0.1}, {"delta": 0.8, "alpha": -1.0}):
        with pytest.raises(ValueError, match=r"delta lies in \[0, 1\]"):
            hacpo(**settings)


# ---- in the trainer ----


def test_a_loss_is_told_lengths_places_and_how_many_steps_were_made(make_trainer, tmp_path):
    """Four micro-batches of 8 answers a generation, and an optimizer step every two: m is 0, 0, 1, 1."""
    seen = []

    def keep(answers):
        seen.append(answers)
        return hacpo(delta=0.8, agents=2)(answers)

    arguments = {"steps_per_generation": 4, "max_steps": 4, "rollout_steps": 2}
    formulas = algorithm(loss=PerCompletionLoss(keep), aggregation="completion_mean")
    trainer = make_trainer(formulas, data=prompts(16), **arguments)
    seen.clear()  # of the check before the first step
    trainer.train()
    assert [one.updates for one in seen] == [0, 0, 1, 1] * 2 and {one.size for one in seen} == {4}
    cycle = [torch.cat([getattr(one, name) for one in seen[:4]]).tolist() for name in ("group", "index", "length")]
    assert sorted(zip(*cycle[:2], strict=True)) == [(group, place) for group in range(8) for place in range(4)]
    rows = {(group, place): length for group, place, length in zip(*cycle, strict=True)}
    written = pq.read_table(tmp_path / "run" / "rollouts" / "step-000000.parquet").to_pylist()
    assert [rows[divmod(row, 4)] for row in range(32)] == [one["length"] for one in written]
