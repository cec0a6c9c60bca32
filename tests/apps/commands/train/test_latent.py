"""Latent reasoning reward models as a user trains them in two stages, loads, scores, merges and checks them."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from rewardlab.apps.cli import main
from rewardlab.rm.contract.golden_scores import load_reward_model
from rewardlab.rm.training.trainer import RewardTrainer
from safetensors.numpy import load_file

from tests.apps.commands.train.conftest import write_recipe
from tests.apps.conftest import cut_off_within


def rows(number: int, seed: int):
    """A list is worse if it has a newt in it."""
    random = np.random.default_rng(seed)
    for index in range(number):
        good = " ".join(random.choice(["oak", "fern", "moss", "birch"], random.integers(1, 6)))
        row = {"prompt": "Name plants", "chosen": good, "rejected": f"{good} newt"}
        if index % 3:
            row |= {"rationale_chosen": "only plants", "rationale_rejected": "a newt is no plant"}
        yield row


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("rows"), rows(90, 0), rows(30, 1), kind="latent", latent_steps=2)


def test_both_stages_and_then_the_depth_head_are_trained_and_scored(train, tmp_path, capsys):
    code, summary, told, folder = train("--latent_stage_1", "8")
    assert code == 0 and summary["pairs"] == 90, told
    assert "data: 120 of 180 completions have a rationale" in told
    assert summary["eval_accuracy"] > 0.9 and summary["eval_latent_steps"] == 2
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["rationales"] == {"completions": 180, "stated": 120, "cut": 0}
    words = ["--model", folder, "--latent_depth", "head", "--latent_price", "1", "--max_steps", "60"]
    code, summary, told, second = train(*words, output="second")
    assert code == 0 and summary["eval_latent_steps"] < 2, told
    model = load_reward_model(str(second))
    assert (model.contract.kind, model.contract.latent_steps, model.contract.latent_depth) == ("latent", 2, "head")
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "Name plants", "completion": "oak newt"}) + "\n")
    words = ["score", "--model", str(second), "--data", str(path), "--output", str(tmp_path / "scores.parquet")]
    assert main(words) == 0
    assert main(["parity", str(second), "--fresh", "False"]) == 0
    assert "without a cache" in capsys.readouterr().err
    assert np.isfinite(pq.read_table(tmp_path / "scores.parquet").column("reward").to_pylist()).all()
    assert main(["card", str(second)]) == 0
    assert "- latent steps: 0 to 2, as many as a head chooses\n" in (second / "README.md").read_text()


@pytest.fixture(scope="module")
def started(recipe) -> Path:
    """A model of one step."""
    assert main(["train", "--config", str(recipe), "--output", str(recipe.parent / "rm"), "--max_steps", "1"]) == 0
    return recipe.parent / "rm"


def test_a_lora_scores_the_same_after_it_is_merged(train, started, tmp_path, capsys):
    words = ["--model", started, "--lora", "--latent_steps", "3", "--max_steps", "8"]
    code, _, told, folder = train(*words, output="lora")
    assert code == 0 and (folder / "adapter_config.json").exists(), told
    assert main(["merge", str(folder), "--output", str(tmp_path / "merged")]) == 0
    capsys.readouterr()
    merged = load_reward_model(str(tmp_path / "merged"))
    assert merged.contract == load_reward_model(str(folder)).contract


def test_engines_that_feed_no_hidden_state_back_are_refused(started, capsys):
    for engine in ("vllm", "sglang"):
        assert main(["parity", str(started), "--fresh", "False", "--against", engine, "http://127.0.0.1:1"]) == 2
        assert f"--against {engine} feeds no hidden state back" in capsys.readouterr().err


def test_settings_that_do_not_fit_together_are_refused(train):
    for words, sentence in (
        (["--latent_depth", "free"], "--latent_depth is one of fixed, head, got 'free'"),
        (["--latent_price", "-1"], "--latent_price is >= 0, got -1"),
        (["--padding_free"], "--padding_free belongs to --kind scalar, multi_head and process, got latent"),
        (["--gradient_checkpointing"], "--gradient_checkpointing turns off the cache"),
        (["--kind", "scalar"], "--latent_steps belongs to --kind latent, got scalar"),
        (["--objectives", "a", "b"], "--kind latent learns one objective, got a, b; name one"),
    ):
        code, _, told, folder = train(*words)
        assert code == 2 and sentence in told and not folder.exists(), told


@pytest.mark.slow
def test_a_run_that_was_cut_off_and_is_resumed_ends_with_the_same_weights(train):
    flags = ("--latent_stage_1", "4", "--latent_depth", "head")
    assert train(*flags, output="whole")[0] == 0
    with cut_off_within(RewardTrainer, 18):
        assert train(*flags)[0] == 130
    code, _, told, folder = train(*flags, "--resume")
    assert code == 0 and "resuming from checkpoint-16" in told
    for file in ("model.safetensors", "latent_heads.safetensors"):
        first, second = (load_file(path / file) for path in (folder.with_name("whole"), folder))
        assert all(np.array_equal(first[name], second[name]) for name in first), file
