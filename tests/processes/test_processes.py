"""Two processes that train together do what one does, with the same batches."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from rewardlab.apps.cli import main
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.rm.data.pairs import pair_row
from rewardlab.rm.load import load_reward_model

from tests.conftest import PATIENCE, SMALL_RUN
from tests.processes.step_states import DIFFERENCES, SaveStates, with_callback

HERE = Path(__file__).parent
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
STEPS = 8
ADAM = {"max_steps": STEPS, "adam_epsilon": 1e-4}
"""Adam divides a gradient by its size, so one that is rounding alone (a key's bias) moves as far as any other. With
this epsilon it moves by its own size."""
TRAIN = ADAM | {"logging_steps": 1, "learning_rate": 1e-3, "disable_tqdm": True, "golden": 4, "eval_steps": STEPS // 2}
RL = ADAM | {"num_generations": 8, "gradient_accumulation_steps": 1, "rollout_steps": 1, "learning_rate": 3e-4}
PAIRS = ["train", "--model", "{world}/policy", "--data", "{world}/pairs.jsonl", "--eval_data", "{world}/held.jsonl"]
PAIRS += [str(word) for name, value in TRAIN.items() for word in (f"--{name}", value)]
PROMPTS = ["rl", "--config", "{world}/recipe.yaml", "--model", "{world}/policy", "--data", "{world}/prompts.jsonl"]
UNIARM = ["--kind", "autoregressive", "--objectives", "helpful", "harmless", "--embedding", "random"]
R2M = ["--reward", "rm=r2m(model={world}/rm, learning_rate=1e-3)"]
PPO = ["--reward", "rm={world}/rm", "--advantage", "gae(gamma=1.0, lam=0.95)", "--critic", "--critic_hidden", "16"]
TRAININGS = {
    "scalar, streamed": [*PAIRS, "--stream", "True", "--stream_block", "64"],
    "uniarm": [*PAIRS, *UNIARM],
    "grpo-r2m": [*PROMPTS, *R2M],
    "ppo": [*PROMPTS, *PPO],
}
POLICIES = {"grpo-r2m": ["kl", "reward", "rm/loss"], "ppo": ["kl", "critic/explained_variance_first"]}
"""The metrics that are compared."""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    folder, words = tmp_path_factory.mktemp("processes"), models.tokenizer()
    policy = models.causal_lm(words, seed=3)
    models.pretrain(policy, words, garden.supervised_examples(500, seed=0), steps=50)
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


def together(*words: str | Path, launch: Sequence[str] = LAUNCH) -> tuple[int, str]:
    """A program in two processes: its exit code, and what it said."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(
        [*launch, *map(str, words)], capture_output=True, text=True, env=environment, timeout=PATIENCE
    )
    return done.returncode, done.stdout + done.stderr


def logged(file: Path, name: str) -> np.ndarray:
    rows = map(json.loads, file.read_text().splitlines())
    return np.array([row[name] for row in rows if name in row and "train_runtime" not in row])


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory) -> tuple[dict[str, Path], str]:
    """Each training in one process and then in two, which take over the state that the one had before each step."""
    folders, runs = {name: tmp_path_factory.mktemp(name) for name in TRAININGS}, []
    for name, folder in folders.items():
        given, batch = [word.format(world=world) for word in TRAININGS[name]], 24 if name in POLICIES else 16
        with with_callback(SaveStates, folder / "states"):
            words = [*given, "--per_device_train_batch_size", str(batch), "--output", f"{folder}/one"]
            assert main(words) == 0
        words = [*given, "--per_device_train_batch_size", str(batch // 2), "--output", f"{folder}/two"]
        part = {"run": folder / "one", "states": folder / "states", "own": folder / "own"}
        runs.append({"words": [*words, "--processes", "2"]} | {key: str(path) for key, path in part.items()})
    file = world / "runs.json"
    file.write_text(json.dumps(runs))
    code, output = together(HERE / "from_states.py", file)
    assert code == 0, output[-3000:]
    return folders, output


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_each_step_is_the_same_in_two_processes_that_start_it_from_the_same_state(trained, name):
    """Beside one another a whole run would tell of the instruction set: steps make more of what was rounding."""
    folder = trained[0][name]
    for rank in (0, 1):
        steps = json.loads((folder / "own" / f"rank-{rank}" / DIFFERENCES).read_text())
        worst = {part: max(step[part] for step in steps) for part in ("weights", "gradients")}
        print(f"{name}, process {rank}: largest differences {worst}")
        assert len(steps) == STEPS and worst["weights"] < 1e-5 and worst["gradients"] < 1e-4, steps
    same_logs(folder, "steps.jsonl" if name in POLICIES else "metrics.jsonl", "loss", STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TRAININGS if name not in POLICIES])
def test_a_reward_model_learns_the_same_from_the_same_global_batch(trained, name):
    (folders, output), one, two = trained, *(trained[0][name] / part for part in ("one", "two"))
    lines = [json.loads(line) for line in output.split("\n") if line.startswith('{"model"') and str(two) in line]
    assert sorted(line.get("rank", 0) for line in lines) == [0, 1] and {line["processes"] for line in lines} == {2}
    for metric in ("eval_loss", "eval_accuracy"):
        same_logs(folders[name], "metrics.jsonl", metric, 2)
    rewards = [load_reward_model(str(folder)).rate(examples()) for folder in (one, two)]
    np.testing.assert_allclose(*rewards, rtol=1e-4, atol=1e-5)
    assert {path.name for path in one.iterdir()} == {path.name for path in two.iterdir()}


def examples():
    return [example for pair in garden.pairs(10, 1, "test") for example in pair.examples]


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_learns_the_same_from_replayed_rollouts_whose_groups_span_processes(trained, name):
    """24 completions, 8 to a prompt: the second group is shared by the two processes."""
    folder = trained[0][name]
    for metric in POLICIES[name]:
        assert np.ptp(same_logs(folder, "steps.jsonl", metric, STEPS)) > 0
    tables = [sorted(path.name for path in (folder / part / "rollouts").iterdir()) for part in ("one", "two")]
    assert tables[0] == tables[1] and len(tables[0]) == STEPS, "one process writes the completions of all"


def same_logs(folder: Path, file: str, metric: str, number: int) -> np.ndarray:
    """Check that both runs logged the same numbers, and return those of the one process."""
    found = [logged(folder / part / file, metric) for part in ("one", "two")]
    assert len(found[0]) == number
    print(f"{metric}: largest difference {np.abs(np.subtract(*found)).max():.1e}")
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)
    return found[0]


