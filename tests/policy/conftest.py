"""Toy models for decoding: a trained base and adapters on copies of it.

No trainer is imported here: the environment of vLLM, which runs tests of decoding, has no TRL.
"""

import copy
import importlib

import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.policy.decoding.engines import decoding_model
from rewardlab.rm.adapters.adapter import attach
from rewardlab.rm.adapters.settings import AdapterSettings

KINDS = {
    "moslora": {"kind": "moslora", "embedding": "random"},
    "pblora": {"kind": "pblora", "rank": 4, "shared_rank": 4},
    "lora": {"kind": "lora"},
}


@pytest.fixture(scope="session")
def words():
    return models.tokenizer()


@pytest.fixture(scope="session")
def qwen3(words):
    model = models.causal_lm(words, "qwen3", seed=3)
    models.pretrain(model, words, garden.supervised_examples(1000, seed=0), steps=100, learning_rate=6e-3)
    return model


@pytest.fixture(scope="session")
def base(qwen3):
    """The trained toy model, for nobody to change."""
    return qwen3


@pytest.fixture(scope="session")
def llama(words):
    return models.causal_lm(words, "llama", seed=3).eval()


@pytest.fixture(scope="session")
def make_guide(base, words):
    """An adapter of a kind with weights as training might leave them, on a copy of the base."""

    def make(
        kind="moslora", objectives=("helpful", "harmless"), *, on=None, size=0.15, seed=7, tokenizer=None, **changes
    ):
        settings = AdapterSettings(**{"objectives": objectives} | KINDS[kind] | changes)
        model = copy.deepcopy(base if on is None else on)
        adapter = attach(model, settings, words)
        torch.manual_seed(seed)
        for key, value in adapter.state().items():
            if value.dtype.is_floating_point and "objectives" not in key and not key.endswith(".A"):
                value.add_(size * torch.randn_like(value))
        return decoding_model(model, tokenizer or words, adapter)

    return make


@pytest.fixture
def make_trainer(base, words, tmp_path):
    """A trainer on a copy of the toy policy, by default GRPO on the gold reward: tests/policy/toy_training.py."""
    training = importlib.import_module("tests.policy.toy_training")

    def make(formulas=None, sources=None, *, model=None, **changes):
        formulas = formulas or training.algorithm()
        return training.trainer(model or copy.deepcopy(base), words, tmp_path, formulas, sources, **changes)

    return make
