import numpy as np
import pytest
from rewardlab.research.statistics.reward_hacking import (
    Onset,
    exploitation,
    exploitation_rate,
    internalisation_gap,
    moving_mean,
    onset,
)

NAN = np.nan


def test_exploitation_is_the_weight_of_new_credits_that_all_references_reject_and_abstentions_enter_neither_sum():
    before, now = np.array([[0, 1, 0]]), np.array([[1, 1, 1]])
    reference = np.array([[[0, 0, 0], [0, 0, 0], [1, 0, 0]]])
    # newly credited are criteria 0 (weight 3, rejected by all) and 2 (weight 1, accepted by one): 3 / 4
    assert exploitation_rate(before, now, reference, np.array([3.0, 5.0, 1.0])) == pytest.approx(0.75)
    assert exploitation_rate(before, now, reference) == pytest.approx(0.5)
    before, now, reference = np.zeros((1, 2)), np.ones((1, 2)), np.array([[[0, 0], [1, 1]]])
    assert exploitation_rate(before, now, reference, np.array([-3.0, 1.0])) == pytest.approx(0.75)
    before, now = np.array([[0.0, NAN, 0.0, 0.0]]), np.array([[1.0, 1.0, 1.0, NAN]])
    rejected, open_, accepted = [0, 0, 0], [0, 0, NAN], [NAN, 1, 0]
    assert exploitation_rate(before, now, np.array([[rejected, rejected, open_, rejected]])) == 1.0
    assert exploitation_rate(before, now, np.array([[rejected, rejected, accepted, rejected]])) == 0.5, "one accepts"
    assert np.isnan(exploitation_rate(before, now, np.array([[open_, rejected, open_, rejected]])))


def test_the_rate_over_a_run_the_gap_per_token_and_the_onset_over_the_grid():
    credited = np.array([[[0, 0]], [[1, 0]], [[1, 1]], [[1, 1]]])
    reference = np.ones((4, 1, 2, 3)) * np.array([0, 1])[None, None, :, None]
    assert np.array_equal(exploitation(credited, reference), [1.0, 0.0, NAN], equal_nan=True)
    with pytest.raises(ValueError, match=r"\(1, 2\), \(1, 2\), \(2, 2, 3\)"):
        exploitation_rate(credited[0], credited[1], np.zeros((2, 2, 3)))
    bare = np.array([[-1.0, -3.0, NAN], [-2.0, -2.0, -2.0]])
    guided = np.array([[-0.5, -1.5, NAN], [-1.0, -1.0, -1.0]])
    response = np.array([[1, 1, 0], [1, 1, 1]])
    # answer 1: (-0.5 - 1.5) / 2 = -1; answer 2: -1
    assert internalisation_gap(bare, guided, response) == pytest.approx(-1.0)
    assert internalisation_gap(bare, bare, response) == 0.0
    with pytest.raises(ValueError, match=r"every completion needs a token, got lengths \[0, 3\]"):
        internalisation_gap(bare, guided, np.array([[0, 0, 0], [1, 1, 1]]))
    # A ramp of 0.01 a step is its own centred mean: G first reaches 0.08, 0.10, 0.12 at 8, 10, 12
    gap, share = 0.01 * np.arange(60) + 1e-9, np.full(60, 0.6)
    assert onset(gap, share) == Onset(8, 8, 12, 30)
    # M = 0.02 a step reaches 0.15, 0.20, 0.25, 0.30 at 8, 10, 13, 15; the later of both: 8 once, 12 twice, 10, 13
    # and 15 thrice each
    assert onset(gap, 0.02 * np.arange(60) + 1e-9) == Onset(10, 8, 15, 30)
    assert onset(np.zeros(40), np.ones(40)) == Onset(None, None, None, None)
    slow = 0.001 * np.arange(140) + 1e-9  # γ = 0.08 at 80, 0.12 at 120
    assert onset(slow, np.ones(140)) == Onset(None, 80, 120, None)
    assert np.array_equal(moving_mean(np.array([1.0, NAN, NAN, 2.0, 3.0])), [NAN, NAN, 2.0, NAN, NAN], equal_nan=True)