@pytest.mark.slow
def test_ranks_with_other_lengths_or_without_any_reward_do_what_one_process_does(world, tmp_path):
    """Step rewards of 0.7 and 0.2 are 0 and -0.3 after `clip` at 0.5, and 0.3 and -0.3 after `delta`."""
    program = HERE / "uneven_ranks.py"
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    subprocess.run([sys.executable, program, world / "policy", one], check=True, capture_output=True, timeout=PATIENCE)
    code, said = together(program, world / "policy", two)
    assert code == 0, said[-3000:]
    alone, shared = (json.loads(path.read_text()) for path in (one, two))
    for row in shared["earned"]:
        assert [value for value in row if value] == pytest.approx([0.3, -0.3])
    assert shared["missing"] == [False] * 4 + [True] * 4, "the second process has no reward"
    assert np.ptp(shared["critic"]) > 0.01
    for name, values in alone.items():
        np.testing.assert_allclose(shared[name], values, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_every_loss_is_the_same_on_a_model_that_fsdp2_has_split(tmp_path):
    """There too, an ensemble may have no value at all in one process."""
    code, said = together(HERE / "sharded_losses.py", tmp_path)
    assert code == 0, said[-3000:]


def test_accelerate_understands_the_settings_that_ship():
    for name in ["ddp", "fsdp2", "zero3"]:
        config = load_config_from_file(str(HERE.parents[1] / "apps" / "recipes" / "processes" / f"{name}.yaml"))
        assert config.num_processes == 8 and not config.use_cpu
        if name == "fsdp2":
            assert config.fsdp_config["fsdp_version"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("launch", [LAUNCH, ACCELERATE], ids=["torchrun", "accelerate"])
def test_rows_are_scored_in_shares(world, tmp_path, launch):
    given = ["score", "--model", f"{world}/rm", "--data", f"{world}/held.jsonl", "--output"]
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    assert main([*given, str(one)]) == 0
    code, said = together("-m", "rewardlab", *given, two, launch=launch)
    assert code == 0, said[-3000:]
    found = [[json.loads(line) for line in path.read_text().splitlines()] for path in (one, two)]
    assert [row["id"] for row in found[0]] == [row["id"] for row in found[1]] and len(found[0]) == 128
    np.testing.assert_allclose(*([row["reward"] for row in rows] for rows in found), rtol=1e-6)


def test_what_sees_all_answers_in_one_process_is_refused_in_several(tmp_path, capsys):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "say"}\n')
    words = ["rl", "--model", f"{tmp_path}", "--data", f"{tmp_path}/prompts.jsonl", "--reward", f"rm={tmp_path}"]
    words += ["--output", f"{tmp_path}/run", "--processes", "2", "--use_cpu", "True"]
    assert main([*words, "--replay", "pipo", "--num_iterations", "2"]) == 2
    assert "--replay needs all completions of a step in one process" in capsys.readouterr().err
    assert main(words) == 2
    assert "the launcher started 1; use torchrun --nproc_per_node 2 -m rewardlab rl" in capsys.readouterr().err
    assert not (tmp_path / "run.partial").exists()
