"""Small worlds for `rewardlab rl` and `rewardlab judge`, and the verbs as a user runs them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from rewardlab.apps.assembly.policy_training.run import WriteSteps
from rewardlab.apps.cli import main
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.rm.data.pairs import pair_row
from rewardlab.tests.stand_ins.chat_server import ChatServer

from tests.apps.judging import longer, over_pairs, write
from tests.conftest import SMALL_RUN


def steps_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


@contextmanager
def cut_off_at(step: int, callback: type = WriteSteps, event: str = "on_log") -> Iterator[None]:
    """A training is interrupted behind a callback's event at this step; by default when `rewardlab rl` has told it."""

    def interrupted(self, args, state, control, **kwargs):
        told(self, args, state, control, **kwargs)
        if state.global_step == step:
            raise KeyboardInterrupt

    told = getattr(callback, event)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callback, event, interrupted)
        yield


@contextmanager
def cut_off_within(trainer: type, step: int) -> Iterator[None]:
    """A training is interrupted within the step that follows this one."""

    def interrupted(self, *given, **named):
        if self.state.global_step == step:
            raise KeyboardInterrupt
        return training_step(self, *given, **named)

    training_step = trainer.training_step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "training_step", interrupted)
        yield


def rollouts_of(folder: Path) -> list[dict]:
    return [row for path in sorted((folder / "rollouts").iterdir()) for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="session")
def rl_world(tmp_path_factory) -> Path:
    """A start policy, prompts, settings, and a reward model with a tokenizer and a template of its own: to be read."""
    folder = tmp_path_factory.mktemp("rl")
    words = models.tokenizer()
    policy = models.causal_lm(words, seed=3)
    models.pretrain(policy, words, garden.supervised_examples(1000, seed=0), steps=100)
    policy.save_pretrained(folder / "start")
    words.save_pretrained(folder / "start")
    write(folder / "prompts.jsonl", ({"prompt": list(prompt)} for prompt in garden.prompts(40, 0)))
    write(folder / "pairs.jsonl", map(pair_row, garden.pairs(100, 0)))
    (folder / "recipe.yaml").write_text(yaml.safe_dump(SMALL_RUN | {"max_steps": 2}))
    words = ["train", "--data", str(folder / "pairs.jsonl"), "--small_hidden", "32", "--small_vocabulary", "300"]
    words += ["--learning_rate", "1e-3", "--max_steps", "10", "--disable_tqdm", "True", "--output", str(folder / "rm")]
    assert main(words) == 0
    return folder


@pytest.fixture
def rl(rl_world, tmp_path, capsys):
    """A run of the verb: its exit code, its last line, what it said, and its folder."""

    def run(*words, config=rl_world / "recipe.yaml", output="run", data=rl_world / "prompts.jsonl"):
        folder = tmp_path / output
        given = ["--config", str(config), "--model", str(rl_world / "start"), "--output", str(folder)]
        own = [] if "--data" in words else ["--data", str(data)]
        code = main(["rl", *given, *own, *map(str, words)])
        out, err = capsys.readouterr()
        return code, json.loads(out.strip().split("\n")[-1]) if code == 0 else {}, err, folder

    return run


@pytest.fixture(scope="module")
def server():
    """Behind it every model says that the longer answer is better."""
    with ChatServer(answer=longer) as world:
        yield world


@pytest.fixture
def judge(capsys, tmp_path, server):
    """`rewardlab judge` over pairs whose longer answer is right."""
    return over_pairs(capsys, tmp_path, server)
