"""Two processes that train together do what one does, with the same batches."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from rewardlab.apps.cli import main
from rewardlab.benchmarks.worlds import garden, models
from rewardlab.rm.checkpoint import load_reward_model
from rewardlab.rm.data import pair_row

from tests.conftest import SMALL_RUN

HERE = Path(__file__).parent
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
TRAIN = {
    "max_steps": 20,
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "disable_tqdm": True,
    "golden": 4,
    "eval_steps": 10,
}
UNIARM = ("--kind", "autoregressive", "--objectives", "helpful", "harmless", "--embedding", "random")
STREAM = ("--stream", "True", "--stream_block", "64")
RL = {
    "max_steps": 20,
    "num_generations": 8,
    "gradient_accumulation_steps": 1,
    "rollout_steps": 1,
    "learning_rate": 3e-4,
}
R2M = ("--reward", "rm=r2m(model={rm}, learning_rate=1e-3)")
PPO = ("--reward", "rm={rm}", "--advantage", "gae(gamma=1.0, lam=0.95)", "--critic", "True", "--critic_hidden", "16")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    folder, words = tmp_path_factory.mktemp("processes"), models.tokenizer()
    policy = models.causal_lm(words, seed=3)
    models.pretrain(policy, words, garden.supervised(500, seed=0), steps=50)
    policy.save_pretrained(folder / "policy")
    words.save_pretrained(folder / "policy")
    for name, rows in (
        ("pairs", map(pair_row, garden.pairs(400, 0))),
        ("held", map(pair_row, garden.pairs(64, 0, "test"))),
        ("prompts", ({"prompt": list(prompt)} for prompt in garden.prompts(40, 0))),
    ):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "recipe.yaml").write_text(yaml.safe_dump(SMALL_RUN | RL))
    words = ["train", "--data", f"{folder}/pairs.jsonl", "--small_hidden", "32", "--small_vocabulary", "300"]
    assert main([*words, "--max_steps", "10", "--disable_tqdm", "True", "--output", f"{folder}/rm"]) == 0
    return folder


def together(*words: str | Path) -> tuple[int, str]:
    """A program in two processes: its exit code, and what it said."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run([*LAUNCH, *map(str, words)], capture_output=True, text=True, env=environment, timeout=500)
    return done.returncode, done.stdout + done.stderr


def logged(file: Path, name: str) -> np.ndarray:
    rows = map(json.loads, file.read_text().splitlines())
    return np.array([row[name] for row in rows if name in row and "train_runtime" not in row])


@pytest.mark.parametrize("kind", [STREAM, UNIARM], ids=["scalar, streamed", "uniarm"])
def test_a_reward_model_learns_the_same_from_the_same_global_batch(world, tmp_path, kind):
    given = [
        "--model",
        f"{world}/policy",
        "--data",
        f"{world}/pairs.jsonl",
        "--eval_data",
        f"{world}/held.jsonl",
        *kind,
    ]
    given += [str(word) for name, value in TRAIN.items() for word in (f"--{name}", value)]
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(["train", *given, "--per_device_train_batch_size", "16", "--output", str(one)]) == 0
    words = ["-m", "rewardlab.apps.cli", "train", *given, "--per_device_train_batch_size", "8", "--processes", "2"]
    code, said = together(*words, "--output", two)
    assert code == 0, said[-3000:]
    lines = [json.loads(line) for line in said.split("\n") if line.startswith('{"model"')]
    assert sorted(line.get("rank", 0) for line in lines) == [0, 1] and {line["processes"] for line in lines} == {2}
    for name, number in (("loss", 20), ("eval_loss", 3), ("eval_accuracy", 3)):
        found = [logged(folder / "metrics.jsonl", name) for folder in (one, two)]
        assert len(found[0]) == number
        np.testing.assert_allclose(*found, rtol=0, atol=1e-4)
    rewards = [load_reward_model(str(folder)).rate(examples()) for folder in (one, two)]
    np.testing.assert_allclose(*rewards, rtol=1e-3, atol=1e-4)
    assert {path.name for path in one.iterdir()} == {path.name for path in two.iterdir()}


