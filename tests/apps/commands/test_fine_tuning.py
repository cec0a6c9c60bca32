"""`rewardlab sft` and `rewardlab dpo` as a user sees them, and the loop of sample and dpo."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rewardlab.apps.cli import main
from rewardlab.benchmarks import garden
from rewardlab.policy.training.fine_tuning import PreferenceTrainer
from rewardlab.rm.data.pairs import load_pairs, pair_row
from rewardlab.rm.kinds.implicit.model import load_implicit
from safetensors.torch import load_file

from tests.apps.commands.conftest import save_policy
from tests.apps.conftest import cut_off_within, write

SMALL = ["--use_cpu", "True", "--gradient_checkpointing", "False", "--disable_tqdm", "True", "--learning_rate", "1e-3"]
SMALL += ["--per_device_train_batch_size", "8", "--lr_scheduler_type", "constant", "--save_strategy", "no"]


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    return save_policy(tmp_path_factory.mktemp("tuning") / "base")


@pytest.fixture
def tune(base, tmp_path, capsys, monkeypatch):
    """A run of a verb: its exit code, its summary, and what it said."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "pairs.jsonl", [dict(pair_row(pair)) for pair in garden.pairs(40, 0)])
    write(tmp_path / "held.jsonl", [dict(pair_row(pair)) for pair in garden.pairs(8, 1)])

    def run(verb: str, *words: str, data: str = "pairs.jsonl", output: str = "run"):
        policy = [] if "--model" in words else ["--model", base]
        code = main([verb, *policy, "--data", data, "--output", output, *SMALL, *words])
        out, err = capsys.readouterr()
        return code, json.loads(out) if code == 0 else {}, err

    return run


def weights(folder: str) -> dict[str, torch.Tensor]:
    return load_file(Path(folder) / "model.safetensors")


def test_sft_raises_the_likelihood_of_completions(tune, base):
    code, facts, err = tune("sft", "--max_steps", "15", "--eval_data", "held.jsonl")
    assert code == 0, err
    assert (facts["conversations"], facts["steps"]) == (40, 15) and facts["eval_loss"] > 0
    losses = [
        row["loss"] for row in map(json.loads, Path("run/metrics.jsonl").read_text().splitlines()) if "loss" in row
    ]
    assert losses[-1] < losses[0] - 0.3
    manifest = json.loads(Path("run/manifest.json").read_text())
    assert manifest["data"].keys() == {"pairs.jsonl", "held.jsonl"} and manifest["eval_conversations"]["kept"] == 8
    assert len(manifest["contract"]) == 16 and manifest["arguments"]["learning_rate"] == 1e-3


def test_dpo_raises_the_implicit_reward_of_the_chosen_and_the_loop_closes(tune, base, capsys):
    Path("mine.py").write_text(
        "def words(completions):\n    return [float(len(text.split())) for text in completions]\n"
    )
    sample = ["--data", "prompts.jsonl", "--reward", "mine.py:words", "--n", "4", "--max_new_tokens", "6"]
    write(Path("prompts.jsonl"), [{"prompt": prompt[0]["content"]} for prompt in garden.prompts(8, 0)])
    policy, lengths = base, []
    for turn in range(2):
        assert main(["sample", "--base", policy, *sample, "--select", "pairs", "--output", f"s{turn}"]) == 0
        lengths.append(json.loads(capsys.readouterr().out)["pairs"]["rows"])
        code, facts, err = tune(
            "dpo", "--model", policy, "--max_steps", "6", data=f"s{turn}/pairs.jsonl", output=f"dpo{turn}"
        )
        assert code == 0, err
        policy = facts["policy"]
        assert facts["pairs"] == lengths[turn] > 0 and facts["steps"] == 6 and facts["margin"] > 0
    rewards = load_implicit("dpo0/policy", reference=base)
    pairs, _ = load_pairs("s0/pairs.jsonl")
    examples = [example for pair in pairs for example in pair.examples]
    gaps = rewards.rate(examples)[:, 0].reshape(-1, 2) @ np.array([1, -1])
    assert gaps.mean() > 0


def test_adapters_are_saved_as_such_and_another_reference_changes_the_training(tune, base):
    lora = ("--lora", "--lora_r", "4", "--lora_target_modules", "q_proj", "v_proj", "--max_steps", "2")
    code, facts, err = tune("dpo", *lora)
    assert code == 0, err
    assert (Path(facts["policy"]) / "adapter_config.json").exists()
    other = save_policy(Path("other"), seed=7)
    code, far, err = tune("dpo", "--reference", other, "--max_steps", "2", output="far")
    assert code == 0 and far["train_loss"] != pytest.approx(facts["train_loss"]), err


def test_a_training_that_was_cut_off_is_resumed_with_the_same_result(tune):
    words = ("--max_steps", "4", "--save_strategy", "steps", "--save_steps", "2")
    assert tune("dpo", *words, output="whole")[0] == 0
    with cut_off_within(PreferenceTrainer, 3):
        assert tune("dpo", *words)[0] == 130
    code, _, err = tune("dpo", *words)
    assert code == 2 and "continue it with --resume" in err
    code, facts, err = tune("dpo", *words, "--resume")
    assert code == 0 and "resuming from checkpoint-2" in err and facts["steps"] == 4
    for name, tensor in weights("run/policy").items():
        torch.testing.assert_close(tensor, weights("whole/policy")[name])
