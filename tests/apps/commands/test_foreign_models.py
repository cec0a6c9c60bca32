"""Verbs on a classifier of other software: the setting of the output that is the reward, and of BOS and EOS."""

import json
from pathlib import Path

import numpy as np
import pytest
import rewardlab as rl_api
import torch
from rewardlab.apps.cli import main
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.contract.scoring_contract import load_contract
from transformers import AutoModelForSequenceClassification

PAIRS = [{"prompt": f"roba {n}", "chosen": "misu " * n, "rejected": "suli " * n} for n in range(1, 7)]


@pytest.fixture(scope="module")
def sentiment(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("foreign") / "sentiment"
    words = small_tokenizer(["roba kano misu suli teke 123456"] * 40, 300)
    words.truncation_side = words.init_kwargs["truncation_side"] = (
        "left"  # as the contract cuts, for a comparison with plain Transformers
    )
    config = small_config(words)
    config.id2label, config.label2id = {0: "NEGATIVE", 1: "POSITIVE"}, {"NEGATIVE": 0, "POSITIVE": 1}
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def merged(sentiment, tmp_path_factory) -> str:
    """The positive class as a reward model with a contract."""
    folder = tmp_path_factory.mktemp("merged") / "positive"
    assert main(["merge", sentiment, "--objective", "POSITIVE", "--eos", "once", "--output", str(folder)]) == 0
    return str(folder)


def rewards(model, **settings) -> np.ndarray:
    scores = rl_api.score(model, PAIRS, **settings)
    return scores.to_pandas()["POSITIVE"].to_numpy()


def test_the_named_class_is_the_reward_of_every_verb_and_of_what_merge_writes(sentiment, merged):
    contract = load_contract(Path(merged))
    assert (contract.objectives, contract.eos) == (("POSITIVE",), "once")
    assert rewards(merged) == pytest.approx(rewards(sentiment, objective="POSITIVE", eos="once"), abs=1e-6)
    assert rl_api.load(merged).objectives == rl_api.load(sentiment, objective="POSITIVE").objectives
    evaluation = rl_api.evaluate(sentiment, PAIRS, objective="POSITIVE", samples=20, baselines="none")
    scores = rewards(sentiment, objective="POSITIVE").reshape(-1, 2)
    assert evaluation.overall["sentiment"].value == (scores[:, 0] > scores[:, 1]).mean()


def test_parity_compares_the_named_class_with_plain_transformers(sentiment, tmp_path):
    words = [sentiment, "--objective", "POSITIVE", "--eos", "template", "--fresh", "False", "--against", "checkpoint"]
    report = tmp_path / "parity.md"
    assert main(["parity", *words, "--output", str(report)]) == 0
    ways = {way["way"]: way for way in json.loads(report.with_suffix(".json").read_text())["ways"]}
    assert ways["plain Transformers"]["largest"] < 1e-5
