"""`rewardlab rl --exchange`: two runs that learn from each other's answers, started, killed and resumed."""

import inspect
import os
import subprocess
import time
from pathlib import Path

import pytest
from rewardlab.benchmarks.garden import models

from tests.apps.conftest import steps_of
from tests.conftest import PATIENCE, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
FORMULAS = ["--advantage_transform", "hacpo(floor=0.05)", "--loss", "hacpo(delta=0.8)", "--aggregation"]
FORMULAS += ["completion_mean"]
METHOD = ["--reward", "even=tests.apps.commands.rl.test_agent_exchange:even", *FORMULAS]
RUN = "import sys; from rewardlab.apps.cli import main; sys.exit(main(sys.argv[1:]))"
COMPARED = ("loss", "reward", "reward_own", "watch/kl", "grad_norm", "rewards/even/mean")


def even():
    """Right where an answer has an even number of words, which about half of them have."""
    return lambda examples: [float(len(one.completion.split()) % 2 == 0) for one in examples]


def slow():
    """The same in a tenth of a second, so that a kill comes in time."""
    return lambda examples: (time.sleep(0.1), even()(examples))[1]


@pytest.fixture(scope="module")
def other(rl_world) -> Path:
    """A policy of another architecture with the same tokenizer."""
    words = models.tokenizer()
    models.causal_lm(words, "llama", seed=4).save_pretrained(rl_world / "other")
    words.save_pretrained(rl_world / "other")
    return rl_world / "other"


@pytest.mark.slow
def test_two_runs_wait_for_each_other_and_go_on(rl, other, tmp_path):
    def agent(number, *words):
        exchange = ["--exchange", tmp_path / "shared", "--agent", number, "--agents", 2, "--exchange_timeout", 0]
        model = ["--model", other] if number else []
        flags = [*exchange, *model, "--max_steps", 2, "--save_strategy", "steps", "--save_steps", 1]
        return rl(*METHOD, *flags, *words, output=f"run-{number}")

    code, _, told, _ = agent(0)
    assert code == 3 and "agent 1 has not written its completions of step 0 in 0 seconds" in told
    code, _, told, _ = agent(1)
    assert code == 3 and "agent 0 has not written its completions of step 1" in told
    for number in range(2):
        code, facts, told, folder = agent(number, "--resume")
        assert code == 0, told
        rows = steps_of(folder)
        assert len(rows) == 2 and any(row["grad_norm"] > 0 for row in rows)
        ends = facts["reward_own"]
        assert [ends["start"], ends["end"]] == [row["reward_own"] for row in rows] and ends["stderr"] > 0
        assert rows[0]["reward_own"] != rows[0]["reward"]
    assert len([*(tmp_path / "shared").iterdir()]) == 4


def test_what_does_not_go_together_is_refused_before_anything_is_loaded(rl):
    for flags, reason in (
        (["--agents", 2], "name a folder for them with --exchange"),
        (["--exchange", "shared"], "between 2 agents or more, numbered from 0; got --agent 0 --agents 1"),
        (["--exchange", "shared", "--agent", 2, "--agents", 2], "got --agent 2 --agents 2"),
        (["--exchange", "shared", "--agents", 3], "--num_generations is 4 and is shared by 3 agents"),
        (["--exchange", "shared", "--agents", 2, "--rollouts", "sage(r=1)"], "leave --rollouts out"),
        (["--exchange", "shared", "--agents", 2, "--scaffold", "ruscarl"], "leave --scaffold out"),
        (["--exchange", "shared", "--agents", 2, "--rollout_server", "http://127.0.0.1:1"], "leave --rollout_server"),
        (["--exchange", "shared", "--agents", 2, "--use_vllm", "True"], "leave --use_vllm out"),
        (["--exchange", "shared", "--agents", 2, "--curriculum", "sec"], "leave --curriculum out"),
    ):
        code, _, told, folder = rl(*METHOD, *flags)
        assert code == 2 and reason in told and not folder.exists(), flags


@pytest.fixture
def start(script, rl_world, other, tmp_path):
    """Starts two processes in one exchange folder; they end with the test."""
    started = []

    def start(name: str, *words) -> tuple[Path, list[subprocess.Popen]]:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "slow.py").write_text(f"import time\n\n{inspect.getsource(even)}\n{inspect.getsource(slow)}")
        flags = ["rl", "--config", rl_world / "recipe.yaml", "--data", rl_world / "prompts.jsonl", *FORMULAS]
        flags += ["--reward", "even=slow:slow", "--max_steps", 8, "--save_strategy", "steps", "--save_steps", 2]
        flags += ["--exchange", folder / "shared", "--agents", 2, "--exchange_timeout", 240, *words]
        paths = {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
        for number, model in enumerate((rl_world / "start", other)):
            own = ["--agent", number, "--model", model, "--output", folder / f"run-{number}"]
            with (folder / f"log-{number}").open("a") as log:
                command = script(RUN, *flags, *own)
                started.append(subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | paths))
        return folder, started[-2:]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.long
def test_two_processes_that_were_killed_go_on_as_if_nothing_had_happened(start):
    whole, processes = start("whole")
    assert [process.wait(timeout=PATIENCE) for process in processes] == [0, 0]
    cut, processes = start("cut")
    wait_until((cut / "shared" / "step-000003-agent-1.safetensors").exists, processes[1])
    for process in processes:
        process.kill()
        process.wait()
    assert not any((cut / f"run-{number}").exists() for number in range(2))
    _, processes = start("cut", "--resume")
    assert [process.wait(timeout=PATIENCE) for process in processes] == [0, 0]
    for number in range(2):
        rows, others = steps_of(whole / f"run-{number}"), steps_of(cut / f"run-{number}")
        assert len(rows) == len(others) == 8
        assert "resuming from checkpoint-2" in (cut / f"log-{number}").read_text()
        for name in COMPARED:
            assert [row[name] for row in others] == pytest.approx([row[name] for row in rows], abs=1e-5), name
    files = [sorted(path.name for path in (folder / "shared").iterdir()) for folder in (whole, cut)]
    assert files[0] == files[1] and len(files[0]) == 16
