import math

import pytest
import torch
from rewardlab.rm.losses.grebt import Pairs, extremes, grebt, group_entropy, omega
from torch import nan, tensor

SCORES = [0.3, -1.2, 0.9, 2.1, -0.4, 0.0, 1.1, -2.0]


def scores(*rows):
    return tensor(rows, dtype=torch.float64)


def gradient(rewards, **options):
    return gradient_of(lambda found: group_entropy(found, **options).nan_to_num(0).sum(), rewards)


def gradient_of(value, rewards):
    rewards = rewards.clone().requires_grad_()
    return torch.autograd.grad(value(rewards), rewards)[0]


def test_omega_falls_from_1_to_its_floor():
    """½ cos(π x) + ½ = 0.6 at x = arccos(0.2) / π = 0.436, and 0.7 at 0.369."""
    assert omega(0, 100, 0.6) == 1.0
    assert omega(50, 100, 0.2) == pytest.approx(0.5)  # ½ cos(π / 2) + ½
    assert omega(25, 100, 0.2) == pytest.approx(0.5 + math.sqrt(0.125))  # cos(π / 4) = 1 / √2
    rising = [omega(step, 100, 0.6) for step in range(100, -1, -1)]
    assert rising == sorted(rising) and rising[0] == 0.6
    assert omega(200, 100, 0.0) == omega(100, 100, 0.0) == pytest.approx(0.0), "it stays there after the last round"
    assert omega(435, 1000, 0.6) > 0.6 == omega(436, 1000, 0.6)
    assert omega(369, 1000, 0.7) > 0.7 == omega(370, 1000, 0.7)


def test_a_pair_is_the_highest_and_the_lowest():
    pairs = extremes(scores([1, 3, 2], [0, -1, nan]))
    assert pairs.best.tolist() == [1, 0] and pairs.worst.tolist() == [0, 1]
    assert pairs.wins.tolist() == [1, 1]
    equal_or_missing = scores([2, 2, 2], [nan, 1, nan], [nan, nan, nan])
    assert extremes(equal_or_missing).wins.isnan().all()


