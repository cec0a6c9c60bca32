"""Calibration of margins."""

import math

import numpy as np
import pytest
from rewardlab.benchmarks.statistics.calibration import reliability


def test_reliability_by_hand():
    three_to_one = math.log(3)  # σ = 0.75
    bins, error = reliability(np.array([three_to_one] * 3 + [-three_to_one, np.nan]))
    assert bins == [(pytest.approx(0.75), 0.75, 4)] and error == pytest.approx(0)
    # σ = 0.9 and right 1 of 2, σ = 0.6 and right 1 of 1: 2/3 · 0.4 + 1/3 · 0.4
    nine, three_to_two = math.log(9), math.log(1.5)
    bins, error = reliability(np.array([nine, -nine, three_to_two]), bins=4)
    assert bins == [(pytest.approx(0.6), 1.0, 1), (pytest.approx(0.9), 0.5, 2)] and error == pytest.approx(0.4)
    assert reliability(np.array([1000.0]))[0] == [(1.0, 1.0, 1)] and math.isnan(reliability(np.array([np.nan]))[1])


def test_a_model_whose_margins_are_log_odds_is_calibrated():
    random = np.random.default_rng(0)
    margins = np.abs(random.normal(0, 2, 100_000))
    honest = np.where(random.random(len(margins)) < 1 / (1 + np.exp(-margins)), margins, -margins)
    assert reliability(honest)[1] < 0.01
    assert reliability(3 * honest)[1] > 0.1  # the same answers, claimed too loudly