def examples():
    return [example for pair in garden.pairs(10, 1, "test") for example in pair.examples]


@pytest.mark.parametrize("rewards", [R2M, PPO], ids=["grpo-r2m", "ppo"])
def test_a_policy_learns_the_same_from_replayed_rollouts_whose_groups_span_processes(world, tmp_path, rewards):
    """24 answers, 8 to a prompt: the second group is shared by the two processes."""
    given = ["--config", world / "recipe.yaml", "--model", world / "policy", "--data", world / "prompts.jsonl"]
    given = [str(one) for one in given] + [one.format(rm=world / "rm") for one in rewards]
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(["rl", *given, "--per_device_train_batch_size", "24", "--output", str(one)]) == 0
    replay = [HERE / "replayed_rl.py", one / "rollouts", *given, "--per_device_train_batch_size", "12"]
    code, said = together(*replay, "--processes", "2", "--output", two)
    assert code == 0, said[-3000:]
    names = ["loss", "kl", "reward", "rm/loss"] if rewards is R2M else ["loss", "kl", "critic/explained_variance_first"]
    for name in names:
        found = [logged(folder / "steps.jsonl", name) for folder in (one, two)]
        assert len(found[0]) == 20 and np.ptp(found[0]) > 0
        np.testing.assert_allclose(*found, rtol=2e-3, atol=1e-4 if name == "loss" else 1e-3)
    assert np.abs(np.subtract(*(logged(folder / "steps.jsonl", "loss") for folder in (one, two)))).max() < 1e-4
    tables = [sorted(path.name for path in (folder / "rollouts").iterdir()) for folder in (one, two)]
    assert tables[0] == tables[1] and len(tables[0]) == 20, "one process writes the answers of all"


def test_every_loss_is_the_same_on_a_model_that_fsdp2_has_split(tmp_path):
    code, said = together(HERE / "sharded_losses.py", tmp_path)
    assert code == 0, said[-3000:]


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "zero3"])
def test_accelerate_understands_the_settings_that_ship(name):
    config = load_config_from_file(str(HERE.parents[1] / "apps" / "recipes" / "processes" / f"{name}.yaml"))
    assert config.num_processes == 8 and not config.use_cpu
    if name == "fsdp2":
        assert config.fsdp_config["fsdp_version"] == 2


def test_rows_are_scored_in_shares(world, tmp_path):
    given = ["score", "--model", f"{world}/rm", "--data", f"{world}/held.jsonl", "--output"]
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    assert main([*given, str(one)]) == 0
    code, said = together("-m", "rewardlab.apps.cli", *given, two, "--processes", "2")
    assert code == 0, said[-3000:]
    found = [[json.loads(line) for line in path.read_text().splitlines()] for path in (one, two)]
    assert [row["id"] for row in found[0]] == [row["id"] for row in found[1]] and len(found[0]) == 128
    np.testing.assert_allclose(*([row["reward"] for row in rows] for rows in found), rtol=1e-6)


def test_what_sees_all_answers_in_one_process_is_refused_in_several(world, tmp_path, capsys):
    given = ["--config", world / "recipe.yaml", "--model", world / "policy", "--data", world / "prompts.jsonl"]
    words = ["rl", *map(str, given), "--output", str(tmp_path / "run"), "--reward", f"rm={world}/rm"]
    assert main([*words, "--processes", "2", "--replay", "pipo", "--num_iterations", "2"]) == 2
    assert "--replay sees all answers of a step in one process" in capsys.readouterr().err
    assert main([*words, "--processes", "2"]) == 2
    assert "the launcher started 1; use torchrun --nproc_per_node 2 -m rewardlab.apps.cli rl" in capsys.readouterr().err
    assert not (tmp_path / "run.partial").exists()
