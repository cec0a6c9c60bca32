"""First errors and thresholds, by hand and by trying every threshold."""

import math

import numpy as np
import pytest
from rewardlab.benchmarks.statistics.first_error import best_threshold, first_error, harmonic_mean


def f1_at(scores, labels, threshold: float) -> float:
    right = {kind: [] for kind in (True, False)}
    for some, label in zip(scores, labels, strict=True):
        right[label == -1].append(first_error(some, threshold) == label)
    return float(harmonic_mean(np.mean(right[True]), np.mean(right[False])))


def test_a_score_at_the_threshold_is_no_error():
    assert first_error([0.5, 0.49], 0.5) == 1 and first_error([], 0.5) == -1


def test_the_harmonic_mean_of_nothing_is_nothing():
    assert harmonic_mean(np.array([0.0, 1.0, 0.5]), np.array([0.0, 0.0, 1.0])).tolist() == [0, 0, pytest.approx(2 / 3)]


def test_the_best_threshold_by_hand():
    # the error of the first is found in (0.2, 0.8], that of the second in (0.6, 0.9], and the third is right up to 0.7
    best = best_threshold([[0.8, 0.2], [0.9, 0.6, 0.1], [0.7, 0.95]], [1, 1, -1])
    assert best.f1 == 1.0 and best.value == pytest.approx(0.65)


def test_no_other_threshold_is_better():
    for seed in range(5):
        random = np.random.default_rng(seed)
        labels = random.integers(-1, 4, 40).tolist()
        scores = [random.random(4).round(1 if seed % 2 else 6).tolist() for _ in labels]
        best = best_threshold(scores, labels)
        assert f1_at(scores, labels, best.value) == pytest.approx(best.f1), seed
        assert best.f1 == pytest.approx(max(f1_at(scores, labels, value) for value in np.arange(-0.005, 1.1, 0.001))), (
            seed
        )


def test_without_both_kinds_there_is_no_threshold():
    assert math.isnan(best_threshold([[0.5]], [-1]).value) and math.isnan(best_threshold([[0.5]], [0]).f1)
