"""Losses of whole completions: Kimi k1.5's, P3O and RPO over pairs, and HACPO over agents."""

import math

import pyarrow.parquet as pq
import pytest
import torch
from rewardlab.policy.advantages.dr_grpo import dr_grpo
from rewardlab.policy.losses._kinds import CompletionLossInputs, PerCompletionLoss
from rewardlab.policy.losses.hacpo import hacpo
from rewardlab.policy.losses.kimi import kimi
from rewardlab.policy.losses.p3o import p3o
from rewardlab.policy.losses.rpo import rpo
from rewardlab.policy.types import Rollout

from tests.policy.toy_training import algorithm, prompts

GROUP = torch.tensor([0, 0, 0, 1, 1, 1])


def told(logprob, old, rewards, group=GROUP, base=None) -> CompletionLossInputs:
    """Completions of one token each."""
    rows, group = torch.arange(len(logprob)), group[: len(logprob)]
    return CompletionLossInputs(logprob, old, rewards, group, torch.ones_like(rows), rows % 3, 3, base=base)


def preferred(logprob, base, rewards) -> CompletionLossInputs:
    return told(logprob, logprob.detach(), rewards, base=base)


def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logprob, noise, rewards = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return logprob.requires_grad_(), logprob.detach() + 0.2 * noise, rewards


def slope(loss: torch.Tensor, logprob: torch.Tensor) -> list[float]:
    return torch.autograd.grad(loss.sum(), logprob)[0].tolist()


def test_kimi_by_hand_and_a_missing_reward_has_neither_loss_nor_gradient():
    # -2 (-3) + 0.5/2 (-3 + 5)² = 6 + 1; without an advantage the square pulls back: downhill is back to -5
    logprob, old = torch.tensor([-3.0], requires_grad=True), torch.tensor([-5.0])
    assert kimi(tau=0.5)(told(logprob, old, torch.tensor([2.0]))).item() == 7.0
    assert slope(kimi(tau=0.5)(told(logprob, old, torch.zeros(1))), logprob) == [1.0]
    with pytest.raises(ValueError, match="tau must be 0 or more, got -1"):
        kimi(tau=-1.0)
    logprob = torch.tensor([math.nan, -1.0], requires_grad=True)
    found = kimi(tau=1.0)(told(logprob, torch.tensor([-1.0, -1.0]), torch.tensor([math.nan, 1.0])))
    assert found.tolist() == [0.0, 1.0] and slope(found, logprob) == [0.0, -1.0]


def test_kimis_gradient_is_that_of_finite_differences_and_of_reinforce_on_the_policy_that_wrote():
    logprob, old, advantage = drawn()
    assert torch.autograd.gradcheck(lambda one: kimi(tau=0.7)(told(one, old, advantage)), (logprob,))
    for tau in (0.0, 3.0):
        assert slope(kimi(tau=tau)(told(logprob, logprob, advantage)), logprob) == (-advantage).tolist()


def test_p3o_by_hand():
    # ratio e^{log 1.5} = 1.5 is clipped to 1.2 for the better answer: -0.6; from the worse one's side it is 2/3,
    # min(-2/3, -0.8) = -0.8 and the loss 0.4; no clip has a gradient
    logprob, old = torch.tensor([math.log(1.5), 0.0], requires_grad=True), torch.zeros(2)
    found = p3o(epsilon=0.2)(told(logprob, old, torch.tensor([1.0, 0.0])))
    assert found.tolist() == pytest.approx([-0.6, 0.4]) and slope(found, logprob) == [0.0, 0.0]
    far = torch.tensor([900.0, -900.0, 0.0], requires_grad=True)
    found = p3o(epsilon=0.2)(told(far, torch.zeros(3), torch.tensor([0.0, 0.0, 1.0])))
    assert found.isfinite().all() and all(map(math.isfinite, slope(found, far)))
    with pytest.raises(ValueError, match=r"epsilon must lie in \[0, 1\), got 1.0"):
        p3o(epsilon=1.0)


def test_p3os_gradient_is_that_of_finite_differences_and_on_the_policy_that_wrote_of_dr_grpo():
    (logprob, old, rewards), loss = drawn(), p3o(epsilon=0.1)
    assert torch.autograd.gradcheck(lambda one: loss(told(one, old, rewards)), (logprob,))
    shifted = rewards + torch.tensor([5.0, -3.0])[GROUP]
    torch.testing.assert_close(loss(told(logprob, old, shifted)), loss(told(logprob, old, rewards)))
    logprob, _, rewards = drawn()
    batch = Rollout(GROUP, torch.ones(6, 1, dtype=torch.bool), torch.ones(6, dtype=torch.bool))
    expected = -dr_grpo()(rewards, batch) * 3 / 2
    assert slope(p3o(epsilon=0.2)(told(logprob, logprob, rewards)), logprob) == pytest.approx(expected.tolist())


def test_a_missing_reward_is_in_no_pair_of_p3o():
    logprob, old, rewards = drawn()
    holed = rewards.clone()
    holed[2] = math.nan
    found = p3o(epsilon=0.1)(told(logprob, old, holed))
    two = p3o(epsilon=0.1)(told(logprob[:2], old[:2], rewards[:2]))
    assert found[2] == 0 and found[:2].tolist() == pytest.approx(two.tolist())
    gradient = slope(found, logprob)
    assert gradient[2] == 0 and all(map(math.isfinite, gradient))


