import math
from dataclasses import replace

import numpy as np
import pytest
from rewardlab.judges.audit.measures import (
    asked_in_both_orders,
    bounds,
    bradley_terry,
    calibration_error,
    comparison_flips,
    credit,
    doublings,
    first_credits,
    first_slot,
    first_slots,
    labels,
    logistic_slope,
    order_flips,
    overconfidence,
    shares,
    verdicts,
)
from rewardlab.judges.types import Case, Comparison, Judgment
from sklearn.linear_model import LogisticRegression

NAN = np.nan


def judged(*scores: float, orders=(), abstained="") -> Judgment:
    return Judgment("c", scores=scores, orders=orders, abstained=abstained)


SILENT = judged(abstained="no reply")


def test_credits_verdicts_labels_bounds_and_calibration_on_paper():
    assert [credit(judged(*pair), 0) for pair in ((2, 1), (1, 1), (1, 2))] == [1.0, 0.5, 0.0]
    assert np.array_equal(verdicts([judged(2, 1), judged(1, 2), judged(1, 1), SILENT]), [0, 1, 2, NAN], equal_nan=True)
    assert labels([Case("a", (), ("x", "y"), (1,)), Case("b", (), ("x", "y"), (0, 1))]).tolist() == [1, 2]
    assert shares(0.75, 0.25) == 0.75 and bradley_terry(math.log(3), 0.0) == pytest.approx(0.75)
    with pytest.raises(ValueError, match="add up to 1, got 0.9 and 0.3"):
        shares(0.9, 0.3)
    assert bounds(np.array([1.0, 0.5, NAN, NAN, 0.0])) == (0.3, 0.7)
    # Claims of 0.9 that hold in 3 of 5, 0.6 in 3 of 5: overconfidence (0.3 + 0) / 2, and so is the error
    chance = np.array([0.9, 0.9, 0.9, 0.1, 0.1, 0.6, 0.6, 0.6, 0.4, 0.4])
    assert overconfidence(chance).mean() == pytest.approx(0.15)
    assert calibration_error(chance) == pytest.approx(0.15)
    # one too bold and one too shy cancel in the mean and not in the error: 0.9 holds in 4 of 5, 0.6 in 7 of 10
    both = np.array([0.9] * 4 + [0.1] + [0.6] * 7 + [0.4] * 3)
    assert overconfidence(both).mean() == pytest.approx((5 * 0.1 - 10 * 0.1) / 15)
    assert calibration_error(both) == pytest.approx((5 * 0.1 + 10 * 0.1) / 15)
    assert overconfidence(np.array([0.5])).tolist() == [0.0] and np.isnan(calibration_error(np.array([NAN])))


def compared(*verdicts: tuple[tuple[int, int], float]) -> Judgment:
    return Judgment("c", scores=(1, 1), comparisons=tuple(Comparison(*verdict) for verdict in verdicts))


STRAIGHT, CROSSED = (0, 1), (1, 0)


def both_orders(first: float, second: float) -> Judgment:
    """Two requests that compared, and what the response shown first got in each."""
    return replace(compared((STRAIGHT, first), (CROSSED, second)), orders=(STRAIGHT, CROSSED))


def test_flips_and_first_positions_are_those_of_the_requests_of_a_judge_that_asks_in_both_orders():
    straight, crossed = STRAIGHT, CROSSED
    assert comparison_flips(compared((straight, 1.0), (crossed, 1.0))) == [1.0]
    assert comparison_flips(compared((straight, 1.0), (crossed, 0.0))) == [0.0]
    assert comparison_flips(compared((crossed, 0.5), (straight, 0.0))) == [0.5]
    assert comparison_flips(compared((straight, NAN), (crossed, 0.0))) == []
    assert comparison_flips(compared((straight, 1.0))) == []
    two_members = compared((straight, 1.0), (crossed, 1.0), (straight, 0.0), (crossed, 1.0))
    assert comparison_flips(two_members) == [1.0, 0.0] and first_credits(two_members) == [1.0, 1.0, 0.0, 1.0]
    three_responses = compared(((0, 1), 1.0), ((0, 2), 1.0), ((1, 0), 0.0), ((2, 0), 1.0))
    assert comparison_flips(three_responses) == [0.0, 1.0]
    assert first_credits(compared((straight, NAN), (crossed, 0.5))) == [0.5]
    always_a = both_orders(1.0, 1.0)  # a tie by its scores, whatever the order of the case
    fair = both_orders(1.0, 0.0)
    half = both_orders(0.5, 1.0)
    one_verdict = both_orders(1.0, NAN)
    judgments = [always_a, fair, half, one_verdict]
    assert np.array_equal(first_slot(judgments), [1.0, 0.5, 0.75, 1.0], equal_nan=True)
    assert np.array_equal(order_flips(judgments, judgments), [1.0, 0.0, 0.5, NAN], equal_nan=True)
    assert order_flips([always_a], [fair]).tolist() == [0.5], "the mean over the four requests of a pair"
    silent = judged(abstained="the verdict follows the order", orders=always_a.orders)
    abstaining = replace(always_a, scores=(), abstained=silent.abstained)
    assert order_flips([abstaining], [abstaining]).tolist() == [1.0] and np.isnan(order_flips([silent], [silent])).all()


