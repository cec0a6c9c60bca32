"""The recipes of pretrained models, each in its smallest form: one YAML file and one command."""

import json
from pathlib import Path

import pytest
from rewardlab.apps.cli import main
from rewardlab.rm.kinds.embedding.model import load_embedding
from rewardlab.rm.load import load_reward_model

from tests.conftest import ROOT
from tests.pretrained.conftest import ANSWERS, PAIRS, QUESTIONS

SHORT = ["--max_steps", "1", "--per_device_train_batch_size", "2", "--golden", "2", "--disable_tqdm", "True"]
EXAMPLE = PAIRS[0].examples[0]


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    """The folder of the runs, beside pairs in a file."""
    monkeypatch.chdir(tmp_path)
    rows = [dict(zip(("prompt", "chosen", "rejected"), (text, *ANSWERS), strict=True)) for text in QUESTIONS]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "runs"


def train(recipe: str, output: str, *settings: str) -> None:
    config = str(ROOT / "apps" / "recipes" / f"{recipe}.yaml")
    assert main(["train", "--config", config, "--output", f"runs/{output}", *settings]) == 0


def test_an_ensemble_of_models_of_several_seeds(runs, minilm):
    names = ["minilm-1", "minilm-2"]
    for seed, name in enumerate(names, 1):
        train("minilm", name, "--model", minilm, "--data", "pairs.jsonl", "--seed", str(seed), *SHORT)
    train("minilm_ensemble", "ensemble", "--members", *(f"runs/{name}" for name in names))
    first, second, ensemble = (load_reward_model(str(runs / name)) for name in (*names, "ensemble"))
    assert first.rate([EXAMPLE]) != second.rate([EXAMPLE])
    assert [Path(name).name for name in ensemble.names] == names
    assert ensemble.rate([EXAMPLE]).shape == (1, 1)


def test_a_linear_head_on_frozen_features(runs, minilm, monkeypatch):
    monkeypatch.setitem(load_embedding.__kwdefaults__, "cache", runs.parent / "embeddings.sqlite")  # not the user's
    train("minilm_frozen", "frozen", "--model", minilm, "--data", "pairs.jsonl")
    chosen, rejected = load_reward_model(str(runs / "frozen")).rate(PAIRS[0].examples)[:, 0]
    assert chosen > rejected


def test_a_reward_for_each_objective(runs, minilm):
    data = ["helpful=pairs.jsonl", "harmless=pairs.jsonl"]
    train("minilm_objectives", "objectives", "--model", minilm, "--data", *data, *SHORT)
    assert load_reward_model(str(runs / "objectives")).contract.objectives == ("helpful", "harmless")


def test_adapters_of_a_gguf_file(runs, smollm2_file):
    train("smollm2", "smollm2", "--model", str(smollm2_file), "--data", "pairs.jsonl", *SHORT)
    adapter = json.loads((runs / "smollm2" / "adapter_config.json").read_text())
    assert adapter["r"] == 16 and len(adapter["target_modules"]) == 7
