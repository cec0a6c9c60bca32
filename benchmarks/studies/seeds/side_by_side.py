"""Systems beside the plain loops that they extend: commands as a user gives them, and what came of them."""

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

from ....policy.decoding.engines import SeparateModels
from ....policy.decoding.guided import decode
from ....policy.decoding.language_models import voice
from ....policy.decoding.requests import Request
from ....rm.contract.golden_scores import load_reward_model
from ....rm.data.pairs import pair_row
from ....rm.errors import DataError, UsageError, did_you_mean
from ....rm.io.checked_files import from_yaml
from ....rm.types import Example, PreferencePair
from ...statistics.cluster_bootstrap import Estimate, t_interval
from ...worlds import garden
from ...worlds.guides import Base
from ...worlds.models import tokenizer
from ...worlds.policies import LONGEST, TOGETHER, gold_accuracy
from .._job_cache import Arrays, Job
from .._policy_runs import split_prompts

RECIPES = Path(__file__).parents[2] / "recipes"
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
"""One after the other; those of a tuple at the same time."""


class Recipe(NamedTuple):
    """A system, and the plain loop that it extends, as commands of `rewardlab`.

    They run one after the other, those of a list within the list at the same time; the last one's folder is measured.
    In a command {rl}, {train} and {sft} stand for the verb with what all share ({sft} learns the chosen completions and
    lacks --base), {0}, {1} for the folders of the commands before it, {start} for the start policy, {shared} for a
    folder that all of a side may use, {unseen} for prompts and {fresh} for pairs that nothing was trained on, {tenth}
    for a share of a reward model's steps, {quarter}, {half} and {double} of a policy's: with `--num_iterations 2` half
    of them are on new answers.
    """

    title: str
    measure: str
    """One of `MEASURES`."""
    plain: Commands
    system: Commands
    logged: str = ""
    """Of a measure that the last command's own evaluation logs, its name in `steps.jsonl`."""

    @property
    def kind(self) -> str:
        """What a `Side` looks at."""
        return {"accuracy": "reward_model", "logged": "log"}.get(self.measure, "policy")


def read_recipe(file: Path) -> Recipe:
    """A recipe's YAML; a key that is missing, unknown or of no known measure is refused."""
    try:
        found = from_yaml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: not a recipe ({error}); write YAML") from error
    known, needed = Recipe._fields, Recipe._fields[:4]
    if not isinstance(found, dict) or {*found} - {*known} or not {*found} >= {*needed}:
        raise DataError(f"{file}: a recipe has {', '.join(needed)} and maybe logged; it has {found}")
    if (measure := str(found["measure"])) not in MEASURES:
        raise DataError(f"{file}: no measure '{measure}'; {did_you_mean(measure, [*MEASURES])}")
    try:
        sides = {
            name: tuple((one,) if isinstance(one, str) else tuple(one) for one in found[name])
            for name in ("plain", "system")
        }
    except TypeError as error:
        raise DataError(f"{file}: plain and system are lists of commands ({error})") from error
    return Recipe(**found | sides)


def recipes(only: Sequence[str] = (), folder: Path = RECIPES / "seeds") -> dict[str, Recipe]:
    """Those of a folder by name, or some of them."""
    files = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    for name in only:
        if name not in files:
            raise UsageError(f"no recipe '{name}' in {folder}; {did_you_mean(name, [*files])}")
    return {name: read_recipe(file) for name, file in files.items() if not only or name in only}


# ---- runs ----


@dataclass(frozen=True)
class Budget:
    """How much each run gets."""

    steps: int = 80
    """Of a policy, 64 answers each."""
    train_steps: int = 200
    """Of a reward model, 32 pairs each."""
    pairs: int = 2000
    asked: int = 256
    """Answers that a policy is measured by."""


@dataclass(frozen=True)
class Side(Job):
    """One side of a recipe at one seed: its commands run as a user runs them, and what they made is measured."""

    libraries = (*Job.libraries, "trl")
    base: Base
    commands: Commands
    budget: Budget
    kind: str
    """What is looked at in the last command's folder: "policy", "reward_model", or "log"."""

    def __str__(self) -> str:
        """For people."""
        return f"{self.commands[-1][-1]}, seed {self.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """What `MEASURES` name of the last command's folder, and "cpu": seconds of all its programs."""
        with TemporaryDirectory() as name:
            folder, start = Path(name), self.base.load(cache)
            places = write_world(folder, start, self.base.seed, self.budget)
            before = _children()
            for together in self.commands:
                places |= run(together, places, folder)
            cpu, made = _children() - before, Path([*places.values()][-1])
            found = self._measured(made)
        return {name: np.array(value) for name, value in (found | {"cpu": cpu}).items()}

    def _measured(self, folder: Path) -> dict[str, float]:
        if self.kind == "policy":
            return self._of_policy(folder)
        return self._of_rewards(folder) if self.kind == "reward_model" else evaluated(folder)

    def _of_rewards(self, folder: Path) -> dict[str, float]:
        first, second = zip(*(pair.examples for pair in garden.pairs(HELD_OUT, 1, split="test")), strict=True)
        return {"accuracy": gold_accuracy(load_reward_model(str(folder)), first, second)}

    def _of_policy(self, folder: Path) -> dict[str, float]:
        kept = folder / "policy" if (folder / "policy").is_dir() else folder  # supervised training has one model alone
        trained = AutoModelForCausalLM.from_pretrained(kept, use_safetensors=True).eval()
        unseen = split_prompts()[1]
        asked = [unseen[index % len(unseen)] for index in range(self.budget.asked)]
        requests = [
            Request(prompt, seed=self.base.seed * 1_000_000 + index, max_new_tokens=LONGEST)
            for index, prompt in enumerate(asked)
        ]
        said = decode(SeparateModels(voice(trained, tokenizer())), requests, batch_size=TOGETHER, progress=False)
        answers = [Example(prompt, one.text) for prompt, one in zip(asked, said, strict=True)]
        return {"gold": garden.gold().rate(answers)[:, 0].mean(), "right": float(np.mean(garden.verify(answers)))}


