"""`rewardlab train` as a user runs it: cut off, resumed, with the same weights in the end."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from rewardlab.apps.cli import main
from rewardlab.rm.training.trainer import RewardTrainer
from safetensors.numpy import load_file

from tests.apps.conftest import cut_off_within, write

SETTINGS = {"small_hidden": 32, "small_vocabulary": 300, "per_device_train_batch_size": 4, "max_steps": 24}
SETTINGS |= {"save_steps": 4, "eval_steps": 4, "logging_steps": 4, "learning_rate": 1e-3, "max_length": 64}
SETTINGS |= {"golden": 4, "disable_tqdm": True}


def pairs(number: int, seed: int) -> Iterator[dict[str, str]]:
    random = np.random.default_rng(seed)
    for place in range(number):
        base = " ".join(random.choice(["moss", "fern", "oak", "birch", "heron", "newt"], int(random.integers(2, 12))))
        yield {"id": str(place), "prompt": "Name plants", "chosen": f"{base} oak", "rejected": f"{base} newt"}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    files = {"data": [write(folder / "train.jsonl", pairs(60, 0))]}
    files |= {"eval_data": [write(folder / "eval.jsonl", pairs(20, 1))]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(SETTINGS | files))
    return folder / "recipe.yaml"


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def test_a_run_that_was_cut_off_and_is_resumed_ends_with_the_same_weights(recipe, tmp_path, capsys):
    """Kills of the process, also within a checkpoint, are among the injections of tests/faults."""
    whole = tmp_path / "whole"
    assert main(["train", "--config", str(recipe), "--output", str(whole)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out.strip().split("\n")[-1])["pairs"] == 60
    assert "no --model: built a small qwen3 from scratch" in err
    words = ["train", "--config", str(recipe), "--output", str(tmp_path / "rm")]
    with cut_off_within(RewardTrainer, 18):
        assert main(words) == 130 and not (tmp_path / "rm").exists()
    assert main([*words, "--resume"]) == 0 and "resuming from checkpoint-16" in capsys.readouterr().err
    expected, found = weights(whole), weights(tmp_path / "rm")
    assert expected.keys() == found.keys()
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_what_was_cut_off_is_continued_under_its_own_settings_only_and_never_touched_unasked(recipe, tmp_path, capsys):
    work = tmp_path / "rm.partial"
    work.mkdir()
    words = ["train", "--config", str(recipe), "--output", str(tmp_path / "rm")]
    assert main(words) == 2
    assert "continue it with --resume, or start over with --overwrite" in capsys.readouterr().err
    (work / "config.yaml").write_text(yaml.safe_dump({"learning_rate": 0.5}))
    assert main([*words, "--resume"]) == 2 and "was started with" in capsys.readouterr().err


def test_the_checkpoint_of_the_lowest_evaluation_loss_is_kept(recipe, tmp_path):
    """Evaluated on turned labels the loss rises from the first step, so the first checkpoint is the best."""
    turned = write(tmp_path / "turned.jsonl", (row | {"wins": {"overall": 0.0}} for row in pairs(20, 1)))
    output, flags = tmp_path / "rm", ["--eval_data", turned, "--learning_rate", "5e-3"]
    assert main(["train", "--config", str(recipe), "--output", str(output), *flags]) == 0
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["eval_loss"] for line in lines if "eval_loss" in line}
    assert len(losses) == sum("eval_loss" in line for line in lines), "a step is evaluated once in the curve"
    first, *_, last = losses.values()
    assert last > first == min(losses.values())
    assert json.loads((output / "manifest.json").read_text())["eval_loss"] == pytest.approx(first, abs=1e-6)


def test_overwrite_leaves_alone_what_is_not_a_run(recipe, tmp_path, capsys):
    data = yaml.safe_load(recipe.read_text())["data"][0]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    words = ["train", "--kind", "linear", "--data", data, "--output", str(tmp_path / "thesis"), "--overwrite"]
    assert main(words) == 2
    assert "is not a run of rewardlab" in capsys.readouterr().err and (tmp_path / "thesis" / "chapter.txt").exists()


def test_gradients_in_parts_or_without_padding_are_those_of_the_whole_batch(recipe, tmp_path):
    """After one step, as further ones make more of rounding; Adam's epsilon keeps a gradient of rounding that small."""
    ways = {
        "whole": [],
        "parts": ["--gradient_accumulation_steps", "4", "--per_device_train_batch_size", "1"],
        "packed": ["--padding_free", "True", "--attn_implementation", "sdpa"],
    }
    for name, flags in ways.items():
        given = ["--config", str(recipe), "--max_steps", "1", "--adam_epsilon", "1e-4", *flags]
        assert main(["train", *given, "--output", str(tmp_path / name)]) == 0
    expected, whole = weights(tmp_path / "whole"), json.loads((tmp_path / "whole" / "manifest.json").read_text())
    for name in ("parts", "packed"):
        found, parts = weights(tmp_path / name), json.loads((tmp_path / name / "manifest.json").read_text())
        assert all(np.allclose(expected[key], found[key], rtol=0, atol=1e-6) for key in expected), name
        assert parts["contract"] == whole["contract"], name
        assert parts["eval_loss"] == pytest.approx(whole["eval_loss"], abs=1e-6), name
        flags = ways[name]
        assert [str(parts["arguments"][flag.removeprefix("--")]) for flag in flags[::2]] == flags[1::2]
