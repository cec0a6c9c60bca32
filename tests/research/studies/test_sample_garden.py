import json

import numpy as np
import pytest
from rewardlab.research.studies._runs.proxies import LEVELS, Proxy
from rewardlab.research.studies._runs.sampled import best_of_all, selection_gains
from rewardlab.research.studies.sample_garden import sample_garden
from rewardlab.research.studies.sample_garden.report import _contains
from rewardlab.research.studies.sample_garden.runs import Selection


def test_gains_are_those_of_the_best_over_the_random_completion_of_the_same_prompt():
    arrays = {
        "model": np.array([[1.0, 2.0], [5.0, 3.0], [0.0, 0.0]]),
        "gold": np.array([[10.0, 30.0], [7.0, 9.0], [0.0, 0.0]]),
        "selected": np.array([0, 1]),  # the last prompt has no usable completion
        "best": np.array([1, 0]),
        "random": np.array([0, 0]),
    }
    assert selection_gains(arrays, "gold").tolist() == [20.0, 0.0]
    # the best of two by the model over the mean: 30 - 20, 7 - 8 and a tie, 0
    assert best_of_all(arrays, "model", "gold").value == pytest.approx((10 - 1 + 0) / 3)


def test_an_interval_contains_the_truth_between_its_ends():
    gains = np.array([[0.5, 0.4, 0.6], [0.5, 0.55, 0.6], [0.5, 0.3, 0.45]])
    assert _contains(gains, 0.5).tolist() == [True, False, False]


@pytest.mark.slow
def test_a_dry_run_selects_by_every_reward_and_simulates_the_intervals(tmp_path):
    study = sample_garden(tmp_path, rows=2, workers=1, log=lambda _: None)
    parts = ("| reward model |", "| gold |", "| length |", "| reward model minus gold |", "inside, 12 prompts")
    assert not [part for part in parts if part not in study.text] and "nan" not in study.text
    assert json.dumps(study.facts)
    for name in ("model", "gold"):
        chosen = Selection(Proxy.part(0, LEVELS["70 %"], 0.02, prompts=2), name, 2, 16).result(tmp_path)
        assert chosen[name].shape == (2, 16) and chosen["selected"].tolist() == [0, 1]
        assert chosen[name][[0, 1], chosen["best"]].tolist() == chosen[name].max(1).tolist()