def test_the_entropy_by_hand_also_of_two_answers_and_between_one_winner_and_one_loser():
    """[2, 0, 1]: std = √(2/3), z = ± 1.2247 and 0; e^z = 3.4034, 0.2938, 1, sum 4.6972; p = 0.7246, 0.0626, 0.2129."""
    expected = -(0.7246 * math.log(0.7246) + 0.0626 * math.log(0.0626) + 0.2129 * math.log(0.2129))
    assert group_entropy(scores([2, 0, 1])).item() == pytest.approx(expected, abs=2e-4)
    # K = 8: a lone winner is √7 deviations up and the others 1/√7 down; log 8 = 2.079 is out of reach.
    winner, loser = [1.0] + [0.0] * 7, [-1.0] + [0.0] * 7
    assert group_entropy(scores(winner, loser)).tolist() == pytest.approx([1.061, 1.974], abs=1e-3)
    others = group_entropy(torch.randn(500, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    assert others.min() > 1.061 and others.max() < 1.974
    # p = σ(2) = 0.8808 whatever they earned: 0.8808 · 0.1269 + 0.1192 · 2.1269 = 0.3653.
    pairs = scores([1, 0], [-3, 5], [0.1, 0.2])
    assert group_entropy(pairs, epsilon=0.0).tolist() == pytest.approx([0.3653] * 3, abs=1e-4)
    assert gradient(pairs, epsilon=0.0).abs().max() < 1e-12


def test_as_published_it_never_widens_the_spread_and_with_a_constant_deviation_it_does():
    rewards = scores(SCORES)
    gap = rewards - rewards.mean()
    found = gradient(rewards, epsilon=0.0)
    assert found.norm() > 0.05
    assert (found * gap).sum().abs() < 1e-12
    moved = rewards - 1e-4 * found
    assert moved.std().item() == pytest.approx(rewards.std().item(), rel=1e-7)
    found = gradient(rewards, spread="stopgrad")
    assert -(found * (rewards - rewards.mean())).sum() > 0.1
    assert (rewards - 0.01 * found).std() > rewards.std()
    # ‖∇‖ ∝ 1 / σ
    large, small = (gradient(scale * scores(SCORES), epsilon=0.0).norm() for scale in (1.0, 0.01))
    assert (small / large).item() == pytest.approx(100, rel=1e-9)


def test_missing_answers_count_for_nothing_and_equal_rewards_have_no_entropy():
    with_gap = scores([2, nan, 0, 1])
    assert group_entropy(with_gap).item() == pytest.approx(group_entropy(scores([2, 0, 1])).item())
    found = gradient(with_gap)
    assert found[0, 1] == 0 and torch.allclose(found[:, [0, 2, 3]], gradient(scores([2, 0, 1])))
    rewards = tensor([[0.1] * 7, [nan] * 7, [nan] * 6 + [1.0]])
    assert group_entropy(rewards).isnan().all() and group_entropy(rewards).dtype == torch.float32
    found = gradient(torch.cat([rewards, torch.arange(7.0)[None]]))
    assert (found[:3] == 0).all() and found[3].any()


def test_the_parts_are_mixed_by_alpha_and_the_pair_is_that_of_the_annotation():
    """Δ = 2 costs log(1 + e^-2); half of it and half of the entropy of [2, 0, 1]."""
    rewards = scores([2, 0, 1])
    found = grebt(0.5)(rewards, extremes(rewards))
    pair, entropy = math.log(1 + math.exp(-2)), group_entropy(rewards).item()
    assert found.pair.item() == pytest.approx(pair) and found.entropy.item() == pytest.approx(entropy)
    assert found.loss.item() == pytest.approx((pair + entropy) / 2)
    # Not the extremes of the rewards at hand: Δ = 0 - 2; a label of 1/4 turns the pair
    found = grebt(0.0)(rewards, extremes(scores([0, 1, 0.5])))
    assert found.loss.item() == pytest.approx(math.log(1 + math.exp(2)))
    doubted = extremes(rewards)._replace(wins=tensor([0.25], dtype=torch.float64))
    expected = 0.25 * math.log(1 + math.exp(-2)) + 0.75 * math.log(1 + math.exp(2))
    assert grebt(0.0)(rewards, doubted).loss.item() == pytest.approx(expected)


def test_a_step_raises_the_best_over_the_worst_also_in_groups_of_two():
    rewards = scores([2, 0, 1])
    found = gradient_of(lambda at: grebt(0.0)(at, extremes(rewards)).loss.sum(), rewards)
    chance = 1 / (1 + math.exp(2))  # σ(-Δ)
    assert found.tolist() == [pytest.approx([-chance, chance, 0.0])]
    rewards = scores([1, 0])
    assert grebt(0.0)(rewards, extremes(rewards)).loss.item() == pytest.approx(math.log(1 + math.exp(-1)))
    with pytest.raises(ValueError, match="groups have 2 completions, whose entropy is constant; sample three or more"):
        grebt(0.3)(rewards, extremes(rewards))


def test_which_groups_have_a_loss():
    """Whole, without a pair, all equal, two of three known: the pair lives where alpha leaves it, the entropy too."""
    rewards = scores([2, 0, 1], [1, 5, 3], [4, 4, 4], [2, nan, 1])
    pairs = Pairs(tensor([0, 0, 0, 0]), tensor([1, 1, 1, 2]), scores(1, nan, nan, 1))
    for alpha, live in [(0.0, [0, 3]), (0.3, [0]), (1.0, [0, 1])]:
        found = grebt(alpha)(rewards, pairs).loss
        assert (~found.isnan()).nonzero().squeeze(1).tolist() == live
        moved = gradient_of(lambda at, alpha=alpha: grebt(alpha)(at, pairs).loss.nanmean(), rewards)
        assert moved.isfinite().all() and moved.any(1).nonzero().squeeze(1).tolist() == live


def test_settings_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"steps >= 1 and floor in \[0, 1\]; got 0, 0, 0.6"):
        omega(0, 0, 0.6)
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\], got 1.5"):
        grebt(1.5)
    with pytest.raises(ValueError, match="spread must be one of full, stopgrad, got 'half'"):
        group_entropy(scores(SCORES), spread="half")
