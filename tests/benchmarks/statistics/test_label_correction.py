import math

import numpy as np
import pytest
from rewardlab.benchmarks.statistics.label_correction import (
    Rate,
    isotonic,
    prediction_powered,
    rogan_gladen,
)
from scipy import stats

Y, F, G = np.array([1.0, 0, 1, 1, 0, 1]), np.array([1.0, 1, 1, 1, 0, 0]), np.array([1.0, 1, 0, 1, 1, 0, 1, 1])


def simulate(rng, labels: int, others: int, share: float, se: float, sp: float):
    y = rng.random(labels + others) < share
    f = np.where(y, rng.random(len(y)) < se, rng.random(len(y)) >= sp).astype(float)
    return y[:labels].astype(float), f[:labels], f[labels:]


# ---- prediction-powered inference ----


def test_the_estimate_is_the_predictions_mean_and_the_mean_error_of_the_labelled_ones():
    # mean(g) = 6/8, mean(y - f) = (0 - 1 + 0 + 0 + 0 + 1) / 6 = 0; the y - f have Σ² = 2, the g Σ (g - 3/4)² = 1.5
    corrected = prediction_powered(Y, F, G, power=1.0, ends=None)
    variance = 1.5 / 8 / 8 + 6 / 4 * 2 / 36
    half = stats.t.ppf(0.975, 5) * math.sqrt(variance)
    assert corrected[:3] == pytest.approx((0.75, 0.75 - half, 0.75 + half))
    assert (corrected.labels, corrected.cases, corrected.power) == (6, 14, 1.0)
    bounded = prediction_powered(Y, F, G, power=1.0)
    assert bounded.value == 0.75 and 0 < bounded.low < bounded.high < 1


def test_power_0_is_the_mean_of_the_labels():
    corrected = prediction_powered(Y, F, G, power=0.0, ends=None)
    assert corrected.value == pytest.approx(2 / 3) and corrected.floor == 0
    assert corrected == prediction_powered(Y, 1 - F, 7 * G, power=0.0, ends=None)


def test_the_tuned_power_is_that_of_example_6_1():
    # Cov(y, f) = (Σ yf - Σy Σf / 6) / 5 = (3 - 16/6) / 5; Var(f, g) over 14 with 10 ones: 10 · 4 / 14 / 13
    power = (3 - 16 / 6) / 5 / ((1 + 6 / 8) * (10 * 4 / 14 / 13))
    corrected = prediction_powered(Y, F, G)
    assert corrected.power == pytest.approx(power)
    assert corrected.value == pytest.approx(power * 0.75 + 2 / 3 - power * 2 / 3)
    assert prediction_powered(Y, 1 - F, 1 - G).power == 0  # a judge that is worse than chance is not used
    assert prediction_powered(Y, np.ones(6), np.ones(8)).power == 0


