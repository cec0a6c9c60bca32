"""SEC: the kind of prompt that taught most of late."""

import json
import math

import pytest
from rewardlab.policy.curricula.sec import sec


def test_it_is_its_plain_loop():
    step, state = sec(rate=0.3, temperature=0.5), {}
    told = [{"a": [1.0, 0.5], "b": []}, {"a": [], "b": [0.2]}, {"b": [0.4, 0.8], "c": [2.0], "a": [0.1]}]
    held: dict[str, float] = {}
    for gains in told:
        for name, values in gains.items():
            held.setdefault(name, 0.0)
            if values:
                held[name] = 0.3 * sum(values) / len(values) + 0.7 * held[name]
        state, shares = step(json.loads(json.dumps(state)), gains)
        assert state == pytest.approx(held)
        total = sum(math.exp(q / 0.5) for q in held.values())
        assert shares == pytest.approx({name: math.exp(q / 0.5) / total for name, q in held.items()})


def test_by_hand():
    # Q = 1/2 · 1 + 1/2 · 0 and 0: e^{1/2} against 1
    state, shares = sec(rate=0.5, temperature=1.0)({}, {"a": [0.5, 1.5], "b": []})
    assert state == {"a": 0.5, "b": 0.0}
    assert shares["a"] == pytest.approx(math.exp(0.5) / (1 + math.exp(0.5)))


def test_what_taught_nothing_of_late_is_forgotten_and_a_rate_of_0_learns_nothing():
    step, state = sec(rate=0.5, temperature=0.1), {"a": 1.0, "b": 0.2}
    for _ in range(20):
        state, shares = step(state, {"a": [0.0], "b": [0.2]})
    assert shares["b"] > 0.85
    assert sec(rate=0.0, temperature=1.0)({}, {"a": [5.0], "b": [1.0]})[1] == {"a": 0.5, "b": 0.5}


def test_large_values_do_not_overflow_and_no_kind_is_no_trouble():
    assert sec(rate=1.0, temperature=1e-3)({}, {"a": [1e4], "b": [0.0]})[1] == {"a": 1.0, "b": 0.0}
    assert sec(rate=1.0, temperature=1.0)({}, {}) == ({}, {})


def test_settings_out_of_range_are_refused():
    for settings in ({"rate": 1.5, "temperature": 1.0}, {"rate": 0.5, "temperature": 0.0}):
        with pytest.raises(ValueError, match=r"rate lies in \[0, 1\] and temperature is above 0"):
            sec(**settings)
