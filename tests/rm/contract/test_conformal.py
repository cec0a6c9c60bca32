import numpy as np
import pytest
from rewardlab.rm.contract.conformal import residual_bounds
from rewardlab.rm.errors import UsageError


def test_the_bounds_leave_the_same_number_of_residuals_out_on_each_side():
    residuals = np.array([5.0, 1, 4, 2, 3, 9, 8, 7, 6, np.nan])
    # 9 residuals: k = ⌊10 · 0.4 / 2⌋ = 2 of level 0.6, and 1 of level 0.8
    assert residual_bounds(residuals, 0.6) == (2.0, 8.0) and residual_bounds(residuals, 0.8) == (1.0, 9.0)
    with pytest.raises(UsageError, match=r"level 0\.81 needs at least 10 calibration scores, got 9"):
        residual_bounds(residuals, 0.81)
    assert residual_bounds(np.arange(19.0), 0.9) == (0.0, 18.0)
    with pytest.raises(UsageError, match="at least 19 calibration scores, got 18"):
        residual_bounds(np.arange(18.0), 0.9)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_the_share_of_covered_scores_is_the_level_for_skewed_errors_and_a_biased_reward(level):
    random = np.random.default_rng(0)
    calibration, new = random.exponential(size=(2000, 59)) + 3, random.exponential(size=2000) + 3
    bounds = np.array([residual_bounds(row, level) for row in calibration])
    covered = (bounds[:, 0] <= new) & (new <= bounds[:, 1])
    exact = 1 - 2 * int(60 * (1 - level) / 2 + 1e-9) / 60  # of continuous residuals
    assert covered.mean() == pytest.approx(exact, abs=3 * np.sqrt(0.25 / 2000)) and exact >= level


def test_a_predicted_deviation_makes_coverage_equal_for_easy_and_hard_completions():
    random = np.random.default_rng(1)
    deviation = np.tile([0.1, 2.0], 2000)
    residuals = random.normal(size=4000) * deviation
    low, high = residual_bounds((residuals / deviation)[:2000], 0.9)
    plain_low, plain_high = residual_bounds(residuals[:2000], 0.9)
    new, scale = residuals[2000:], deviation[2000:]
    scaled = (low * scale <= new) & (new <= high * scale)
    plain = (plain_low <= new) & (new <= plain_high)
    assert [scaled[side::2].mean() for side in range(2)] == pytest.approx([0.9, 0.9], abs=0.04)
    assert plain[::2].mean() > 0.99 and plain[1::2].mean() < 0.86
