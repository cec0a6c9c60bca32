"""policy/curricula: SEC prefers the kind of prompt that taught most of late, DUMP adds a bound for the less tried."""

import json
import math

import pytest
from rewardlab.policy.curricula.dump import dump
from rewardlab.policy.curricula.sec import sec


def test_sec_by_hand():
    # Q = 1/2 · 1 + 1/2 · 0 and 0: e^{1/2} against 1; then 1/2 · 0.2 + 1/2 · 0.5, and 2 for a new kind
    step = sec(rate=0.5, temperature=1.0)
    state, shares = step({}, {"a": [0.5, 1.5], "b": []})
    assert state == {"a": 0.5, "b": 0.0}
    assert shares["a"] == pytest.approx(math.exp(0.5) / (1 + math.exp(0.5)))
    state, shares = step(json.loads(json.dumps(state)), {"a": [0.2], "c": [4.0]})
    assert state == pytest.approx({"a": 0.35, "b": 0.0, "c": 2.0})
    assert shares["c"] == pytest.approx(math.exp(2.0) / (math.exp(2.0) + math.exp(0.35) + 1))


def test_sec_forgets_what_taught_nothing_of_late_and_settings_out_of_range_are_refused():
    step, state = sec(rate=0.5, temperature=0.1), {"a": 1.0, "b": 0.2}
    for _ in range(20):
        state, shares = step(state, {"a": [0.0], "b": [0.2]})
    assert shares["b"] > 0.85
    assert sec(rate=0.0, temperature=1.0)({}, {"a": [5.0], "b": [1.0]})[1] == {"a": 0.5, "b": 0.5}
    assert sec(rate=1.0, temperature=1e-3)({}, {"a": [1e4], "b": [0.0]})[1] == {"a": 1.0, "b": 0.0}
    assert sec(rate=1.0, temperature=1.0)({}, {}) == ({}, {})
    for settings in ({"rate": 1.5, "temperature": 1.0}, {"rate": 0.5, "temperature": 0.0}):
        with pytest.raises(ValueError, match=r"rate must be in \[0, 1\] and temperature above 0"):
            sec(**settings)
    for settings in ({"window": 0}, {"window": 1, "temperature": 0.0}):
        with pytest.raises(ValueError, match="window must be at least 1 and temperature above 0"):
            dump(**settings)


def test_dump_is_its_plain_loop():
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
