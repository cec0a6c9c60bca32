import numpy as np
from rewardlab.research.statistics.gold_peaks import gold_lost, gold_peak, peak_columns

NAN = np.nan
GRID = np.array([0.0, 5.0, 10.0])


def test_a_seeds_peak_is_where_the_others_have_theirs():
    """Alone the first seed would take its own 3; the mean of the others, [0, 0, 2], is highest at the last column."""
    gold = np.array([[0.0, 3.0, 1.0], [0.0, 0.0, 2.0], [0.0, 0.0, 2.0]])
    assert peak_columns(gold).tolist() == [2, 1, 1]  # others' means: [0, 0, 2], [0, 1.5, 1.5], [0, 1.5, 1.5]
    assert gold_peak(gold, GRID).gold.tolist() == [1.0, 0.0, 0.0]


def test_a_single_seed_takes_its_own_peak_and_has_no_interval():
    peak = gold_peak(np.array([[0.0, 3.0, 1.0]]), GRID)
    assert peak.gold.tolist() == [3.0]
    assert peak.kl.value == 5.0
    assert np.isnan([peak.kl.low, peak.kl.high]).all()


def test_the_kl_of_a_sharp_peak_has_a_short_interval_and_of_a_flat_curve_a_long_one():
    noise = np.random.default_rng(0).normal(0, 0.1, (8, 3))
    assert gold_peak(np.array([0.0, 2.0, 0.0]) + noise, GRID).kl == (5.0, 5.0, 5.0)
    flat = gold_peak(noise, GRID).kl
    assert flat.high > flat.low


def test_gold_lost_is_the_peak_minus_the_end():
    gold, last = np.array([[0.0, 3.0, 1.0], [0.0, 5.0, 4.0]]), np.array([-9.0, -9.0])
    np.testing.assert_allclose(gold_lost(gold, last, GRID, 10.0), [2.0, 1.0])
    np.testing.assert_allclose(gold_lost(gold, last, GRID, 5.0), [0.0, 0.0])


def test_a_run_that_ends_before_the_kl_counts_with_its_last_gain():
    """The second run ends between 5 and 10, where its gold is 4; its peak of 5 is at 5, as that of the first."""
    gold, last = np.array([[0.0, 3.0, 1.0], [0.0, 5.0, NAN]]), np.array([1.0, 4.0])
    np.testing.assert_allclose(gold_lost(gold, last, GRID, 10.0), [2.0, 1.0])
