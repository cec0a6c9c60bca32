import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewardlab.benchmarks.statistics.cluster_bootstrap import Estimate
from rewardlab.benchmarks.statistics.pareto import (
    SCALINGS,
    hypervolume,
    mean_inner_product,
    min_max,
    monotonicity_violations,
    non_dominated,
    paired_bootstrap,
    raw,
    shared_reference,
    shuffled_control,
    spearman_control,
    z_score,
)
from rewardlab.rm.data.preference_vectors import simplex_grid
from rewardlab.rm.errors import UsageError

GRID = simplex_grid(2, 10)


def by_inclusion_exclusion(points: np.ndarray, reference: np.ndarray) -> float:
    """Σ over non-empty sets of points of ± the volume that all their boxes share."""
    gains = np.maximum(points - reference, 0)
    sets = itertools.chain.from_iterable(itertools.combinations(gains, n) for n in range(1, len(gains) + 1))
    return sum((-1) ** (len(chosen) + 1) * np.min(chosen, axis=0).prod() for chosen in sets)


def fronts(axes: int):
    # few values, so that ties, equal points and points on or below the reference are common
    coordinate = st.one_of(st.integers(-2, 4).map(float), st.floats(-2, 4, allow_subnormal=False))
    return st.lists(st.tuples(*[coordinate] * axes), min_size=1, max_size=6).map(np.array)


def test_equal_points_do_not_dominate_each_other():
    points = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.5], [0.0, 2.0]])
    assert non_dominated(points).tolist() == [True, True, False, True]


def test_hypervolumes_worked_out_by_hand():
    for points, reference, volume in [
        ([[2, 3]], [0, 0], 6),
        ([[2, 3]], [1, -1], 4),
        ([[1, 3], [2, 2], [3, 1]], [0, 0], 3 + 2 + 1),
        ([[1, 3], [2, 2], [3, 1], [2, 1], [1, 1]], [0, 0], 6),
        ([[2, 2], [2, 2]], [0, 0], 4),
        ([[2, 3], [2, 1]], [0, 0], 6),
        ([[-1, 9], [9, -1], [0, 5]], [0, 0], 0),
        ([[-1, 9], [2, 2]], [0, 0], 4),
        ([[2, 3, 4]], [0, 0, 0], 24),
        # two boxes of 4 that share the unit cube
        ([[2, 2, 1], [1, 1, 4]], [0, 0, 0], 4 + 4 - 1),
        # three slabs of 2·2·1, each two of them sharing 2·1·1, all three the unit cube
        ([[2, 2, 1], [2, 1, 2], [1, 2, 2]], [0, 0, 0], 3 * 4 - 3 * 2 + 1),
        ([[2, 2, 1], [2, 1, 2], [1, 2, 2], [1, 1, 1], [2, 2, 1]], [0, 0, 0], 7),
        ([[2, 2, 1], [9, 9, 0], [9, -1, 9]], [0, 0, 0], 4),
        ([[3, 3, 3]], [1, 2, 0], 2 * 1 * 3),
    ]:
        assert hypervolume(np.array(points, float), np.array(reference, float)) == pytest.approx(volume, abs=1e-12)


@settings(max_examples=60)
@given(st.sampled_from([2, 3, 4]).flatmap(fronts))
def test_hypervolume_is_that_of_inclusion_and_exclusion(points):
    reference = np.zeros(points.shape[1])
    assert hypervolume(points, reference) == pytest.approx(by_inclusion_exclusion(points, reference), abs=1e-9)


def test_neither_order_nor_axes_nor_dominated_points_nor_other_fronts_change_a_hypervolume():
    for axes in [2, 3]:
        random = np.random.default_rng(0)
        points, reference = random.normal(size=(12, axes)), np.full(axes, -1.0)
        volume = hypervolume(points, reference)
        assert hypervolume(points[random.permutation(12)], reference) == pytest.approx(volume), axes
        assert hypervolume(points[:, ::-1], reference) == pytest.approx(volume), axes
        assert hypervolume(points[non_dominated(points)], reference) == pytest.approx(volume), axes
        assert hypervolume(np.concatenate([points, points - 0.1]), reference) == pytest.approx(volume), axes
    for axes in [2, 3]:
        points = np.random.default_rng(1).normal(size=(4, 5, 7, axes))
        reference = np.full(axes, -0.5)
        together = hypervolume(points, reference)
        assert together.shape == (4, 5), axes
        for place in np.ndindex(4, 5):
            assert together[place] == pytest.approx(float(hypervolume(points[place], reference))), axes


def test_what_a_hypervolume_cannot_be_taken_of_is_refused():
    with pytest.raises(UsageError, match=r"reference of shape \(3,\) for points of 2"):
        hypervolume(np.ones((2, 2)), np.zeros(3))
    with pytest.raises(ValueError, match=r"nan at \(1, 0\)"):
        hypervolume(np.array([[1, 1], [np.nan, 1]]), np.zeros(2))
    with pytest.raises(UsageError, match="at least one preference"):
        non_dominated(np.empty((0, 2)))


