"""Recipes of systems and their plain loops, run as commands of `rewardlab`, and the comparison of their results."""

import json
import os
import resource
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NamedTuple

import numpy as np
from transformers import AutoModelForCausalLM, PreTrainedModel

from ....benchmarks import garden
from ....benchmarks.garden.models import tokenizer
from ....rm.data.pairs import pair_row
from ....rm.errors import DataError, UsageError, did_you_mean
from ....rm.io.checked_files import from_json_lines, from_yaml
from ....rm.load import load_reward_model
from ...statistics.estimates import Estimate, t_interval
from ...worlds.guides import Base
from ...worlds.policies import gold_accuracy, sample, split_prompts, unseen_prompts
from ...worlds.verifiable_garden import verify
from .._runs.job_cache import Arrays, Job

HERE = Path(__file__).parent
MEASURES = {
    "gold": "gold reward on unseen prompts",
    "right": "share of right answers to unseen prompts",
    "accuracy": "held-out pairs ordered as gold does",
    "logged": "reward on unseen prompts, as the agents answer them together",
}
PROGRAM = [sys.executable, "-m", "rewardlab.apps.cli"]
HELD_OUT = 2000
POLL = 0.1  # seconds


Commands = tuple[tuple[str, ...], ...]
"""Groups of commands: groups run one after the other, the commands of a group concurrently."""


class Recipe(NamedTuple):
    """Commands of `rewardlab` for a system and for the plain loop that it extends.

    They run one after the other, those of an inner list concurrently; the output folder of the last is evaluated.
    In a command {rl} and {train} stand for the verb with the shared options, {0}, {1} for the folders of the commands
    before it, {start} for the start policy, {shared} for a folder that all commands of a side may use, {unseen} for
    prompts and {fresh} for pairs not used in training, {tenth} for a share of a reward model's steps, {quarter} and
    {half} of a policy's.
    """

    title: str
    measure: str
    """One of `MEASURES`."""
    plain: Commands
    system: Commands
    logged: str = ""
    """Name in `steps.jsonl` of a measure that the last command's own evaluation logs."""

    @property
    def kind(self) -> str:
        """Return the kind of output that a `Side` evaluates."""
        return {"accuracy": "reward_model", "logged": "log"}.get(self.measure, "policy")


def read_recipe(file: Path) -> Recipe:
    """Read a recipe from YAML; raise DataError for a missing or unknown key or measure."""
    try:
        fields = from_yaml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: not a recipe ({error}); write YAML") from error
    known, needed = Recipe._fields, Recipe._fields[:4]
    if not isinstance(fields, dict) or {*fields} - {*known} or not {*fields} >= {*needed}:
        raise DataError(f"{file}: a recipe has {', '.join(needed)} and maybe logged; it has {fields}")
    if (measure := str(fields["measure"])) not in MEASURES:
        raise DataError(f"{file}: no measure '{measure}'; {did_you_mean(measure, [*MEASURES])}")
    try:
        sides = {
            name: tuple((command,) if isinstance(command, str) else tuple(command) for command in fields[name])
            for name in ("plain", "system")
        }
    except TypeError as error:
        raise DataError(f"{file}: plain and system are lists of commands ({error})") from error
    return Recipe(**fields | sides)


def recipes(only: Sequence[str] = ()) -> dict[str, Recipe]:
    """Read the recipes, all or those in `only`, by name."""
    files = {file.stem: file for file in sorted((HERE / "recipes").glob("*.yaml"))}
    for name in only:
        if name not in files:
            raise UsageError(f"no recipe '{name}'; {did_you_mean(name, [*files])}")
    return {name: read_recipe(file) for name, file in files.items() if not only or name in only}


# ---- runs ----


@dataclass(frozen=True)
class Budget:
    """Steps and data of each run."""

    steps: int = 80
    """Steps of a policy, 64 completions each."""
    train_steps: int = 200
    """Steps of a reward model, 32 pairs each."""
    pairs: int = 2000
    completions: int = 256
    """Number of completions on which a policy is evaluated."""


@dataclass(frozen=True)
class Side(Job):
    """One side of a recipe at one seed: runs its commands as subprocesses and evaluates the output."""

    libraries = (*Job.libraries, "trl")
    base: Base
    commands: Commands
    budget: Budget
    kind: str
    """Output of the last command to evaluate: "policy", "reward_model", or "log"."""

    def __str__(self) -> str:
        """Return the label in progress messages."""
        return f"{self.commands[-1][-1]}, seed {self.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the measures of the last command's folder, and "cpu": the CPU-seconds of all commands."""
        with TemporaryDirectory() as name:
            folder, start = Path(name), self.base.load(cache)
            values = write_world(folder, start, self.base.seed, self.budget)
            before = _children()
            for commands in self.commands:
                values |= run(commands, values, folder)
            cpu, made = _children() - before, Path([*values.values()][-1])
            measured = self._measured(made)
        return {name: np.array(figure) for name, figure in (measured | {"cpu": cpu}).items()}

    def _measured(self, folder: Path) -> dict[str, float]:
        if self.kind == "policy":
            return self._of_policy(folder)
        return self._of_rewards(folder) if self.kind == "reward_model" else evaluated(folder)

    def _of_rewards(self, folder: Path) -> dict[str, float]:
        first, second = zip(*(pair.examples for pair in garden.pairs(HELD_OUT, 1, split="test")), strict=True)
        return {"accuracy": gold_accuracy(load_reward_model(str(folder)), first, second)}

    def _of_policy(self, folder: Path) -> dict[str, float]:
        trained = AutoModelForCausalLM.from_pretrained(folder / "policy", use_safetensors=True).eval()
        completions = sample(trained, unseen_prompts(self.budget.completions), self.base.seed)
        return {
            "gold": garden.gold().rate(completions)[:, 0].mean(),
            "right": float(np.mean(verify(completions))),
        }


