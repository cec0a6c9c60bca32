"""Recipes of small models, and runs of `rewardlab train` by them."""

import json
from pathlib import Path

import pytest
import yaml
from rewardlab.apps.cli import main

from tests.apps.conftest import write

SMALL = {"small_hidden": 32, "small_layers": 1, "small_vocabulary": 300, "per_device_train_batch_size": 8}
SMALL |= {"max_steps": 24, "save_steps": 8, "eval_steps": 8, "learning_rate": 1e-2, "max_length": 64}
SMALL |= {"golden": 4, "disable_tqdm": True, "use_cpu": True}


def write_recipe(folder: Path, taught, held, **settings) -> Path:
    """Write rows to train on and to evaluate with, and the recipe that names them."""
    files = {"data": [write(folder / "train.jsonl", taught)], "eval_data": [write(folder / "eval.jsonl", held)]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(SMALL | settings | files))
    return folder / "recipe.yaml"


@pytest.fixture
def train(recipe, tmp_path, capsys):
    """A run of the verb by the module's recipe: exit code, last line, what it said, folder."""

    def run(*words, output="rm"):
        code = main(["train", "--config", str(recipe), "--output", str(tmp_path / output), *map(str, words)])
        out, err = capsys.readouterr()
        return code, json.loads(out.strip().split("\n")[-1]) if code == 0 else {}, err, tmp_path / output

    return run