def test_mean_inner_product_by_hand():
    preferences = np.array([[0, 1], [0.5, 0.5], [1, 0]])
    rewards = np.array([[1.0, 4.0], [2.0, 3.0], [3.0, -1.0]])
    assert mean_inner_product(preferences, rewards) == pytest.approx((4 + 2.5 + 3) / 3)
    assert mean_inner_product(preferences, np.stack([rewards, 2 * rewards])) == pytest.approx([9.5 / 3, 19 / 3])
    with pytest.raises(UsageError, match="one row"):
        mean_inner_product(preferences, rewards[:2])


FIRST, SECOND = np.array([[0.0, 10.0], [2.0, 6.0]]), np.array([[1.0, 14.0], [4.0, 8.0]])


def test_the_reference_lies_a_margin_below_the_worst_of_all_methods():
    assert shared_reference([FIRST, SECOND], 1.0).tolist() == [-1.0, 5.0]
    assert shared_reference([FIRST, SECOND], np.array([0.5, 2.0])).tolist() == [-0.5, 4.0]
    with pytest.raises(UsageError, match="margin of -1"):
        shared_reference([FIRST], -1)


def test_scales_are_those_of_all_methods_together_and_forget_the_units():
    np.testing.assert_allclose(min_max([FIRST, SECOND]).apply(FIRST), [[0, 0.5], [0.5, 0]])
    scaled = z_score([FIRST, SECOND]).apply(np.concatenate([FIRST, SECOND]))
    np.testing.assert_allclose([scaled.mean(0), scaled.std(0)], [[0, 0], [1, 1]], atol=1e-12)
    np.testing.assert_array_equal(raw([FIRST, SECOND]).apply(FIRST), FIRST)
    for name in ["min-max", "z-score"]:
        units = np.array([3.0, 0.01])
        before = SCALINGS[name]([FIRST, SECOND]).apply(FIRST)
        after = SCALINGS[name]([FIRST * units - 7, SECOND * units - 7]).apply(FIRST * units - 7)
        np.testing.assert_allclose(after, before)
        still = np.array([[1.0, 0.1], [2.0, 0.1], [3.0, 0.1]])
        with pytest.raises(ValueError, match="no method moves objective 1"):
            SCALINGS[name]([still])
        with pytest.raises(UsageError, match=r"objectives \[2, 3\]|with \[2, 3\] objectives"):
            SCALINGS[name]([FIRST, np.ones((2, 3))])


def test_spearman_sees_ranks_on_each_axis():
    rewards = np.stack([np.exp(5 * GRID[:, 0]), -(GRID[:, 1] ** 3)], axis=1)
    assert spearman_control(GRID, rewards) == pytest.approx([1, -1])
    # ranks 1 2 4 3 against 1 2 3 4: 1 - 6·2 / (4·15)
    weights = np.array([0, 1, 2, 3]) / 3
    swapped = spearman_control(np.stack([weights, 1 - weights], 1), np.array([[1, 9], [2, 8], [4, 7], [3, 6.0]]))
    assert swapped == pytest.approx([0.8, 1])


def test_a_reward_that_nothing_moves_has_no_correlation(recwarn):
    rewards = np.stack([np.full(11, 0.1), GRID[:, 1]], axis=1)
    found = spearman_control(GRID, rewards)
    assert np.isnan(found[0]) and found[1] == pytest.approx(1)
    assert not recwarn.list


def test_violations_are_falls_beyond_the_tolerance():
    weights, rewards = np.linspace(0, 1, 5), np.array([0.0, 1.0, 0.9, 0.2, 0.2])
    assert monotonicity_violations(weights, rewards) == 2
    assert monotonicity_violations(weights, rewards, tolerance=0.2) == 1
    assert monotonicity_violations(weights, rewards, tolerance=np.array([0, 0.05, 1, 0])) == 1
    assert monotonicity_violations(weights, np.sort(rewards)) == 0
    with pytest.raises(UsageError, match="ascending"):
        monotonicity_violations(np.array([0, 0.5, 0.5]), np.zeros(3))


def controlled(prompts: int = 400, seed: int = 0) -> np.ndarray:
    """Rewards [A, P, 2] on a quarter circle, with noise of the prompt and of the answer."""
    random = np.random.default_rng(seed)
    truth = np.stack([np.sin(GRID[:, 0] * np.pi / 2), np.sin(GRID[:, 1] * np.pi / 2)], axis=1)
    noise = random.normal(size=(1, prompts, 2)) + 0.5 * random.normal(size=(11, prompts, 2))
    return truth[:, None] + 0.3 * noise


