import numpy as np
import pytest
from rewardlab.research.studies.active_choice import active_choice
from rewardlab.research.studies.active_choice.report import labels_saved, labels_saved_interval
from rewardlab.research.studies.active_choice.runs import Curves

LABELS = np.array([0.0, 10.0, 20.0])


def test_labels_saved_are_read_off_the_curves():
    random = np.array([0.0, 1.0, 4.0])
    assert labels_saved(LABELS, np.array([0.0, 4.0, 6.0]), random) == 0.5
    assert labels_saved(LABELS, np.array([0.0, 2.0, 6.0]), random) == pytest.approx(0.25)  # 4 is reached at 15
    assert labels_saved(LABELS, random, random) == 0
    assert labels_saved(LABELS, np.array([0.0, 1.0, 1.0]), random) == -0.5  # 20 labels are worth 10 at random
    curves = np.array([[0.0, 4.0, 6.0], [0.0, 2.0, 6.0]])
    value, low, high = labels_saved_interval(LABELS, curves, np.stack([random] * 2))
    assert low == pytest.approx(0.25) and high == pytest.approx(0.5) and low < value < high


def test_every_strategy_starts_from_the_same_labels_and_a_dry_run_reports(tmp_path):
    run = Curves("", 3, pool=80, start=10, batch=10, rounds=2).result(tmp_path)
    assert run["labels"].tolist() == [10, 20, 30]
    assert len({run[name][0] for name in ("spread", "margin", "diversity", "random")}) == 1
    study = active_choice(tmp_path, tmp_path / "cache", rows=80, workers=1, log=lambda _: None)
    assert "labels saved" in study.text and "## HH" not in study.text and "nan" not in study.text
