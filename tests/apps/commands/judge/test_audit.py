"""`rewardlab judge --audit`: for what a judge may be trusted, and whom it prefers."""

import json
import math

import pytest
import yaml
from rewardlab.tests.stand_ins.chat_server import ChatServer

from tests.apps.judging import lengths, longer, shown, write


def test_an_audit_says_for_what_a_judge_may_be_trusted(judge):
    """Longer answers are right here, and a judge of length falls for empty words."""
    code, facts, err, folder = judge("--audit", "--limit", 3)
    assert code == 0, err
    assert facts["trusted_for"]["qwen pairwise"]["rewarding a policy"] != "yes"
    found = json.loads((folder / "audit.json").read_text())["qwen pairwise"]
    assert found["figures"]["length slope"] == {"value": None, "low": None, "high": None, "items": 3}
    assert found["figures"]["accuracy"]["value"] == 1.0 and found["attacks"]["verbosity"]["after"]["value"] > 0.5
    assert "May be trusted for rewarding a policy" in (folder / "audit.md").read_text()
    notes = json.loads((folder / "manifest.json").read_text())["notes"]
    assert notes == ["Not the whole benchmark: 3 of 8 cases were sampled with seed 0."]
    code, told, _, _ = judge("--audit", "--limit", 3, "--dry_run", output="dry")
    assert code == 0 and told["models"]["qwen"]["calls"] == facts["models"]["qwen"]["calls"]


def vain(asked) -> str:
    """Prefers what gpt signs, else the longer answer."""
    a, b = ("Written by gpt." in (shown(asked, name) or "") for name in ("answer_a", "answer_b"))
    return longer(asked) if a == b else json.dumps({"winner": "A" if a else "B"})


def test_self_preference_is_measured_where_the_models_are_named(judge, tmp_path):
    """It always prefers what its own name stands under."""
    rows = [row | {"chosen_model": "gpt", "rejected_model": "llama"} for row in lengths(2)]
    with ChatServer(answer=vain) as world:
        told = {"at": world, "model": ["org/judge"], "data": write(tmp_path / "signed.jsonl", rows)}
        code, _, err, folder = judge("--audit", "--names", "org/judge=gpt", **told)
    assert code == 0, err
    found = json.loads((folder / "audit.json").read_text())["judge pairwise"]
    assert found["names"] == {"own": "gpt", "other": "llama"} and found["figures"]["self-preference"]["value"] == 1.0
    assert "authorship slope" in found["figures"]
    assert "Its own name is `gpt`, the other `llama`." in (folder / "audit.md").read_text()


def test_calibration_is_measured_where_scores_claim_a_chance(judge, server):
    """One vote for the right answer claims certainty, and is right; a letter more is worth e points against 1."""
    code, _, err, folder = judge("--audit", "--limit", 3, "--chance", "shares")
    assert code == 0, err
    assert json.loads((folder / "audit.json").read_text())["qwen pairwise"]["figures"]["overconfidence"]["value"] == 0.0
    points = ["--audit", "--limit", 3, "--kind", "pointwise", "--chance"]
    before = server.asked.total()
    code, _, err, _ = judge(*points, "shares", output="points")
    assert code == 2 and "--chance shares: the scores of qwen pointwise do not sum to 1" in err
    assert server.asked.total() == before
    code, _, err, folder = judge(*points, "bradley_terry", output="odds")
    found = json.loads((folder / "audit.json").read_text())["qwen pointwise"]["figures"]["overconfidence"]
    assert code == 0 and found["value"] == pytest.approx(1 / (1 + math.exp(-3)) - 1), err


def test_scores_that_are_no_shares_are_refused_after_the_first_probe_and_another_chance_asks_nothing_twice(judge):
    with ChatServer(answer=longer) as world:
        words = ["--audit", "--limit", 2, "--kind", "pointwise", "pairwise", "--together", "consistent", "--chance"]
        code, _, err, folder = judge(*words, "shares", at=world)
        assert code == 2 and "--chance shares: the shares of a pair must be in [0, 1] and add up to 1, got" in err
        assert world.asked.total() == 2 * (2 + 2) and not folder.exists(), "the pairs as given, and no attack"
        code, _, err, folder = judge(*words, "bradley_terry", "--bootstrap_samples", 30, "--resume", at=world)
        total = world.asked.total()
        assert code == 0 and judge(*words, "bradley_terry", at=world, output="whole")[0] == 0, err
        assert world.asked.total() == 2 * total, "together both calls asked what one call asks"
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    assert (settings["chance"], settings["bootstrap_samples"], settings["score"]) == ("bradley_terry", 30, "gated")