def test_shuffled_preferences_leave_one_blend():
    rewards = controlled()
    shuffled = shuffled_control(rewards, np.random.default_rng(0))
    assert not np.array_equal(shuffled, rewards)
    for prompt in range(5):
        rows = [sorted(map(tuple, one[:, prompt])) for one in (rewards, shuffled)]
        assert rows[0] == rows[1]  # whole answers, each of them once
    dealt = shuffled.mean(1)
    front, blend = rewards.mean(1), rewards.mean((0, 1))
    np.testing.assert_allclose(dealt, np.broadcast_to(blend, dealt.shape), atol=5 * 0.5 / 400**0.5)
    assert mean_inner_product(GRID, dealt) == pytest.approx(GRID.mean(0) @ blend, abs=0.02)
    assert mean_inner_product(GRID, dealt) < mean_inner_product(GRID, front) - 0.15
    reference = shared_reference([front], 0.1)
    box = float(np.prod(blend - reference))
    assert box < hypervolume(dealt, reference) < box + 0.1 < hypervolume(front, reference) - 0.1
    one_for_all = rewards[np.random.default_rng(0).permutation(11)]
    assert hypervolume(one_for_all.mean(1), reference) == pytest.approx(float(hypervolume(front, reference)))
    rewards = np.stack([controlled(50)] * 3)
    dealt = shuffled_control(rewards, np.random.default_rng(0))
    assert dealt.shape == rewards.shape and not np.array_equal(dealt[0], dealt[1])
    with pytest.raises(UsageError, match="every prompt"):
        shuffled_control(rewards[0, :, 0], np.random.default_rng(0))


def two_methods(random, seeds=12, prompts=60, gain=0.1):
    """Rewards [S, A, P, 2] of two methods whose true fronts differ by `gain` on both axes."""
    truth = np.stack([GRID[:, 0], GRID[:, 1]], axis=1)[None, :, None]
    prompt = random.normal(size=(1, 1, prompts, 2))

    def method():
        run = 0.1 * random.normal(size=(seeds, 1, 1, 2))
        own = 0.3 * random.normal(size=(1, 1, prompts, 2))
        return truth + prompt + run + own + 0.3 * random.normal(size=(seeds, 11, prompts, 2))

    return method() + gain, method()


MIP = partial(mean_inner_product, GRID)


@pytest.mark.slow
def test_the_interval_of_a_difference_covers_the_truth_as_often_as_it_says():
    random = np.random.default_rng(0)
    found = [paired_bootstrap(*two_methods(random), MIP, random=random, samples=100).difference for _ in range(200)]
    covered = np.mean([one.low <= 0.1 <= one.high for one in found])
    # 95 % less some for 12 seeds and percentiles; the standard error of 200 tries is 1.5 %
    assert 0.88 <= covered <= 0.98
    assert np.mean([one.value for one in found]) == pytest.approx(0.1, abs=0.02)


def test_a_method_does_not_differ_from_itself_and_pairing_takes_out_what_prompts_have_in_common():
    first, second = two_methods(np.random.default_rng(0))
    found = paired_bootstrap(first, second, MIP, random=np.random.default_rng(0))
    width = {name: one.high - one.low for name, one in found._asdict().items()}
    assert width["difference"] < 0.7 * min(width["first"], width["second"])
    found = paired_bootstrap(first, first, MIP, random=np.random.default_rng(0))
    assert found.difference == found.relative == Estimate(0, 0, 0)
    assert found.first == found.second and found.first.low < found.first.value < found.first.high


def test_a_bootstrap_sample_is_the_mean_over_what_it_drew():
    class Drawn:
        def __init__(self):
            self.counts = iter([np.array([[2, 0]]), np.array([[0, 1, 2]])])

        def multinomial(self, *_args, **_kwargs):
            return next(self.counts)

    first = np.random.default_rng(0).normal(size=(2, 4, 3, 2))
    seen = []
    paired_bootstrap(first, first, lambda means: (seen.append(means), means.sum((-1, -2)))[1], random=Drawn())
    np.testing.assert_allclose(seen[0], first.mean((0, 2)))
    np.testing.assert_allclose(seen[2][0], first[[0, 0]][:, :, [1, 2, 2]].mean((0, 2)))


def test_relative_differences_are_shares_of_the_second():
    second = np.broadcast_to(np.array([2.0, 4.0]), (2, 11, 5, 2))
    found = paired_bootstrap(second * 1.1, second, MIP, random=np.random.default_rng(0), samples=20)
    assert found.relative == pytest.approx((0.1, 0.1, 0.1))
    assert found.difference == pytest.approx((0.3, 0.3, 0.3))
    below = paired_bootstrap(second, -second, MIP, random=np.random.default_rng(0), samples=20)
    assert below.relative.value == pytest.approx(2)
    none = paired_bootstrap(second, second * 0, MIP, random=np.random.default_rng(0), samples=20)
    assert np.isnan(none.relative).all()


def test_rewards_that_cannot_be_paired_are_refused():
    rewards = np.ones((2, 3, 4, 2))
    with pytest.raises(UsageError, match="the same for both"):
        paired_bootstrap(rewards, rewards[:, :, :3], MIP, random=np.random.default_rng(0))
    holed = rewards.copy()
    holed[1, 2, 3, 0] = np.nan
    with pytest.raises(ValueError, match="1 prompts lack a finite reward, first 3"):
        paired_bootstrap(holed, rewards, MIP, random=np.random.default_rng(0))
