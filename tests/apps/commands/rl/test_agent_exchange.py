"""`rewardlab rl --exchange`: two runs that learn from each other's answers, started, killed and resumed."""

import inspect
import os
import subprocess
import time
from pathlib import Path

import pytest
from rewardlab.benchmarks.garden import models

from tests.apps.conftest import steps_of
from tests.conftest import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
FORMULAS = [
    "--advantage_transform",
    "hacpo(floor=0.05)",
    "--loss",
    "hacpo(delta=0.8)",
    "--aggregation",
    "completion_mean",
]
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
        (
            ["--exchange", "shared", "--agents", 2, "--rollout_server", "http://127.0.0.1:1"],
            "leave --rollout_server out",
        ),
        (["--exchange", "shared", "--agents", 2, "--use_vllm", "True"], "leave --use_vllm out"),
        (["--exchange", "shared", "--agents", 2, "--curriculum", "sec"], "leave --curriculum out"),
    ):
        code, _, told, folder = rl(*METHOD, *flags)
        assert code == 2 and reason in told and not folder.exists(), flags


# ---- two processes ----


class Pair:
    """Two real processes in one exchange folder."""

    def __init__(self, script, rl_world: Path, other: Path, folder: Path):
        self.script, self.models, self.folder, self.world = script, (rl_world / "start", other), folder, rl_world
        self.processes: list[subprocess.Popen] = []
        folder.mkdir()
        (folder / "slow.py").write_text(f"import time\n\n{inspect.getsource(even)}\n{inspect.getsource(slow)}")

    def start(self, *words) -> None:
        """Train, or go on."""
        self.processes = [self._start(number, *words) for number in range(2)]

    def _start(self, number: int, *words) -> subprocess.Popen:
        flags = ["rl", "--config", self.world / "recipe.yaml", "--data", self.world / "prompts.jsonl", *FORMULAS]
        flags += ["--reward", "even=slow:slow", "--model", self.models[number], "--max_steps", 8]
        flags += ["--exchange", self.folder / "shared", "--agent", number, "--agents", 2, "--exchange_timeout", 240]
        flags += ["--save_strategy", "steps", "--save_steps", 2, "--output", self.folder / f"run-{number}", *words]
        paths = {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        with (self.folder / f"log-{number}").open("a") as log:
            return subprocess.Popen(self.script(RUN, *flags), stdout=log, stderr=log, env=os.environ | paths)

    def finish(self) -> None:
        """Both end well."""
        for number, one in enumerate(self.processes):
            assert one.wait(timeout=PATIENCE) == 0, self.said(number)[-2000:]

    def kill(self) -> None:
        """Both end now."""
        for one in self.processes:
            one.kill()
        for one in self.processes:
            one.wait()

    def said(self, number: int) -> str:
        """What a process wrote."""
        return (self.folder / f"log-{number}").read_text()

    def steps(self, number: int) -> list[dict]:
        """What the run logged."""
        return steps_of(self.folder / f"run-{number}")


@pytest.fixture
def pair(script, rl_world, other, tmp_path):
    """Makes pairs whose processes end with the test."""
    made = []

    def make(name: str) -> Pair:
        made.append(Pair(script, rl_world, other, tmp_path / name))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def until(path: Path, process: subprocess.Popen) -> None:
    """The file is there."""
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.long
def test_two_processes_that_were_killed_go_on_as_if_nothing_had_happened(pair):
    whole, cut = pair("whole"), pair("cut")
    whole.start()
    whole.finish()
    cut.start()
    until(cut.folder / "shared" / "step-000003-agent-1.safetensors", cut.processes[1])
    cut.kill()
    assert not any((cut.folder / f"run-{number}").exists() for number in range(2))
    cut.start("--resume")
    cut.finish()
    for number in range(2):
        rows, others = whole.steps(number), cut.steps(number)
        assert len(rows) == len(others) == 8 and "resuming from checkpoint-2" in cut.said(number)
        for name in COMPARED:
            assert [row[name] for row in others] == pytest.approx([row[name] for row in rows], abs=1e-5), name
    files = [sorted((one.folder / "shared").iterdir()) for one in (whole, cut)]
    assert [one.name for one in files[0]] == [one.name for one in files[1]] and len(files[0]) == 16
