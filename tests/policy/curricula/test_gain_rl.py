"""GAIN-RL: the window moves on where the policy succeeds."""

import json
import math

import pytest
import torch
from rewardlab.policy.curricula.gain_rl import concentration, gain_rl
from rewardlab.rm.errors import UsageError


def test_a_window_by_hand():
    """At first m = 0; a mean reward of 3/4 moves it by 2 tanh(2 / 4). Kinds are in numeric order, 2 before 10."""
    step = gain_rl(width=1.0, speed=2.0)
    state, shares = step({}, {"10": [], "0": [], "2": []})
    raw = [1, math.exp(-0.5), math.exp(-2)]
    assert [shares[kind] for kind in ("0", "2", "10")] == pytest.approx([value / sum(raw) for value in raw])
    state, shares = step(json.loads(json.dumps(state)), {"0": [1.0, 1.0, 0.0], "2": [1.0], "10": []})
    middle = 2 * math.tanh(0.5)
    assert state == {"middle": pytest.approx(middle)}
    raw = [math.exp(-((rank - middle) ** 2) / 2) for rank in range(3)]
    assert [shares[kind] for kind in ("0", "2", "10")] == pytest.approx([value / sum(raw) for value in raw])


def test_a_window_stays_among_the_kinds():
    step, state = gain_rl(width=0.5, speed=9.0), {}
    for reward, end in ((1.0, 2.0), (0.0, 0.0)):
        state, _ = step(state, {"0": [reward], "1": []})
        assert state == {"middle": end}
    with pytest.raises(ValueError, match="width must be above 0"):
        gain_rl(width=0.0, speed=1.0)


def test_a_narrow_window_has_shares_and_kinds_are_numbers():
    """The window is a kind behind the last one, where every weight exp(-(i - m)² / 2s²) is 0 in floating point."""
    step = gain_rl(width=0.01, speed=0.0)
    assert step({"middle": 2.0}, {"0": [1.0], "1": []})[1] == {"0": 0.0, "1": 1.0}
    with pytest.raises(
        UsageError, match="gain_rl: names of prompt kinds must be numbers, such as 0, 1 and 2, got math, 1"
    ):
        step({}, {"math": [], "1": []})


def test_a_concentration_by_hand():
    """States (1, 0) | (0, 1), (1, 0): within 1, 0, 1 of three pairs; before 0 and 1."""
    states = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
    assert concentration(states, 1) == pytest.approx(2 / 3 + 8 * 0.5)
    assert concentration(states, 0) == pytest.approx(4 / 6)
