import numpy as np
import pytest
from rewardlab.benchmarks.statistics.pareto import non_dominated
from rewardlab.rm.errors import UsageError


def test_equal_points_do_not_dominate_each_other():
    points = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 1.0], [2.0, 0.0]])
    assert non_dominated(points).tolist() == [True, True, False, True]


def test_what_has_no_front_is_refused():
    with pytest.raises(UsageError, match="at least one"):
        non_dominated(np.empty((0, 2)))
    with pytest.raises(ValueError, match="is nan"):
        non_dominated(np.array([[1.0, np.nan]]))
