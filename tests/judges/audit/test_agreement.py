import gzip
import json
from itertools import combinations

import numpy as np
import pytest
from rewardlab.judges.audit.agreement import cohen_kappa, krippendorff_alpha
from rewardlab.judges.audit.confidence_intervals import estimate, mean_estimate, score_interval

NAN = np.nan


def rated(*cells: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Two raters' categories from (first, second, how many items)."""
    first, second = zip(*[(a, b) for a, b, count in cells for _ in range(count)], strict=True)
    return np.array(first, float), np.array(second, float)


def test_cohens_kappa_on_paper_without_abstentions():
    # 50 proposals, 20 yes/yes and 15 no/no: p_o = 35/50 = 0.7, p_e = (25 · 30 + 25 · 20) / 50² = 0.5
    first, second = rated((1, 1, 20), (1, 0, 5), (0, 1, 10), (0, 0, 15))
    assert cohen_kappa(first, second) == pytest.approx((0.7 - 0.5) / (1 - 0.5)) == pytest.approx(0.4)
    more = np.append(first, [1, NAN]), np.append(second, [NAN, 0])
    assert cohen_kappa(*more) == cohen_kappa(first, second)
    assert np.isnan(cohen_kappa(np.ones(5), np.ones(5)))
    assert np.isnan(cohen_kappa(np.array([NAN]), np.array([1.0])))


def test_krippendorffs_alpha_on_paper_and_cohens_kappa_of_published_annotators(shared_data):
    # Pairs (0,0), (1,1), (0,1): coincidences o_00 = o_11 = 2, o_01 = o_10 = 1, n = 6, n_0 = n_1 = 3.
    # α = 1 - (6 - 1) · 2 / (2 · 3 · 3) = 1 - 10/18
    ratings = np.array([[0, 1, 0], [0, 1, 1.0]])
    assert krippendorff_alpha(ratings) == pytest.approx(1 - 10 / 18)
    missing = np.column_stack([ratings, [1.0, NAN], [NAN, NAN]])
    assert krippendorff_alpha(missing) == krippendorff_alpha(ratings)
    assert np.isnan(krippendorff_alpha(np.array([[1.0, 1.0], [1.0, 1.0]])))
    # Krippendorff (2011), Computing Krippendorff's Alpha-Reliability, part C: four observers, twelve units
    observers = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN], [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN], [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]  # fmt: skip
    assert round(krippendorff_alpha(np.array(observers)), 3) == 0.743
    rows = json.loads(gzip.decompress((shared_data / "pandalm" / "testset-v1.json.gz").read_bytes()))
    marks = np.array([[row[f"annotator{rater}"] for row in rows] for rater in (1, 2, 3)], float)
    found = sorted(cohen_kappa(marks[a], marks[b]) for a, b in combinations(range(3), 2))
    assert np.round(found, 2).tolist() == [0.85, 0.86, 0.88]  # Wang et al. 2023, arXiv:2306.05087


def test_the_interval_of_a_mean_is_wilsons_where_all_agree_and_wide_for_one_of_many():
    # 0 of 20: the upper end is z² / (n + z²) = 3.8415 / 23.8415
    found = mean_estimate(np.zeros(20), np.arange(20))
    assert found.low == 0 and found.high == pytest.approx(3.8415 / 23.8415, abs=1e-4)
    gain = mean_estimate(np.zeros(20), np.arange(20), ends=(-1.0, 1.0))
    assert -gain.low == gain.high == found.high
    tied = mean_estimate(np.full(20, 0.5), np.arange(20))
    assert (0.5 - tied.low, tied.high - 0.5) == pytest.approx((found.high / 2, found.high / 2))
    values = np.zeros(200)
    values[0] = 1
    found = mean_estimate(values, np.arange(200))
    # n = 199 as Var divides by C - 1; p = 0.005, t = 1.97196: (0.01477 + 0.01388) / 1.01954; a bootstrap's is 1.5 %
    assert found.value == 0.005 and found.high == pytest.approx(0.0281, abs=2e-5) and found.low < 0.002
    found = mean_estimate(np.array([1.0, NAN, 0.0, NAN]), np.arange(4))
    assert (found.value, found.items) == (0.5, 2)
    nothing = mean_estimate(np.full(3, NAN), np.arange(3))
    assert not nothing.valid and nothing.items == 0 and np.isnan(nothing.low)


def test_intervals_hold_the_truth_as_often_as_they_say_with_a_prompts_rows_as_one_piece_of_evidence():
    values = np.tile([0.0, 1.0], 50)
    alone = mean_estimate(values, np.arange(100))
    doubled = mean_estimate(np.repeat(values, 9), np.repeat(np.arange(100), 9))
    naive = mean_estimate(np.repeat(values, 9), np.arange(900))
    assert doubled.high - doubled.low == pytest.approx(alone.high - alone.low, abs=1e-9)
    assert naive.high - naive.low < 0.4 * (alone.high - alone.low)
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        chance = rng.beta(2, 2, size=60)  # of each prompt; mean 1/2
        values = (rng.random((60, 3)) < chance[:, None]).astype(float).ravel()
        low, high = mean_estimate(values, np.repeat(np.arange(60), 3), samples=200)[1:3]
        held += low <= 0.5 <= high
    assert held >= 0.91 * 200  # 95 % less two standard errors of a share of 200


def test_any_figure_gets_an_interval_by_clusters_even_one_that_never_varies():
    first, second = rated((1, 1, 20), (1, 0, 5), (0, 1, 10), (0, 0, 15))
    found = estimate(lambda at: cohen_kappa(first[at], second[at]), np.arange(50), samples=400)
    # the large-sample standard error of κ here is √(p_o (1 - p_o) / (n (1 - p_e)²)) = √(0.21 / 12.5) = 0.13
    assert found.value == pytest.approx(0.4) and found.high - found.low == pytest.approx(2 * 1.96 * 0.13, rel=0.15)
    assert found == estimate(lambda at: cohen_kappa(first[at], second[at]), np.arange(50), samples=400)
    right = np.tile([0.0, 1.0], 20)
    found = estimate(lambda at: cohen_kappa(right[at], right[at]), np.arange(40), ends=(-1.0, 1.0), samples=50)
    assert found.value == 1 and found.high == 1 and found.low == pytest.approx(1 - 2 * 3.8415 / 43.8415, abs=1e-3)
    assert score_interval(np.ones(40), np.ones(40))[0] == pytest.approx(1 - 3.8415 / 43.8415, abs=1e-4)
