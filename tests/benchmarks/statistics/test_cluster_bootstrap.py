import math

import numpy as np
import pytest
from rewardlab.benchmarks.statistics.cluster_bootstrap import (
    Clusters,
    Draws,
    Stratum,
    cell_sums,
    cluster_draws,
    difference_interval,
    difference_p,
    items_to_detect,
    least_p,
    mcnemar,
    percentile_interval,
    share_interval,
    stratified_interval,
)
from rewardlab.benchmarks.types import Difference
from scipy import stats

MODELS = 400
CLUSTERS = np.repeat(np.arange(160), np.tile([2, 3, 4, 3], 40))  # 160 prompts with two to four items


def difficulty(random: np.random.Generator, p: np.ndarray, agreement: float = 4.0) -> np.ndarray:
    """P(right) of every item [M, models]: Beta-distributed by prompt with mean p, so that items of a prompt agree."""
    return random.beta(p * agreement, (1 - p) * agreement, (CLUSTERS[-1] + 1, len(p)))[CLUSTERS]


def means(values: np.ndarray, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Means of every column of values [M, K], observed [K] and in the bootstrap samples [S, K]."""
    names = [str(place) for place in range(values.shape[1])]
    observed, sampled = cell_sums(values, np.zeros(len(values), int), ["all"], names, draws)
    return (observed.total / observed.count)[0], (sampled.total / sampled.count)[:, 0]


def test_intervals_cover_the_truth_as_often_as_they_say():
    random = np.random.default_rng(0)
    truth = random.uniform(0.3, 0.9, MODELS)
    right = (random.random((len(CLUSTERS), MODELS)) < difficulty(random, truth)).astype(float)
    _, samples = means(right, cluster_draws(CLUSTERS, 500))
    low, high = np.array([percentile_interval(column) for column in samples.T]).T
    assert 0.93 <= np.mean((low <= truth) & (truth <= high)) <= 0.97
    # items as if they were independent: the promise breaks, so the simulation can tell
    _, samples = means(right, cluster_draws(np.arange(len(CLUSTERS)), 500))
    low, high = np.array([percentile_interval(column) for column in samples.T]).T
    assert np.mean((low <= truth) & (truth <= high)) < 0.92


def test_equals_are_rarely_called_different():
    random = np.random.default_rng(1)
    chance = difficulty(random, random.uniform(0.3, 0.9, MODELS))
    first, second = ((random.random(chance.shape) < chance).astype(float) for _ in range(2))
    observed, samples = means(first - second, cluster_draws(CLUSTERS, 500))
    differences = [
        Difference(value, *percentile_interval(column)) for value, column in zip(observed, samples.T, strict=True)
    ]
    most = stats.binom.ppf(0.999, MODELS, 0.05)  # nominal, and the luck of a thousand tries
    assert sum(difference.real for difference in differences) <= most
    assert sum(mcnemar(a, b).p < 0.05 for a, b in zip(first.T, second.T, strict=True)) <= most


def test_the_verdict_has_the_promised_power_at_items_to_detect():
    """Exact powers: of n items d n are discordant, of which a share (d + δ) / 2d favours the first."""
    for difference, discordant in [(0.1, 0.1), (0.2, 0.3), (0.5, 0.5), (0.5, 0.7)]:
        items, exact, verdict = items_to_detect(difference, discordant), 0.0, 0.0
        for number in range(1, items + 1):
            only_first = np.arange(number + 1)
            favours = stats.binom.pmf(only_first, number, (discordant + difference) / (2 * discordant))
            chance = stats.binom.pmf(number, items, discordant) * favours
            score = 2 * stats.norm.sf(np.abs(2 * only_first - number) / np.sqrt(number))  # as `difference_p` has it
            sign = 2 * stats.binom.cdf(np.minimum(only_first, number - only_first), number, 0.5)
            verdict += chance[np.maximum(score, least_p(number)) < 0.05].sum()
            exact += chance[sign < 0.05].sum()
        assert 0.785 < verdict < 0.865 and 0.745 < exact < 0.8, difference


def test_items_to_see_by_hand():
    # (1.959964 √0.2 + 0.841621 √(0.2 - 0.0025))² / 0.0025 = (0.876523 + 0.374022)² / 0.0025 = 625.5
    assert items_to_detect(0.05, 0.2) == items_to_detect(-0.05, 0.2) == 626
    assert items_to_detect(1.0, 1.0) == 6, "not 1.96² = 3.8, because p of five items that all changed is 2 / 2⁵ = 6.2 %"
    assert items_to_detect(0.05, 2.0) > 10 * 626 > 9 * items_to_detect(0.05, 0.2), "of items that weigh unequally"
    with pytest.raises(ValueError, match=r"0 < difference² <= square, got 0.5 and 0.2"):
        items_to_detect(0.5, 0.2)


def test_mcnemar_by_hand():
    first, second = np.array([1.0] + [0.0] * 9 + [1.0] * 5), np.array([0.0] + [1.0] * 9 + [1.0] * 5)
    # 2 (C(10, 0) + C(10, 1)) / 2¹⁰
    assert mcnemar(first, second) == (1, 9, pytest.approx(2 * 11 / 1024))
    assert mcnemar(second, first) == (9, 1, pytest.approx(2 * 11 / 1024))
    assert mcnemar(first, first) == (0, 0, 1.0)
    assert mcnemar(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == (1, 1, 1.0)
    assert mcnemar(np.array([1.0, np.nan, 0.0]), np.array([0.0, 0.0, np.nan])) == (1, 0, 1.0)
    assert mcnemar(np.full(5, -0.02), np.full(5, 0.99)) == (0, 5, 2 / 32), "graded credit: the sign test"


def two_point(value: float, variance: float) -> np.ndarray:
    """Samples with this mean and variance."""
    return value + np.sqrt(variance) * np.array([-1.0, 1.0])


def test_p_of_a_difference_is_mcnemars_without_correction():
    # 9 of 40 gained and 1 lost: d = 0.2, Var = (10/40 - 0.04) / 40, z = (9 - 1) / √10 = 2.5298
    samples, clusters = two_point(0.2, (0.25 - 0.04) / 40), Clusters(40, 40)
    both_signs = (difference_p(0.2, samples, clusters), difference_p(-0.2, -samples, clusters))
    assert both_signs == pytest.approx((0.011412, 0.011412), rel=1e-4)
    # z² = 3.8415: half = 1.96 √(0.00525 / (1 - 3.8415 / 40))
    half = 1.959964 * math.sqrt(0.00525 / (1 - 3.841459 / 40))
    assert difference_interval(0.2, samples, clusters, 0.95) == pytest.approx((0.2 - half, 0.2 + half))
    assert difference_p(1.0, np.ones(20), Clusters(25, 25)) == pytest.approx(2 * stats.norm.sf(5))
    assert difference_p(0.0, np.zeros(20), Clusters(25, 25)) == 1.0
    assert difference_interval(0.1, np.full(9, 0.1), Clusters(25, 25), 0.95) == (0.1, 0.1)
    assert difference_interval(0.5, two_point(0.5, 0.02), Clusters(3, 3), 0.95) == (-1, 1), "no more than z² clusters"
    assert math.isnan(difference_p(math.nan, samples, clusters))
    assert all(map(math.isnan, difference_interval(math.nan, samples, clusters, 0.95)))


def test_the_interval_of_a_difference_leaves_out_0_where_p_is_below_its_level():
    for level in [0.9, 0.95, 0.9995]:
        for value in np.linspace(0.01, 0.6, 60):
            samples, clusters = two_point(value, 0.004), Clusters(60, 40.5)
            low, high = difference_interval(value, samples, clusters, level)
            assert (low > 0) == (difference_p(value, samples, clusters) < 1 - level) and low < value < high


def test_the_interval_of_sections_combines_theirs():
    # v = (1.0 + 0.5) / 2; Wilson's of 0 of 9 differing and of 0.5 with n = 0.25 / (0.04 · 26/25) observations
    small, large = Stratum(np.full(2, 0.75), 9, (0.25, 0.75)), Stratum(two_point(0.75, 0.01), 26, (0.5, 1.0))
    one, other = (share_interval(0.75, part.samples, part.clusters, part.ends) for part in (small, large))
    assert one == pytest.approx((0.75 - 0.5 * 3.841459 / (9 + 3.841459), 0.75)) and sum(other) == pytest.approx(1.5)
    low, high = stratified_interval(0.75, [small, large])
    assert 0.75 - low == pytest.approx(math.hypot(0.75 - one[0], 0.75 - other[0])) and high == pytest.approx(other[1])
    assert stratified_interval(0.75, [large._replace(ends=(0.0, 1.0))]) == share_interval(0.75, large.samples, 26)
    assert all(map(math.isnan, (*stratified_interval(math.nan, [small]), *stratified_interval(1, []))))
    # wholly correlated: the deviations add up
    parts = [Stratum(two_point(0.5, 0.01), 30, (0.25, 0.75))] * 2
    low, high = share_interval(0.5, *parts[0])
    assert stratified_interval(0.5, parts) == pytest.approx((0.5 - 2 * (0.5 - low), 0.5 + 2 * (high - 0.5)))
