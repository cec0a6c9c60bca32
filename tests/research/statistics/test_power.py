import math

import numpy as np
import pytest
from rewardlab.research.statistics.power import (
    detectable_effect,
    look_levels,
    paired_sd,
    power,
    sd_upper_limit,
    seeds_needed,
)
from rewardlab.rm.errors import UsageError
from scipy import stats


def test_the_paired_deviation_leaves_out_missing_seeds():
    assert paired_sd(np.array([1.0, np.nan, 3.0])) == pytest.approx(math.sqrt(2))
    with pytest.raises(UsageError, match=r"1 pilot differences .* at least 2"):
        paired_sd(np.array([1.0, np.nan]))


def test_the_upper_limit_of_a_deviation_by_the_table_of_chi_square():
    # the 20 % quantile of chi-square with 4 degrees of freedom is 1.6488
    assert sd_upper_limit(2.0, 5) == pytest.approx(2 * math.sqrt(4 / 1.6488), rel=1e-4)


@pytest.mark.parametrize(
    ("effect", "seeds", "alpha", "expected"),
    [(0.5, 20, 0.05, 0.564504), (1.2, 5, 0.05, 0.530221), (1.0, 2, 0.01, 0.018613), (1e-3, 10**7, 0.05, 0.885379)],
)
def test_power_is_that_of_statsmodels(effect, seeds, alpha, expected):
    assert power(effect, 1.0, seeds, alpha) == pytest.approx(expected, abs=1e-6)
    assert power(-3 * effect, 3.0, seeds, alpha) == pytest.approx(expected, abs=1e-6)  # either sign, any unit


def test_one_seed_shows_nothing_and_equal_differences_show_everything():
    assert math.isnan(detectable_effect(1.0, 1))
    assert detectable_effect(0.0, 5) == 0
    assert seeds_needed(0.1, 0.0) == 2


@pytest.mark.parametrize(("effect", "expected"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.5, 6)])
def test_the_number_of_seeds_is_that_of_statsmodels_rounded_up(effect, expected):
    assert seeds_needed(effect, 1.0) == expected


def test_looks_spend_little_at_first_and_the_whole_level_in_all():
    # A(1/2) = 2 - 2 Φ(1.95996 √2) = 2 - 2 Φ(2.77181) = 0.005575
    assert look_levels([0.5, 1]) == pytest.approx((0.005575, 0.044425), abs=1e-6)
    levels = look_levels([0.25, 0.5, 0.75, 1], alpha=0.01)
    assert sum(levels) == pytest.approx(0.01)
    assert list(levels) == sorted(levels)
    assert look_levels([1]) == pytest.approx((0.05,))


@pytest.mark.parametrize("looks", [[], [0.5], [0.5, 0.5, 1], [0, 1], [1, 0.5], [0.5, 1.5], [math.nan, 1]])
def test_looks_that_are_no_increasing_fractions_are_refused(looks):
    with pytest.raises(UsageError, match="increasing fractions"):
        look_levels(looks)


def _false_positives(seeds_at_looks, levels, studies=40_000):
    """Return the share of studies without an effect in which a look's t-test is significant."""
    differences = np.random.default_rng(0).standard_normal((studies, seeds_at_looks[-1]))
    p = [stats.ttest_1samp(differences[:, :seeds], 0, axis=1).pvalue for seeds in seeds_at_looks]
    return np.mean([p_at_look < level for p_at_look, level in zip(p, levels, strict=True)], axis=0).astype(bool).mean()


def test_looks_at_few_seeds_keep_the_familywise_level_which_uncorrected_looks_exceed():
    error = math.sqrt(0.05 * 0.95 / 40_000)
    for seeds_at_looks in ([3, 6], [4, 8, 12], [5, 10, 15, 20]):
        looks = [seeds / seeds_at_looks[-1] for seeds in seeds_at_looks]
        assert 0.03 < _false_positives(seeds_at_looks, look_levels(looks)) < 0.05 + 2 * error
        assert _false_positives(seeds_at_looks, [0.05] * len(looks)) > 0.06