def test_an_order_flip_and_the_first_slot_need_what_was_shown_first():
    assert asked_in_both_orders([SILENT, judged(1, 0, orders=((0, 1), (1, 0)))])
    assert not asked_in_both_orders([judged(1, 0), judged(1, 0, orders=((1, 0),)), judged(1, 0, orders=((0,), (1,)))])
    shown = [judged(2, 1), judged(2, 1, orders=((1, 0),)), judged(2, 1, orders=((0,), (1,)))]
    assert first_slot(shown).tolist() == [1.0, 0.0, 1.0]
    unknown = [judged(2, 1, orders=(STRAIGHT, CROSSED)), SILENT]
    assert np.isnan(first_slot(unknown)).all(), "one verdict made of two requests that are not kept"
    straight = [judged(2, 1), judged(2, 1), judged(2, 1), SILENT]
    crossed = [judged(1, 2), judged(2, 1), judged(1, 1), judged(1, 2)]
    assert np.array_equal(order_flips(straight, crossed), [0, 1, 0.5, NAN], equal_nan=True)
    kept = [judged(2, 1, orders=((0, 1),))], [judged(1, 2, orders=((1, 0),))]
    assert np.isnan(order_flips(*kept)).all(), "the same answer stood first both times"
    assert np.isnan(first_slots(*kept)).all(), "it may have won there by being right"
    turned = [judged(2, 1, orders=((0, 1),))], [judged(2, 1, orders=((0, 1),))]
    assert order_flips(*turned).tolist() == first_slots(*turned).tolist() == [1.0]


def test_the_slope_of_a_two_by_two_table_is_its_log_odds_ratio():
    # x = 1: 30 won, 10 lost; x = 0: 10 won, 20 lost; the slope is log(30/10) - log(10/20) = log 6
    x = np.repeat([1.0, 1.0, 0.0, 0.0], [30, 10, 10, 20])
    won = np.repeat([1.0, 0.0, 1.0, 0.0], [30, 10, 10, 20])
    assert logistic_slope(won, x, ridge=0.0) == pytest.approx(math.log(6), abs=1e-5)
    assert logistic_slope(won, x) == pytest.approx(math.log(6), abs=0.01), "the prior is weak"
    missing = np.append(won, NAN), np.append(x, 5.0)
    assert logistic_slope(*missing) == logistic_slope(won, x)
    tied = np.where(x == 0, 0.5, won)  # log 3 - log 1
    assert logistic_slope(tied, x, ridge=0.0) == pytest.approx(math.log(3), abs=1e-5)
    assert np.isnan(logistic_slope(np.ones(5), np.arange(5.0))) and np.isnan(logistic_slope(np.arange(2.0), np.ones(2)))
    assert np.isfinite(logistic_slope(np.array([0, 0, 1, 1.0]), np.array([-1, -1, 1, 1.0]))), "separated, yet finite"
    assert doublings([Case("c", (), ("", "a b c d"))], [1]).tolist() == [2.0]


@pytest.mark.parametrize("cut", [0.0, 2.5])
def test_a_slope_is_the_best_fit_where_the_feature_decides_everything(cut):
    """With 3 wins of 40, Newton's whole steps end at 3.9 instead of 10.4."""
    x = np.linspace(-3, 3, 40)
    won = (x > cut).astype(float)
    fitted = LogisticRegression(C=100, tol=1e-10, max_iter=10_000).fit(x[:, None], won)  # 1/C is the ridge of 0.01
    assert logistic_slope(won, x) == pytest.approx(fitted.coef_[0, 0], rel=1e-3)
