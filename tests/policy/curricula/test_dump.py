"""DUMP: an upper confidence bound of how much a source teaches."""

import json
import math

import pytest
from rewardlab.policy.curricula.dump import dump


def test_it_is_its_plain_loop():
    step, state = dump(window=3, temperature=0.2), {}
    told = [{"a": [1.0, 0.5], "b": [], "c": [0.1]}, {"a": [0.2, 0.3], "b": [0.9]}, {"c": [0.4] * 5}]
    everything: dict[str, list[float]] = {"a": [], "b": [], "c": []}
    for gains in told:
        for name, values in gains.items():
            everything[name] += values
        state, shares = step(json.loads(json.dumps(state)), gains)
        N = sum(map(len, everything.values()))
        bounds = {
            name: (sum(values[-3:]) / len(values[-3:]) if values else 0.0)
            + math.sqrt(2 * math.log(N + 1) / (len(values) + 1))
            for name, values in everything.items()
        }
        total = sum(math.exp(one / 0.2) for one in bounds.values())
        assert shares == pytest.approx({name: math.exp(one / 0.2) / total for name, one in bounds.items()})
    assert state["c"] == {"recent": [0.4] * 3, "seen": 6}


def test_a_source_that_was_never_tried_is_preferred():
    _, shares = dump(window=10)({}, {"seen": [0.5] * 50, "new": []})
    assert shares["new"] > 0.99


def test_between_sources_tried_as_often_the_one_that_teaches_more_wins():
    _, shares = dump(window=10)({}, {"hard": [0.5] * 50, "easy": [0.1] * 50})
    assert shares["hard"] == pytest.approx(1 / (1 + math.exp(-4)))  # (0.5 - 0.1) / 0.1


def test_settings_out_of_range_are_refused():
    for settings in ({"window": 0}, {"window": 1, "temperature": 0.0}):
        with pytest.raises(ValueError, match="window is 1 or more and temperature is above 0"):
            dump(**settings)
