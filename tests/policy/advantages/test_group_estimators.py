"""CANON, debiased baselines and ARE: what a reward is compared with."""

import math
import warnings
from statistics import median

import pytest
import torch
from rewardlab.policy.advantages.are import are, centre, location
from rewardlab.policy.advantages.canon import canon
from rewardlab.policy.advantages.debiased import debiased, mixed_share, pass_rate
from rewardlab.policy.advantages.dr_grpo import dr_grpo
from rewardlab.policy.types import Rollout


def rollout(lengths, group, entropy=None) -> Rollout:
    response = torch.arange(12) < torch.tensor(lengths)[:, None]
    made = Rollout(torch.tensor(group), response, torch.ones(len(lengths), dtype=torch.bool))
    return made._replace(entropy=entropy)


def test_canon_by_hand_and_what_it_refuses():
    # short answers got 1 and 0, long ones 1 and 1: halves' means 0.5 and 1
    rewards, batch = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64), rollout([1, 2, 3, 4], [0] * 4)
    assert canon(mu=1.0)(rewards, batch).tolist() == [0.0, -1.0, 0.5, 0.5]
    assert canon(mu=0.0)(rewards, batch).tolist() == [0.5, -0.5, 0.0, 0.0]
    # against the other half long answers count 0.8: 0.8 - 0.5, and 1 - 0.8 and 0 - 0.8 for the short ones
    assert canon(mu=1.0, alpha=0.8)(rewards, batch).tolist() == pytest.approx([0.2, -0.8, 0.3, 0.3])
    # by the mean entropy over their own tokens the second and third are low, and those count 0.8
    entropy = torch.full((4, 12), 9.0, dtype=torch.float64)
    entropy[:, :4] = torch.tensor([[5.0, 9, 9, 9], [1.0, 1, 9, 9], [1.0, 2, 3, 9], [4.0] * 4])
    found = canon(metric="entropy", mu=1.0, alpha=0.8)(rewards, rollout([1, 2, 3, 4], [0] * 4, entropy))
    assert found.tolist() == pytest.approx([1 - 0.4, 0 - 1.0, 0.8 - 1.0, 1 - 0.4])
    with pytest.raises(ValueError, match="metric must be one of length, entropy, got 'words'"):
        canon(metric="words")
    with pytest.raises(ValueError, match=r"mu must be in \[0, 1\] and alpha at least 0, got 2.0"):
        canon(mu=2.0)
    with pytest.raises(ValueError, match="no entropies of its tokens"):
        canon(metric="entropy")(torch.rand(2), rollout([1, 2], [0, 0]))


def test_canon_with_a_mu_of_a_half_is_dr_grpo_and_ties_in_the_middle_get_the_same():
    rewards = torch.tensor([1.0, 0.2, 0.7, 0.0, 0.4, 5.0, float("nan"), 6.0], dtype=torch.float64)
    for lengths in ([1, 2, 3, 4, 5], [2, 2, 2, 2, 2], [3, 1, 3, 3, 2]):
        batch = rollout([*lengths, 7, 7, 8], [0] * 5 + [4] * 3)
        torch.testing.assert_close(canon()(rewards, batch), dr_grpo()(rewards, batch))
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    first = canon(mu=1.0)(rewards, rollout([1, 2, 2, 3], [0] * 4))
    turned = canon(mu=1.0)(rewards[[0, 2, 1, 3]], rollout([1, 2, 2, 3], [0] * 4))
    assert first[1] == first[2] and torch.equal(first, turned[[0, 2, 1, 3]])


def of_groups(group: torch.Tensor) -> Rollout:
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


def test_debiased_by_hand():
    # of four answers one was right: 1/4 is the least a mixed group can have, and speaks for 0, kept at 1/8
    found = debiased()(column(1, 0, 0, 0), of_groups(torch.zeros(4, dtype=torch.long)))
    assert found.tolist() == [0.875, -0.125, -0.125, -0.125]
    # two of four: 1/2 stays
    found = debiased()(column(1, 1, 0, 0), of_groups(torch.zeros(4, dtype=torch.long)))
    assert found.tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5])
    with pytest.raises(ValueError, match="verdicts of 0 or 1, got 0.5"):
        debiased()(column(1, 0.5), of_groups(torch.zeros(2, dtype=torch.long)))


def test_debiased_groups_of_two_are_dr_grpos_and_equal_rewards_are_worth_nothing():
    group = torch.tensor([0, 0, 1, 1, 2, 2, 2])
    rewards = column(1, 0, 1, 1, 0, 0, 0)
    torch.testing.assert_close(debiased()(rewards, of_groups(group)), dr_grpo()(rewards, of_groups(group)))
    assert not debiased()(rewards, of_groups(group))[2:].any()


def with_outliers(rows: int = 64) -> torch.Tensor:
    """Every eighth is far off."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(rows, generator=generator, dtype=torch.float64)
    values[::8] += 1000 * torch.rand(rows // 8, generator=generator, dtype=torch.float64)
    return values


def by_loop(values: list[float], shape: float) -> float:
    middle = median(values)
    scale = max(1.4826 * median(abs(x - middle) for x in values), 1e-3)
    found = sum(values) / len(values)
    for stage in range(1, 9):
        alpha = 2 - (2 - shape) * stage / 8
        for _ in range(20):
            weights = [(((x - found) / scale) ** 2 / abs(alpha - 2) + 1) ** (alpha / 2 - 1) for x in values]
            found = sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
    return found


def test_the_robust_centre_is_its_plain_loop():
    values, shape = with_outliers(), 0.3
    expected = by_loop(values.tolist(), shape)
    assert centre(values, shape, 1e-3).item() == pytest.approx(expected)
    found = are(shape=shape)(values, of_groups(torch.arange(64) // 4))
    torch.testing.assert_close(found, (values - expected) / (values.std() + 1e-4))


def test_outliers_do_not_move_the_centre_and_the_centre_moves_with_the_rewards():
    values = with_outliers()
    assert values.mean() > 30 and abs(location(values, 0.5, 4, 1e-3).item()) < 0.4
    moved = location(3 * values + 7, 0.5, 2, 1e-3)
    torch.testing.assert_close(moved, 3 * location(values, 0.5, 2, 1e-3) + 7)
    values = torch.tensor([5.0, 1.0, 900.0], dtype=torch.float64)
    assert location(values, 1.0, 3, 1e-3) == location(values, 1.0, 99, 1e-3) == 5


def test_of_verdicts_it_is_the_more_frequent_one_not_the_mean_and_that_is_warned_of():
    verdicts = torch.tensor([0.0] * 11 + [1.0] * 5, dtype=torch.float64)
    with pytest.warns(
        UserWarning, match="the rewards have only two values, so the centre is the more frequent one; use grpo"
    ):
        found = are(shape=0.5)(verdicts, of_groups(torch.arange(16) // 4))
    assert abs(found[0].item()) < 0.01 and verdicts.mean() > 0.3


def test_scores_are_not_warned_of_and_missing_ones_do_not_count():
    values = with_outliers(16)
    holed = torch.cat([values, values.new_tensor([torch.nan])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = are(shape=1.0)(holed, of_groups(torch.arange(17) // 4))
    assert found[16] == 0
    torch.testing.assert_close(found[:16], are(shape=1.0)(values, of_groups(torch.arange(16) // 4)))


@pytest.mark.parametrize("settings", [{"shape": 0.0}, {"shape": 1.0, "blocks": 0}, {"shape": 1.0, "floor": 0.0}])
def test_settings_of_are_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=r"shape must be in \(0, 1\], blocks at least 1 and floor above 0"):
        are(**settings)
