"""Small models of the garden as folders, and a run of `eval` with an autoregressive one in it."""

import json
from pathlib import Path

import torch
from rewardlab.apps.runs.evaluation_files import write_evaluation
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.benchmarks.scorers import open_scorer, short_names
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.types import Case
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.models.autoregressive import autoregressive
from rewardlab.rm.models.linear import linear
from rewardlab.rm.types import user_turn

NAMES = ("helpful", "harmless")
CASES = [
    Case("g1", user_turn("tell me about bees"), ("bees hive honey", "smoke stings")),
    Case("g2", user_turn("tell me about ponds"), ("ponds lilies. frogs carp. reeds", "electricity")),
]


def save_base(folder: Path, seed: int = 0) -> str:
    """An untrained language model."""
    words = tokenizer()
    causal_lm(words, seed=seed).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def save_arm(base: str, folder: Path, *, seed: int = 3, **changes) -> str:
    """An adapter on it that says something else than it, at every preference."""
    settings = AdapterSettings(**{"kind": "moslora", "objectives": NAMES, "embedding": "random"} | changes)
    model = autoregressive(base, beta=0.1, adapter=settings)
    torch.manual_seed(seed)
    for key, value in model.adapter.state().items():
        if "objectives" not in key and not key.endswith(".A"):
            value.add_(torch.randn_like(value))
    model.save(folder)
    return str(folder)


def save_linear(folder: Path) -> str:
    """Words and length."""
    linear().fit(garden.pairs(200, 0)).save(folder)
    return str(folder)


def write_eval(folder: Path, *models: str) -> Path:
    """What `rewardlab eval` writes of these models, but for the figures' settings."""
    folder.mkdir(parents=True)
    scorers = [open_scorer(model) for model in models]
    short_names(scorers)
    write_evaluation(evaluate(pairs(), CASES, scorers, samples=20), folder)
    contracts = {scorer.name: scorer.contract for scorer in scorers}
    (folder / "manifest.json").write_text(json.dumps({"contracts": contracts}))
    return folder
