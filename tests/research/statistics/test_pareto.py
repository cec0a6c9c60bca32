from functools import partial

import numpy as np
import pytest
from rewardlab.research.statistics.pareto import hypervolume, mean_inner_product, paired_bootstrap, spearman_control
from rewardlab.rm.data.preference_vectors import simplex_grid
from rewardlab.rm.errors import UsageError

GRID = simplex_grid(2, 10)
MIP = partial(mean_inner_product, GRID)


@pytest.mark.parametrize(
    ("points", "reference", "volume"),
    [
        ([[2, 3]], [1, -1], 4),
        ([[1, 3], [2, 2], [3, 1], [2, 1], [1, 1]], [0, 0], 3 + 2 + 1),
        ([[2, 2], [2, 2]], [0, 0], 4),
        ([[-1, 9], [9, -1], [0, 5]], [0, 0], 0),
        # three slabs of 2·2·1, each two of them sharing 2·1·1, all three the unit cube
        ([[2, 2, 1], [2, 1, 2], [1, 2, 2]], [0, 0, 0], 3 * 4 - 3 * 2 + 1),
    ],
)
def test_hypervolumes_worked_out_by_hand(points, reference, volume):
    points, reference = np.array(points, float), np.array(reference, float)
    assert hypervolume(points, reference) == pytest.approx(volume, abs=1e-12)
    assert hypervolume(np.stack([points, points[::-1]]), reference) == pytest.approx([volume] * 2, abs=1e-12)


def test_mean_inner_product_by_hand():
    preferences = np.array([[0, 1], [0.5, 0.5], [1, 0]])
    rewards = np.array([[1.0, 4.0], [2.0, 3.0], [3.0, -1.0]])
    assert mean_inner_product(preferences, np.stack([rewards, 2 * rewards])) == pytest.approx([9.5 / 3, 19 / 3])
    with pytest.raises(UsageError, match="one row"):
        mean_inner_product(preferences, rewards[:2])


def test_spearman_sees_ranks_on_each_axis(recwarn):
    # ranks 1 2 4 3 against 1 2 3 4: 1 - 6·2 / (4·15)
    weights = np.array([0, 1, 2, 3]) / 3
    swapped = spearman_control(np.stack([weights, 1 - weights], 1), np.array([[1, 9], [2, 8], [4, 7], [3, 6.0]]))
    assert swapped == pytest.approx([0.8, 1])
    constant = spearman_control(GRID, np.stack([np.full(11, 0.1), GRID[:, 1]], axis=1))
    assert np.isnan(constant[0]) and constant[1] == pytest.approx(1) and not recwarn.list


def two_methods(random, seeds=12, prompts=60, gain=0.1):
    """Rewards [S, A, P, 2] of two methods whose true fronts differ by `gain` on both axes."""
    truth = np.stack([GRID[:, 0], GRID[:, 1]], axis=1)[None, :, None]
    prompt = random.normal(size=(1, 1, prompts, 2))

    def method():
        run = 0.1 * random.normal(size=(seeds, 1, 1, 2))
        own = 0.3 * random.normal(size=(1, 1, prompts, 2))
        return truth + prompt + run + own + 0.3 * random.normal(size=(seeds, 11, prompts, 2))

    return method() + gain, method()


def test_the_interval_of_a_difference_covers_the_truth_as_often_as_stated():
    random = np.random.default_rng(0)
    pairs = [paired_bootstrap(*two_methods(random), MIP, random=random, samples=200) for _ in range(100)]
    covered = np.mean([pair.difference.low <= 0.1 <= pair.difference.high for pair in pairs])
    # 95 % less some for 12 seeds and percentiles; the standard error of 100 tries is 2.2 %
    assert covered >= 0.87
    assert np.mean([pair.difference.value for pair in pairs]) == pytest.approx(0.1, abs=0.02)
    width = {name: estimate.high - estimate.low for name, estimate in pairs[0]._asdict().items()}
    assert width["difference"] < 0.7 * min(width["first"], width["second"])  # pairing removes the prompts' part


def test_a_bootstrap_sample_is_the_mean_over_its_seeds_and_prompts():
    class Fixed:
        def __init__(self):
            self.counts = iter([np.array([[2, 0]]), np.array([[0, 1, 2]])])

        def multinomial(self, *_args, **_kwargs):
            return next(self.counts)

    first = np.random.default_rng(0).normal(size=(2, 4, 3, 2))
    fronts = []
    paired_bootstrap(first, first, lambda means: (fronts.append(means), means.sum((-1, -2)))[1], random=Fixed())
    np.testing.assert_allclose(fronts[0], first.mean((0, 2)))
    np.testing.assert_allclose(fronts[2][0], first[[0, 0]][:, :, [1, 2, 2]].mean((0, 2)))


def test_relative_differences_are_shares_of_the_second():
    second = np.broadcast_to(np.array([2.0, 4.0]), (2, 11, 5, 2))
    random = partial(np.random.default_rng, 0)
    more = paired_bootstrap(second * 1.1, second, MIP, random=random(), samples=20)
    assert more.relative == pytest.approx((0.1, 0.1, 0.1)) and more.difference == pytest.approx((0.3, 0.3, 0.3))
    assert paired_bootstrap(second, -second, MIP, random=random(), samples=20).relative.value == pytest.approx(2)
    assert np.isnan(paired_bootstrap(second, second * 0, MIP, random=random(), samples=20).relative).all()


def test_rewards_that_cannot_be_paired_are_refused():
    rewards = np.ones((2, 3, 4, 2))
    with pytest.raises(UsageError, match="the same for both"):
        paired_bootstrap(rewards, rewards[:, :, :3], MIP, random=np.random.default_rng(0))
    missing = rewards.copy()
    missing[1, 2, 3, 0] = np.nan
    with pytest.raises(ValueError, match="1 prompts lack a finite reward, first 3"):
        paired_bootstrap(missing, rewards, MIP, random=np.random.default_rng(0))
