import json

from rewardlab.research.speed.sampling import Load, measure
from rewardlab.tests.stand_ins.chat_server import ChatServer


def test_both_rates_are_of_all_completions_and_the_ratio_has_an_interval(monkeypatch):
    servers, enter = [], ChatServer.__enter__
    monkeypatch.setattr(ChatServer, "__enter__", lambda server: servers.append(server) or enter(server))
    measurements = measure(Load(latency=0.01, in_flight=3, prompts=2, n=4, rounds=2))
    rates, ratio = measurements["completions per second"], measurements["ratio"]
    assert [len(values) for values in rates.values()] == [2, 2] and ratio["pairs"] == 2
    assert ratio["low"] <= ratio["mean"] <= ratio["high"] and json.dumps(measurements)
    assert len(servers[0].requests) == 3 * 2 * 8  # rounds, runs, completions
