import math

import numpy as np
import pytest
from rewardlab.research.statistics.percentile_tests import at_floor, bootstrap_p, unrejected_interval


def test_a_p_of_the_smallest_value_is_marked():
    assert at_floor(np.array([0.1, 0.2, math.nan]))
    assert not at_floor(np.array([0.1, 0.0])) and not at_floor(np.array([]))


def test_bootstrap_p_by_hand():
    samples = np.array([*np.arange(1, 100), -1.0])  # 1 of 100 at or below 0: 2 (1 + 1) / 101
    assert bootstrap_p(samples) == bootstrap_p(-samples) == pytest.approx(4 / 101)
    assert bootstrap_p(np.ones(999)) == pytest.approx(0.002) and bootstrap_p(np.zeros(9)) == 1.0
    assert math.isnan(bootstrap_p(np.array([np.nan])))


@pytest.mark.parametrize("level", [0.9, 0.95, 0.98])
@pytest.mark.parametrize("below", range(8))
def test_the_unrejected_interval_leaves_out_zero_where_p_is_below_its_level(below, level):
    samples = np.concatenate([-np.arange(1, below + 1), np.arange(1, 200 - below), [np.nan]])
    low, high = unrejected_interval(samples, level)
    assert (low > 0) == (bootstrap_p(samples) < 1 - level) and (-high, -low) == unrejected_interval(-samples, level)


def test_too_few_samples_for_a_level_give_their_extremes():
    assert unrejected_interval(np.array([0.5, 0.25, 0.75]), 0.999) == (0.25, 0.75)
    assert all(map(math.isnan, unrejected_interval(np.array([np.nan]))))
