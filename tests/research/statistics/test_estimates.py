import math

import numpy as np
import pytest
from rewardlab.research.statistics.estimates import t_interval


def test_the_interval_is_students():
    one = t_interval(np.array([1.0, 2.0, math.nan, 6.0]))
    half = 4.302653 * math.sqrt(7) / math.sqrt(3)  # t of 2 degrees of freedom; variance (4 + 1 + 9) / 2
    assert one == pytest.approx((3, 3 - half, 3 + half))
    assert t_interval(np.array([4.0, math.nan])) == pytest.approx((4, math.nan, math.nan), nan_ok=True)
    assert math.isnan(t_interval(np.array([math.nan])).value)