@pytest.mark.parametrize(
    ("power", "authors"), [(None, (-0.01149889, -0.07003031, 0.04703252)), (1.0, (0.00644099, -0.0712806, 0.08416257))]
)
def test_values_of_the_authors_package(power, authors):
    """`ppi_mean_ci(alpha=0.05)` of ppi_py 0.2.3, where variances divide by n and the quantile is the normal one."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    f, g = y + rng.normal(size=400) * 0.7 + 0.4, rng.normal(size=5000) * 1.3 + 0.4
    corrected = prediction_powered(y, f, g, ends=None, power=power)
    assert corrected[:3] == pytest.approx(authors, abs=5e-4)


def test_cases_of_one_prompt_count_as_one():
    alone = prediction_powered(Y, F, G, ends=None, power=1.0)
    prompts = [f"p{index}" for index in range(14)]
    same = prediction_powered(Y, F, G, ends=None, power=1.0, clusters=(prompts[:6], prompts[6:]))
    assert same == pytest.approx(alone)
    twice = [np.repeat(column, 2) for column in (Y, F, G)]
    doubled = prediction_powered(
        *twice, ends=None, power=1.0, clusters=(np.repeat(prompts[:6], 2).tolist(), np.repeat(prompts[6:], 2).tolist())
    )
    assert doubled[:3] == pytest.approx(alone[:3])


def test_a_judge_that_never_erred_on_the_labels_is_not_held_to_be_perfect():
    y = np.array([1.0, 0] * 15)
    corrected = prediction_powered(y, y, np.array([1.0, 0] * 10_000))
    assert corrected.width > 2 / 30  # an error rate of 3 in 30 is not seen in 30 labels with probability 0.04


def test_few_labels_or_no_other_cases():
    nothing = prediction_powered(Y[:2], F[:2], G)
    assert math.isnan(nothing.value) and nothing[1:3] == (0.0, 1.0) and nothing.labels_for(0.1) is None
    assert prediction_powered(Y, F, G[:0]).value == pytest.approx(Y.mean())
    assert prediction_powered(Y, F, G[:0])[:3] == prediction_powered(Y, F, G, power=0.0)[:3]


def test_as_many_labels_as_announced_give_the_width():
    rng = np.random.default_rng(3)
    few = prediction_powered(*simulate(rng, 100, 3900, 0.6, 0.9, 0.8))
    needed = few.labels_for(0.08)
    assert needed is not None and 100 < needed < 1000
    many = prediction_powered(*simulate(rng, needed, 4000 - needed, 0.6, 0.9, 0.8))
    assert many.width == pytest.approx(0.08, rel=0.15)
    assert few.labels_for(0.02) is None  # even labels of all 4,000 give 0.03


# ---- Rogan-Gladen ----


def test_labels_that_all_agree_need_more_for_a_narrower_interval():
    agreed = prediction_powered(np.ones(20), np.ones(20), np.ones(400))
    assert agreed.value == 1 and agreed.width > 0.1
    assert agreed.labels_for(agreed.width) == 0 and 20 < agreed.labels_for(0.1) < 100


def test_rogan_gladen_by_hand():
    # q = 0.6, se = 0.9, sp = 0.8: (0.6 + 0.8 - 1) / 0.7
    corrected = rogan_gladen(Rate(600, 1000), Rate(90, 100), Rate(80, 100))
    assert corrected.value == pytest.approx(4 / 7)
    # Lang & Reiczigel with z = 1.96: q' = 601.92 / 1003.84, se' = 91 / 102, sp' = 81 / 102, p' = 0.57373
    assert corrected[1:3] == pytest.approx((0.48982, 0.65545), abs=1e-5)
    perfect = rogan_gladen(Rate(600, 1000), Rate(10_000, 10_000), Rate(10_000, 10_000))
    assert perfect.value == pytest.approx(0.6) and perfect[1:3] == pytest.approx((0.57, 0.63), abs=1e-3)


@pytest.mark.parametrize(
    "rates",
    [
        (Rate(5, 10), Rate(5, 10), Rate(5, 10)),  # J = 0
        (Rate(5, 10), Rate(2, 10), Rate(3, 10)),  # worse than chance
        (Rate(5, 10), Rate(0, 0), Rate(9, 10)),  # no positive label
        (Rate(0, 0), Rate(9, 10), Rate(9, 10)),  # no case without a label
        (Rate(5, 10), Rate(1, 1), Rate(1, 50)),  # J = 0.02 and J' = 2/3 + 2/52 - 1 < 0
        (Rate(2, 1000), Rate(90, 100), Rate(60, 100)),  # far fewer positive verdicts than false positive ones
    ],
)
def test_without_usable_error_rates_any_share_is_possible(rates):
    corrected = rogan_gladen(*rates)
    assert math.isnan(corrected.value) and corrected[1:3] == (0.0, 1.0) and corrected.labels_for(0.5) is None


def test_estimates_outside_the_range_are_clipped_and_reported():
    below, above = (rogan_gladen(Rate(hits, 100), Rate(45, 50), Rate(35, 50)) for hits in (27, 93))
    assert below.value == below.low == 0 and below.unclipped == pytest.approx(-0.03 / 0.6)
    assert above.value == above.high == 1 and above.unclipped == pytest.approx(0.63 / 0.6)
    assert below.high > 0 and above.low < 1


# ---- isotonic calibration ----


def test_calibrated_scores_are_monotone_and_predicted_from_other_folds():
    y, scores = np.array([0.0, 0, 1, 0, 1, 1] * 10), np.tile([-3.0, -2, -1, 1, 2, 3], 10)
    labelled, others = isotonic(y, scores, np.array([-9.0, -1, 1, 9]))
    assert others == pytest.approx([0, 0.5, 0.5, 1], abs=0.05)  # the two scores in the wrong order share a value
    assert (np.diff(others) >= 0).all() and len(labelled) == 60
    lone = isotonic(np.array([0.0, 0, 0, 1]), np.array([0.0, 1, 2, 3]), np.zeros(1))[0]
    assert lone[-1] == 0  # its own label is not read


# ---- coverage ----


@pytest.mark.parametrize("sizes", [(50, 1000), (200, 2000)])
def test_intervals_cover_the_truth_with_a_biased_judge(sizes):
    rng, truth = np.random.default_rng(1), 0.5
    samples = [simulate(rng, *sizes, truth, 0.9, 0.7) for _ in range(500)]  # the judge alone says 0.6
    for options in ({}, {"power": 1.0}):
        results = [prediction_powered(*sample, **options) for sample in samples]
        assert 0.93 <= np.mean([result.low <= truth <= result.high for result in results]) <= 0.98
    classical = np.mean([prediction_powered(*sample, power=0.0).width for sample in samples])
    assert np.mean([prediction_powered(*sample).width for sample in samples]) < 0.87 * classical
