import numpy as np
from matplotlib.patches import Rectangle
from rewardlab.research.statistics.estimates import Estimate, t_interval
from rewardlab.research.statistics.forest import Effect, forest


def test_a_row_shows_its_interval_seeds_and_the_smallest_effect_on_both_sides_of_0():
    differences = np.array([0.1, 0.2, 0.3])
    single = Effect("one seed", Estimate(0.5, np.nan, np.nan), np.array([0.5]))
    drawing = forest({"gold": [Effect("rloo", t_interval(differences), differences, 0.05)], "accuracy": [single]})
    gold, accuracy = drawing.axes
    assert [label.get_text() for label in gold.get_yticklabels()] == ["rloo"]
    [band] = [patch for patch in gold.patches if isinstance(patch, Rectangle)]
    assert np.allclose([band.get_x(), band.get_x() + band.get_width()], [-0.05, 0.05])
    seeds, interval, mean, _ = (np.asarray(line.get_xdata()) for line in gold.lines)
    assert np.allclose(seeds, differences) and np.allclose(mean, 0.2)
    assert np.allclose(interval, t_interval(differences)[1:])
    assert not accuracy.patches and len(accuracy.lines) == 3  # neither band nor interval