def write_world(folder: Path, start: PreTrainedModel, seed: int, budget: Budget) -> dict[str, str]:
    """Write start policy, prompts and pairs as files, and return the values of a recipe's names in braces."""
    start.save_pretrained(folder / "start")
    tokenizer().save_pretrained(folder / "start")
    seen, unseen = ([{"prompt": [dict(turn) for turn in prompt]} for prompt in prompts] for prompts in split_prompts())
    files = {
        "start": str(folder / "start"),
        "prompts": _written(folder / "prompts.jsonl", seen),
        "unseen": _written(folder / "unseen.jsonl", unseen),
        "pairs": _written(folder / "pairs.jsonl", map(pair_row, garden.pairs(budget.pairs, seed))),
        "fresh": _written(
            folder / "fresh.jsonl", map(pair_row, garden.pairs(budget.pairs // 2, seed, split="validation"))
        ),
    }
    shared = f"--model {files['start']} --seed {seed}"
    rl = f"rl --config {HERE / 'rl.yaml'} {shared} --data {files['prompts']} --max_steps {budget.steps}"
    train = f"train --config {HERE / 'train.yaml'} {shared} --data {files['pairs']}"
    return files | {
        "rl": rl,
        "train": f"{train} --max_steps {budget.train_steps}",
        "tenth": str(max(1, budget.train_steps // 10)),
        "quarter": str(max(1, budget.steps // 4)),
        "half": str(max(1, budget.steps // 2)),
        "shared": str(folder / "shared"),
    }


def run(commands: Sequence[str], values: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Run commands of `rewardlab` concurrently, and return their output folders by number.

    If a command fails, the others are terminated, and a DataError with the end of its error output is raised.
    """
    number = sum(name.isdigit() for name in values)
    made = {str(number + index): str(folder / str(number + index)) for index in range(len(commands))}
    lines = [shlex.split(fill_template(command, values)) for command in commands]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        # files rather than pipes, which would block a command that fills them
        errors = [stack.enter_context(TemporaryFile("w+")) for _ in lines]
        programs = [
            stack.enter_context(
                Popen([*PROGRAM, *words, "--output", output], env=environment, stdout=DEVNULL, stderr=error)
            )
            for words, output, error in zip(lines, made.values(), errors, strict=True)
        ]
        while None in (ends := [program.poll() for program in programs]) and not any(ends):
            time.sleep(POLL)
        for program in programs:
            program.terminate()  # no effect if it has ended
        for end, words, error in zip(ends, lines, errors, strict=True):
            if end:
                error.seek(0)
                raise DataError(f"rewardlab {shlex.join(words)} ended with {end}: {error.read().strip()[-500:]}")
    return made


def evaluated(folder: Path) -> dict[str, float]:
    """Return the metrics of a run's last evaluation, such as `eval_reward`."""
    rows = from_json_lines((folder / "steps.jsonl").read_text(encoding="utf-8"))
    evaluations = [row for row in rows if "eval_reward" in row]
    if not evaluations:
        raise DataError(f"{folder}: its steps log no evaluation; give the last command --eval_data")
    return {
        name: float(value) for name, value in evaluations[-1].items() if name.startswith("eval_") and value is not None
    }


def fill_template(command: str, values: Mapping[str, str]) -> str:
    """Replace the names in braces of a command by their values.

    >>> fill_template("{train} --loss 'boosted(before={0})'", {"train": "train --seed 1", "0": "/runs/first"})
    "train --seed 1 --loss 'boosted(before=/runs/first)'"
    """
    for name, text in values.items():
        command = command.replace(f"{{{name}}}", text)
    return command


def _written(file: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def _children() -> float:
    """Return the CPU-seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---- comparison ----


class Comparison(NamedTuple):
    """Results of a system and of its plain loop by seed."""

    recipe: Recipe
    plain: np.ndarray
    system: np.ndarray
    cost: np.ndarray
    """CPU seconds of the system over those of the plain loop, [seeds]."""

    @property
    def effect(self) -> Estimate:
        """Return system minus plain, paired by seed, with its interval."""
        return t_interval(self.system - self.plain)

    @property
    def verdict(self) -> str:
        """Return whether the effect is significant, and its sign."""
        if not np.isfinite(self.effect.low):
            return "one seed"
        return "better" if self.effect.low > 0 else "worse" if self.effect.high < 0 else "no difference shown"


def compare(recipe: Recipe, plain: Sequence[Arrays], system: Sequence[Arrays]) -> Comparison:
    """Compare the results of both sides seed by seed."""
    name = recipe.logged or recipe.measure
    of_plain, of_system = (np.array([float(result[name]) for result in side]) for side in (plain, system))
    system_cpu, plain_cpu = (np.array([float(result["cpu"]) for result in side]) for side in (system, plain))
    return Comparison(recipe, of_plain, of_system, system_cpu / plain_cpu)
