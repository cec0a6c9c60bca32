import numpy as np
import pytest
from rewardlab.research.statistics.routing import (
    area_above_line,
    cascade_share,
    cost_curve,
    pre_route_share,
    routing_area,
)

CHEAP, STRONG = np.array([1.0, 0.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0, 0.0])  # gains 0, 1, 0, -1


def test_a_curve_by_hand():
    curve = cost_curve(CHEAP, STRONG, np.array([0.3, 0.9, 0.1, 0.2]))
    assert curve.cost.tolist() == [0, 0.25, 0.5, 0.75, 1] and curve.accuracy.tolist() == [0.5, 0.75, 0.75, 0.5, 0.5]
    assert curve.at(0.125) == 0.625 and curve.at(1.0) == 0.5
    twice = cost_curve(CHEAP, STRONG, np.array([0.3, 0.9, 0.1, 0.2]), counts=np.array([[1, 1, 1, 1], [1, 0, 0, 1]]))
    assert twice.at(0.25).tolist() == [0.75, 0.5 * 1 + 0.5]
    # trapezoids of (0.625 + 0.75 + 0.625 + 0.5) / 4 = 0.625, less the line's 0.5
    assert area_above_line(curve) == pytest.approx(0.125)


def test_the_normalised_area_by_hand():
    # the oracle: 0.5, 0.75, 0.75, 0.75, 0.5: (0.625 + 0.75 + 0.75 + 0.625) / 4 - 0.5 = 0.1875
    assert routing_area(CHEAP, STRONG, np.array([0.3, 0.9, 0.1, 0.2])) == pytest.approx(0.125 / 0.1875)
    gains = STRONG - CHEAP
    assert routing_area(CHEAP, STRONG, gains) == 1 and routing_area(CHEAP, STRONG, -gains) == -1
    assert routing_area(CHEAP, STRONG, np.zeros(4)) == 0
    assert np.isnan(routing_area(CHEAP, CHEAP, np.arange(4.0)))


def test_costs_weigh_the_cases():
    cheap, strong, costs = np.zeros(3), np.array([1.0, 1.0, 0.0]), np.array([1.0, 3.0, 4.0])
    curve = cost_curve(cheap, strong, np.array([3.0, 2.0, 1.0]), costs=costs)
    assert curve.cost.tolist() == [0, 0.125, 0.5, 1]
    assert curve.accuracy.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 2 / 3])
    assert routing_area(cheap, strong, np.array([3.0, 2.0, 1.0]), costs=costs) == pytest.approx(1)
    assert routing_area(cheap, strong, np.array([2.0, 3.0, 1.0]), costs=costs) < 1


def test_shares_at_a_price_by_hand():
    assert pre_route_share(0.55, 0.1) == pytest.approx(0.5) and cascade_share(0.55, 0.1) == pytest.approx(0.45)
    assert pre_route_share(0.55, 0.1, always=0.09) == pytest.approx(0.4)
    assert [pre_route_share(0.05, 0.1), cascade_share(0.05, 0.1)] == [0, 0]
    assert [pre_route_share(2.0, 0.1), cascade_share(2.0, 0.1)] == [1, 1]
