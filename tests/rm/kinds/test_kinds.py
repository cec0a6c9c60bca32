"""What holds for every kind of reward model, and a kind that is added as one folder."""

import json
import subprocess
from dataclasses import MISSING
from inspect import signature
from pathlib import Path

import pytest
from rewardlab.rm.errors import UsageError
from rewardlab.rm.registry import kind_of, names, trained_kinds
from rewardlab.rm.registry.settings import Rule, Settings, declarations
from rewardlab.rm.training.protocol import Training

ADDED = Path(__file__).parents[2] / "stand_ins" / "kinds"


@pytest.mark.parametrize("name", names("rm.kinds"))
def test_a_kind_is_a_package_that_loads_and_trains(name):
    kind = kind_of(name)
    assert kind.name == name and next(iter(signature(kind.load).parameters)) == "source"
    if not kind.trainer:
        with pytest.raises(UsageError, match=f"kind '{name}' cannot be trained"):
            _ = kind.training
        return
    training = kind.training if isinstance(kind.training, type) else Training
    assert issubclass(training, Training) and issubclass(kind.settings, Settings)
    assert training is Training or not training.__abstractmethods__, "every step of the training is there"
    for declared in declarations(kind.settings).values():
        assert declared.metadata["help"].endswith("."), declared.name
        assert declared.default is not MISSING or declared.default_factory is not MISSING, declared.name


def test_a_setting_of_several_kinds_is_declared_once():
    shared = {}
    for kind in trained_kinds().values():
        for name, declared in declarations(kind.settings).items():
            default = declared.default, declared.default_factory
            assert shared.setdefault(name, (declared.metadata, default)) == (declared.metadata, default), name


def test_the_message_of_every_rule_names_settings_that_there_are():
    for kind in trained_kinds().values():
        settings = kind.settings()
        for rule in (rule for base in kind.settings.__mro__ for rule in vars(base).get("rules", ())):
            assert isinstance(rule, Rule) and rule.message.format_map(vars(settings))


def test_a_kind_in_one_folder_is_trained_loaded_scored_and_refused_like_the_others(script, tmp_path):
    rows = [{"prompt": "q", "chosen": "a" * size, "rejected": "a" * (size + 3)} for size in range(1, 9)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"""
import os, rewardlab.rm.kinds
rewardlab.rm.kinds.__path__.append({str(ADDED)!r})
from rewardlab.apps.cli import main
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, user_turn
os.chdir({str(tmp_path)!r})
words = ["train", "--kind", "length", "--data", "pairs.jsonl", "--output", "rm"]
assert main([*words, "--power", "-1"]) == 2 and main([*words, "--lora"]) == 2
assert main([*words, "--power", "2"]) == 0
model = load_reward_model("rm")
assert model.rate([Example(user_turn("q"), "aaa")]).tolist() == [[-9.0]]
assert main(["score", "--model", "rm", "--data", "pairs.jsonl", "--output", "scores.jsonl"]) == 0
"""
    result = subprocess.run(script(text), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--power must be above 0 and finite, got -1" in result.stderr
    assert "--lora belongs to --kind latent, multi_head, process and scalar, got length" in result.stderr
