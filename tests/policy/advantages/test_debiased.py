"""The bias of a group's mean as a baseline, and its inversion."""

import math

import pytest
import torch
from rewardlab.policy.advantages.debiased import debiased, mixed_share, pass_rate
from rewardlab.policy.advantages.dr_grpo import dr_grpo
from rewardlab.policy.types import Rollout


def rollout(group: torch.Tensor) -> Rollout:
    rows = len(group)
    return Rollout(group, torch.ones(rows, 1, dtype=torch.bool), torch.ones(rows, dtype=torch.bool))


def exact(p: float, G: int) -> float:
    """E[p̂ | mixed] by adding up the binomial."""
    chances = {k: math.comb(G, k) * p**k * (1 - p) ** (G - k) for k in range(1, G)}
    return sum(k / G * chance for k, chance in chances.items()) / sum(chances.values())


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_share_of_mixed_groups_is_the_binomials_and_its_inverse_takes_it_back():
    for G in (3, 8, 16):
        rates = [0.01, 0.3, 0.5, 0.97]
        found = mixed_share(column(*rates), column(*[G] * 4)).tolist()
        assert found == pytest.approx([exact(p, G) for p in rates])
        assert mixed_share(column(1e-6, 1 - 1e-6), column(G, G)).tolist() == pytest.approx([1 / G, 1 - 1 / G], abs=1e-4)
    rates = column(0.2, 0.4, 0.5, 0.75)
    number = torch.full_like(rates, 8.0)
    torch.testing.assert_close(pass_rate(mixed_share(rates, number), number), rates)


def test_by_hand():
    # of four answers one was right: 1/4 is the least a mixed group can have, and speaks for 0, kept at 1/8
    found = debiased()(column(1, 0, 0, 0), rollout(torch.zeros(4, dtype=torch.long)))
    assert found.tolist() == [0.875, -0.125, -0.125, -0.125]
    # two of four: 1/2 stays
    found = debiased()(column(1, 1, 0, 0), rollout(torch.zeros(4, dtype=torch.long)))
    assert found.tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5])


def test_groups_of_two_are_dr_grpos_and_equal_rewards_are_worth_nothing():
    group = torch.tensor([0, 0, 1, 1, 2, 2, 2])
    rewards = column(1, 0, 1, 1, 0, 0, 0)
    torch.testing.assert_close(debiased()(rewards, rollout(group)), dr_grpo()(rewards, rollout(group)))
    assert not debiased()(rewards, rollout(group))[2:].any()


def baselines(p: float, G: int = 8, prompts: int = 8_000) -> tuple[float, float]:
    """Mean over mixed groups: of the group's mean, and of the debiased baseline."""
    draw = torch.rand(prompts, G, generator=torch.Generator().manual_seed(int(100 * p)), dtype=torch.float64)
    rewards = (draw < p).double()
    mixed = (rewards.sum(1) > 0) & (rewards.sum(1) < G)
    rewards, group = rewards[mixed].flatten(), torch.arange(int(mixed.sum())).repeat_interleave(G)
    batch = rollout(group)
    return tuple((rewards - one()(rewards, batch)).mean().item() for one in (dr_grpo, debiased))


def test_simulated_hard_and_easy_prompts_are_measured_nearer_to_their_pass_rate():
    for p in (0.05, 0.2, 0.8, 0.95):
        plain, mended = baselines(p)
        assert plain == pytest.approx(exact(p, 8), abs=0.005), p  # the bias is the paper's
        assert (plain - p) * (0.5 - p) > 0, p  # too high for hard prompts, too low for easy ones
        assert abs(mended - p) < 0.5 * abs(plain - p), (p, plain, mended)


def test_what_is_no_verdict_is_refused():
    with pytest.raises(ValueError, match="verdicts of 0 or 1, got 0.5"):
        debiased()(column(1, 0.5), rollout(torch.zeros(2, dtype=torch.long)))