def write_world(folder: Path, start: PreTrainedModel, seed: int, budget: Budget) -> dict[str, str]:
    """The start policy, prompts and pairs as files; what a recipe's names in braces stand for."""
    start.save_pretrained(folder / "start")
    tokenizer().save_pretrained(folder / "start")
    pairs = garden.pairs(budget.pairs, seed)
    seen, unseen = ([{"prompt": [dict(turn) for turn in one]} for one in some] for some in split_prompts())
    files = {
        "start": str(folder / "start"),
        "prompts": _written(folder / "prompts.jsonl", seen),
        "unseen": _written(folder / "unseen.jsonl", unseen),
        "pairs": _written(folder / "pairs.jsonl", _rows(pairs)),
        "demonstrations": _written(folder / "demonstrations.jsonl", map(_demonstration, pairs)),
        "fresh": _written(folder / "fresh.jsonl", _rows(garden.pairs(budget.pairs // 2, seed, split="validation"))),
    }
    shared = f"--model {files['start']} --seed {seed}"
    rl = f"rl --config {RECIPES / 'rl.yaml'} {shared} --data {files['prompts']} --max_steps {budget.steps}"
    train = f"train --config {RECIPES / 'train.yaml'} {shared} --data {files['pairs']}"
    return files | {
        "rl": rl,
        "sft": f"rubrics train --config {RECIPES / 'sft.yaml'} --data {files['demonstrations']} --seed {seed}",
        "train": f"{train} --max_steps {budget.train_steps}",
        "tenth": str(max(1, budget.train_steps // 10)),
        "quarter": str(max(1, budget.steps // 4)),
        "half": str(max(1, budget.steps // 2)),
        "double": str(2 * budget.steps),
        "shared": str(folder / "shared"),
    }


def run(commands: Sequence[str], places: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Commands of `rewardlab` at the same time, each with a folder of its own, which is told by its number.

    Where one fails the others are ended, and its own words are told.
    """
    number = sum(name.isdigit() for name in places)
    made = {str(number + index): str(folder / str(number + index)) for index in range(len(commands))}
    lines = [shlex.split(filled(command, places)) for command in commands]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        errors = [stack.enter_context(TemporaryFile("w+")) for _ in lines]
        programs = [
            stack.enter_context(
                Popen([*PROGRAM, *words, "--output", output], env=environment, stdout=DEVNULL, stderr=error)
            )
            for words, output, error in zip(lines, made.values(), errors, strict=True)
        ]
        while None in (ends := [program.poll() for program in programs]) and not any(ends):
            time.sleep(POLL)
        for one in programs:
            one.terminate()  # nothing, where it has ended
        for end, words, error in zip(ends, lines, errors, strict=True):
            if end:
                error.seek(0)
                raise DataError(f"rewardlab {shlex.join(words)} ended with {end}: {error.read().strip()[-500:]}")
    return made


def evaluated(folder: Path) -> dict[str, float]:
    """What the last evaluation of a run logged: `eval_reward` and the like."""
    rows = [json.loads(line) for line in (folder / "steps.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [row for row in rows if "eval_reward" in row]
    if not found:
        raise DataError(f"{folder}: its steps log no evaluation; give the last command --eval_data")
    return {name: float(value) for name, value in found[-1].items() if name.startswith("eval_") and value is not None}


def filled(command: str, places: Mapping[str, str]) -> str:
    """The command with its names in braces replaced.

    >>> filled("{train} --loss 'boosted(before={0})'", {"train": "train --seed 1", "0": "/runs/first"})
    "train --seed 1 --loss 'boosted(before=/runs/first)'"
    """
    for name, value in places.items():
        command = command.replace(f"{{{name}}}", value)
    return command


def _written(file: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def _demonstration(pair: PreferencePair) -> dict[str, Any]:
    """The chosen completion as a record of `rewardlab rubrics train`."""
    return {
        "prompt": [dict(turn) for turn in pair.prompt],
        "completion": [{"role": "assistant", "content": pair.chosen}],
    }


def _rows(pairs: Sequence[PreferencePair]) -> list[dict[str, Any]]:
    return [pair_row(pair) for pair in pairs]


def _children() -> float:
    """CPU seconds of the programs that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---- what came of them ----


class Beside(NamedTuple):
    """A system's seeds beside the plain loop's."""

    recipe: Recipe
    plain: np.ndarray
    system: np.ndarray
    cost: np.ndarray
    """CPU seconds of the system over those of the plain loop, [seeds]."""

    @property
    def effect(self) -> Estimate:
        """System minus plain, paired by seed."""
        return t_interval(self.system - self.plain)

    @property
    def verdict(self) -> str:
        """What the interval says."""
        if not np.isfinite(self.effect.low):
            return "one seed"
        return "better" if self.effect.low > 0 else "worse" if self.effect.high < 0 else "no difference shown"


def beside(recipe: Recipe, plain: Sequence[Arrays], system: Sequence[Arrays]) -> Beside:
    """From each side's results, seed by seed."""
    name = recipe.logged or recipe.measure
    of_plain, of_system = (np.array([float(one[name]) for one in side]) for side in (plain, system))
    cost = np.array([float(one["cpu"]) / float(other["cpu"]) for one, other in zip(system, plain, strict=True)])
    return Beside(recipe, of_plain, of_system, cost)
