"""The toy world that faults are injected into: small data, and runs that nothing disturbed to compare with."""

import json
import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rewardlab.apps.runs.run_folder import partial_folder, write_rows
from rewardlab.benchmarks import garden
from rewardlab.rm.data.pairs import pair_row
from safetensors.numpy import load_file

from tests.faults.programs import Ended, Hook, Program

GOLD = "rewardlab.benchmarks.garden:gold"
STEPS, SAVED = 12, 4
TRAIN = {
    "small_hidden": 32, "small_vocabulary": 300, "per_device_train_batch_size": 4, "max_steps": STEPS,
    "save_steps": SAVED, "logging_steps": 1, "learning_rate": 1e-3, "max_length": 64, "golden": 4, "use_cpu": True,
    "disable_tqdm": True,
}  # fmt: skip
RL = {
    "use_cpu": True, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 8,
    "learning_rate": 1e-3, "gradient_checkpointing": False, "max_steps": 6, "save_strategy": "steps", "save_steps": 2,
    "disable_tqdm": True, "reward": f"gold={GOLD}",
}  # fmt: skip


class World:
    """A folder with everything, made when it is first asked for."""

    def __init__(self, folder: Path):
        self.folder, self._logs = folder.absolute(), 0

    # ---- programs ----

    def start(self, *words: Any, hook: Hook | None = None) -> Program:
        """A verb with its settings."""
        self._logs += 1
        return Program(words, self.folder / "logs" / f"{self._logs:03d}.log", hook)

    def run(self, *words: Any, hook: Hook | None = None) -> Ended:
        """The same to its end."""
        return self.start(*words, hook=hook).end()

    def done(self, *words: Any, hook: Hook | None = None) -> Ended:
        """The same where nothing is in its way."""
        ended = self.run(*words, hook=hook)
        assert ended.code == 0, ended.said[-3000:]
        return ended

    def train(self, output: Path) -> list[Any]:
        """The words of a small reward model's training."""
        return ["train", "--data", self.pairs, "--output", output, *_flags(TRAIN)]

    def rl(self, output: Path) -> list[Any]:
        """The words of a small policy's training."""
        return ["rl", "--model", self.policy, "--data", self.prompts, "--output", output, *_flags(RL)]

    def score(self, output: Path, model: Path | None = None, data: Path | None = None) -> list[Any]:
        """The words of scoring."""
        return [
            "score",
            "--model",
            model or self.model,
            "--data",
            data or self.pairs,
            "--output",
            output,
            "--on_long",
            "truncate",
        ]

    def new(self, name: str) -> Path:
        """A place where nothing is."""
        place = self.folder / "runs" / name
        for one in (place, partial_folder(place)):
            shutil.rmtree(one, ignore_errors=True)
        place.unlink(missing_ok=True)
        place.parent.mkdir(exist_ok=True, parents=True)
        return place

    # ---- what is there ----

    @cached_property
    def pairs(self) -> Path:
        """Sixty of the toy world's pairs."""
        write_rows(self.folder / "pairs.jsonl", map(pair_row, garden.pairs(60, 0)))
        return self.folder / "pairs.jsonl"

    @cached_property
    def prompts(self) -> Path:
        """Forty of its prompts."""
        write_rows(self.folder / "prompts.jsonl", ({"prompt": list(one)} for one in garden.prompts(40, 0)))
        return self.folder / "prompts.jsonl"

    @cached_property
    def policy(self) -> Path:
        """A language model with random weights; made in a process of its own."""
        place = self.folder / "policy"

        def make() -> None:
            from rewardlab.benchmarks.garden import models

            words = models.tokenizer()
            models.causal_lm(words, seed=3).save_pretrained(place)
            words.save_pretrained(place)

        assert self.run(hook=make).code == 0, "the start policy could not be made"
        return place

    @cached_property
    def model(self) -> Path:
        """A reward model whose training nothing disturbed."""
        output = self.new("whole")
        self.done(*self.train(output))
        return output

    @cached_property
    def whole_policy(self) -> Path:
        """A policy whose training nothing disturbed."""
        output = self.new("whole-policy")
        self.done(*self.rl(output))
        return output

    def copy_of(self, source: Path, name: str) -> Path:
        """A copy to spoil."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return Path(shutil.copytree(source, self.folder / name))

    def stopped(self, name: str, rl: bool = False) -> tuple[Path, Path]:
        """A training that was killed with two checkpoints; where its result and its checkpoints stand."""
        output, last = self.new(name), (4 if rl else 2 * SAVED)
        program = self.start(*(self.rl if rl else self.train)(output), hook=slow_after(last))
        where = partial_folder(output) / "checkpoints"
        came = program.until((where / f"checkpoint-{last}" / "complete.json").exists)
        ended = program.kill()
        assert came, ended.said[-3000:]
        return output, where


# ---- what is done, and what is compared ----


def slow_after(step: int, seconds: float = 30.0) -> Hook:
    """Training rests after a step, so that what is done to it then is done there."""

    def hook() -> None:
        import time

        from rewardlab.rm.training.checkpointing import MarkComplete

        rest = MarkComplete.on_save

        def on_save(self, args, state, control, **kwargs):
            rest(self, args, state, control, **kwargs)
            time.sleep(seconds if state.global_step == step else 0)

        MarkComplete.on_save = on_save

    return hook


def same_weights(first: Path, second: Path, tolerance: float = 0.0) -> bool:
    """Whether two folders have the same tensors, to the last bit or to a tolerance."""
    one, other = ({**_weights(folder)} for folder in (first, second))
    return one.keys() == other.keys() and all(np.abs(one[name] - other[name]).max() <= tolerance for name in one)


def finite_weights(folder: Path) -> bool:
    """Whether all that stands there is."""
    found = _weights(folder)
    return bool(found) and all(np.isfinite(one).all() for one in found.values())


def _weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors") if (folder / "model.safetensors").exists() else {}


def flip(path: Path, place: float = 0.6) -> None:
    """Turn one bit over, at a share of the file's length."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 0x10
    path.write_bytes(bytes(content))


def cut(path: Path, share: float = 0.5) -> None:
    """Leave the first part of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def files(folder: Path) -> dict[str, bytes]:
    """Everything that is in a folder."""
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _flags(settings: dict[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        yield from (f"--{name}", str(value))