def test_rpo_by_hand():
    # h = 1 and 0, beta 0.5: log(1 + e^-0.5); eta 0.1 and log π of the better answer -1; a half with either answer
    logprob, base = torch.tensor([-1.0, -3.0]), torch.tensor([-2.0, -3.0])
    found = rpo(beta=0.5, eta=0.1)(preferred(logprob, base, torch.tensor([1.0, 0.0])))
    assert found.tolist() == pytest.approx([(math.log(1 + math.exp(-0.5)) + 0.1) / 2] * 2)
    for settings in ({"beta": 0.0, "eta": 0.1}, {"beta": 1.0, "eta": -0.1}):
        with pytest.raises(ValueError, match="beta must be above 0 and eta at least 0"):
            rpo(**settings)
    with pytest.raises(ValueError, match="leave --measure_kl on"):
        rpo(beta=1.0, eta=0.0)(preferred(logprob, None, torch.tensor([1.0, 0.0])))


def test_rpos_gradient_is_that_of_finite_differences_and_eta_0_is_dpo():
    logprob, base, rewards = drawn()
    assert torch.autograd.gradcheck(lambda x: rpo(beta=0.3, eta=0.1)(preferred(x, base, rewards)), logprob)
    two = torch.tensor([50.0, 0.0], dtype=torch.float64, requires_grad=True)
    for eta, least in ((0.0, 0.0), (0.2, 0.2)):
        found = rpo(beta=1.0, eta=eta)(preferred(two, 0 * two.detach(), torch.tensor([1.0, 0.0])))
        assert slope(found, two) == pytest.approx([-least, 0.0], abs=1e-9), "pulled up for ever, or not at all"


def test_reward_gaps_scale_beta_and_set_a_margin_by_hand():
    # h = 1 and 0, δ = 2: β = 0.5 (1 + 3 (1 - e^-1)), and a margin of 0.1 · 2
    logprob, base = torch.tensor([-1.0, -3.0]), torch.tensor([-2.0, -3.0])
    inputs = preferred(logprob, base, torch.tensor([2.0, 0.0]))
    beta = 0.5 * (1 + 3 * (1 - math.exp(-1)))
    found = rpo(beta=0.5, eta=0.0, scale=3.0, rate=0.5, margin=0.1)(inputs)
    assert found.tolist() == pytest.approx([math.log(1 + math.exp(-(beta - 0.2))) / 2] * 2)
    (logprob, base, rewards), plain = drawn(), {"beta": 0.3, "eta": 0.1}
    same = rpo(**plain, rate=9.0)(preferred(logprob, base, rewards))
    assert torch.equal(same, rpo(**plain)(preferred(logprob, base, rewards)))
    holed = torch.tensor([1.0, math.nan, 0.0, 2.0, 2.0, 2.0], dtype=torch.float64)
    scaled = rpo(**plain, scale=1.0, margin=1.0)(preferred(logprob, base, holed))
    assert scaled[[1, 3, 4, 5]].tolist() == [0.0] * 4 and all(map(math.isfinite, slope(scaled, logprob)))
    with pytest.raises(ValueError, match="rate must be above 0, scale and margin at least 0"):
        rpo(**plain, scale=1.0, rate=0.0)


def test_missing_rewards_and_ties_make_no_pair_of_rpo():
    logprob, base, _ = drawn()
    rewards = torch.tensor([1.0, math.nan, 0.0, 2.0, 2.0, 2.0], dtype=torch.float64)
    found = rpo(beta=0.3, eta=0.1)(preferred(logprob, base, rewards))
    assert found[[1, 3, 4, 5]].tolist() == [0.0] * 4 and found[0] == found[2] != 0
    odd = logprob.detach().clone()
    odd[1] = math.nan
    gradient = slope(rpo(beta=0.3, eta=0.1)(preferred(odd.requires_grad_(), base, rewards)), odd)
    assert gradient[1] == 0 and all(map(math.isfinite, gradient))


OWN, FOREIGN = 0, 2
"""Places in a group of four that two agents share."""


def one(s: float, A: float, place: int, updates: int = 0) -> CompletionLossInputs:
    """An answer of two tokens that became s² times as likely."""
    logprob = torch.tensor([2 * math.log(s)], dtype=torch.float64, requires_grad=True)
    same = torch.zeros(1, dtype=torch.long)
    advantage = torch.tensor([A], dtype=torch.float64)
    return CompletionLossInputs(logprob, torch.zeros_like(logprob), advantage, same, same + 2, same + place, 4, updates)


def test_hacpo_by_hand_and_settings_out_of_range():
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
        found = hacpo(delta=0.8, delta_step=0.1, agents=2)(answers)
        assert (found.item(), *slope(found, answers.logprob)) == pytest.approx(expected), answers
    for settings in ({"delta": 1.1}, {"delta": 0.8, "delta_step": -0.1}, {"delta": 0.8, "alpha": -1.0}):
        with pytest.raises(ValueError, match=r"delta must be in \[0, 1\]"):
            hacpo(**settings)


def test_a_missing_reward_has_no_loss_under_hacpo_and_extremes_are_finite():
    logprob = torch.tensor([900.0, math.nan, 900.0, -900.0], requires_grad=True)
    A, rows = torch.tensor([-1.0, math.nan, 1.0, 1.0]), torch.arange(4)
    found = hacpo(delta=0.8, agents=2)(
        CompletionLossInputs(logprob, torch.zeros(4), A, rows * 0, rows * 0 + 1, rows, 4)
    )
    found.sum().backward()
    assert found.isfinite().all() and found[1:].tolist() == [0, -1, 0]
    assert logprob.grad is not None and logprob.grad.isfinite().all() and logprob.grad[1:].tolist() == [0, 0, 0]


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
