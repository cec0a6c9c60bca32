import numpy as np
import pytest
from rewardlab.research.statistics.fronts import control_figure


def test_control_is_the_mean_over_preferences_of_equal_share():
    preferences = np.array([[0.0, 1.0], [0.5, 0.5], [0.5, 0.5], [1.0, 0.0]])
    rewards = np.array(
        [[[0.0, 3.0], [1.0, 2.0], [3.0, 2.0], [4.0, 1.0]], [[2.0, 3.0], [3.0, 2.0], [5.0, 2.0], [6.0, 1.0]]]
    )
    panel = control_figure(preferences, {"guide": rewards}, ("a", "b"), "units").axes[0]
    (line,) = panel.lines
    assert line.get_xdata() == pytest.approx([0.0, 0.5, 1.0]) and line.get_ydata() == pytest.approx([1.0, 3.0, 5.0])
    band = panel.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 0.0 and band[:, 1].max() == 6.0  # each seed's mean at a share, not single preferences
