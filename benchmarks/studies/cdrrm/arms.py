"""Arms of the study `cdrrm`: where the rubric of a pair comes from, and how a simulated judge rules under it."""

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from random import Random
from typing import ClassVar

import numpy as np

from ....judges.cdrrm.filter import Kept, reasons, verify
from ....judges.cdrrm.generator import Record, generate, generator_records, prompt_only_ask, rubric_json, rule_with
from ....judges.cdrrm.requests import Rejected
from ....judges.cdrrm.ruling import Ruling
from ....judges.cdrrm.synthesise import Sides, Synthesis, read_rubric, sides, synthesise
from ....judges.rubrics.rubric import Rubric, parse
from ....rm.types import PreferencePair, prompt_text
from ...worlds.checked import Item, items, null_pairs, pairs
from ...worlds.checks import demanded
from ...worlds.simulated_judge import Biases, SimulatedJudge, rubric_of
from ...worlds.simulated_teacher import SimulatedTeacher, Teacher
from .._job_cache import Arrays, Job
from .learnt_rubrics import LearntGenerator, as_shown

TEACHER_ARMS = ("prompt only", "one step", "contrast")
OTHER_PROMPT = "another prompt's"
ARMS = (*TEACHER_ARMS, "oracle", OTHER_PROMPT)
CELLS = tuple(product(range(3), range(3)))
BLIND = Biases(reads=0.0, position=0.0, length=0.0, style=0.0, failure=0.0)
"""A judge without a taste of its own: a coin where the rubric does not decide."""


# ---- what is learnt from ----


@dataclass(frozen=True)
class Corpus(Job):
    """Rubrics that a simulated teacher writes for training pairs, those that pass the filter or all of them.

    With the leak of the released code the preferred answer is always A, and the teacher has learnt that.
    """

    seed: int
    pairs: int
    corrupt: float = 0.0
    filtered: bool = True
    leaky: bool = False

    libraries: ClassVar = ("numpy",)

    def shown(self) -> list[Sides]:
        """The pairs in their slots."""
        made = pairs(self.pairs, self.seed)
        return [_chosen_first(pair) if self.leaky else sides(pair, self.seed) for pair in made]

    def work(self, cache: Path) -> Arrays:
        """Places of the pairs, their rubrics, and conversations with the contrast first."""
        shown = self.shown()
        teacher = SimulatedTeacher(Teacher(corrupt=self.corrupt, leaks=self.leaky), self.seed)
        written = [*map(Synthesis, generate(teacher, shown))] if self.leaky else synthesise(teacher, shown)
        judge = SimulatedJudge(seed=self.seed)
        found = verify(judge, shown, written) if self.filtered else [*map(_unfiltered, shown, written)]
        kept = {index: one for index, one in enumerate(found) if isinstance(one, Kept)}
        return {
            "place": np.array([*kept], int),
            "rubric": np.array([rubric_json(one.rubric) for one in kept.values()]),
            "useful": np.array([one.useful for one in kept.values()]),
            "records": np.array([json.dumps(one) for one in self._records([*kept.values()])]),
            "reasons": np.array(json.dumps(reasons(found))),
        }

    def _records(self, kept: Sequence[Kept]) -> list[Record]:
        return [] if self.leaky else generator_records(kept, contrast_first=True)

    def learnt(self, cache: Path, n: int) -> LearntGenerator:
        """Trained on the first n rubrics: on both orders, or, with the leak, on the preferred answer as A."""
        result, shown = self.result(cache), self.shown()
        kept = [shown[place] for place in result["place"][:n]]
        rubrics = [parse(str(text)) for text in result["rubric"][:n]]
        if self.leaky:
            return LearntGenerator([as_shown(one) for one in kept], rubrics)
        both = [as_shown(each) for one in kept for each in (one, one.swapped())]
        return LearntGenerator(both, [rubric for rubric in rubrics for _ in range(2)])

    def records(self, cache: Path, n: int) -> list[Record]:
        """Conversations of the first n rubrics, both orders of each."""
        return [json.loads(str(text)) for text in self.result(cache)["records"][: 2 * n]]


def _chosen_first(pair: PreferencePair) -> Sides:
    return Sides(pair.prompt, pair.chosen, pair.rejected, "A")


def _unfiltered(shown: Sides, written: Synthesis) -> Kept | Rejected:
    if isinstance(written.rubric, Rejected):
        return written.rubric
    return Kept(shown, written.rubric, useful=False, diagnoses=written.diagnoses)


# ---- rubrics for what is judged ----


@dataclass(frozen=True)
class Asked:
    """The held-out items of a seed, nine comparisons each; slots by a coin, or the chosen answer first."""

    seed: int
    items: int
    chosen_first: bool = False
    what: str = "items"

    def drawn(self) -> list[Item]:
        """The items."""
        return items(self.items, self.seed, "test")

    def shown(self) -> list[Sides]:
        """Nine comparisons of every item, the chosen answer's style running slowest."""
        made = (one.pair(*cell) for one in self.drawn() for cell in CELLS)
        if self.chosen_first:
            return [_chosen_first(pair) for pair in made]
        return [sides(pair, self.seed) for pair in made]


@dataclass(frozen=True)
class Nulls:
    """Pairs of equally good answers, slots by a coin; or the one that a coin called chosen first, which is a leak."""

    seed: int
    items: int
    chosen_first: bool = False
    what: str = "nulls"

    def shown(self) -> list[Sides]:
        """The pairs in their slots."""
        made = null_pairs(self.items, self.seed)
        if self.chosen_first:
            return [_chosen_first(pair) for pair in made]
        return [sides(pair, self.seed) for pair in made]


class Source(Job):
    """A job that writes a rubric for every pair that is asked about."""

    asked: Asked | Nulls

    @abstractmethod
    def rubrics(self, cache: Path, shown: Sequence[Sides]) -> list[Rubric | Rejected]:
        """A rubric for every pair as it is shown, or why there is none."""

    def work(self, cache: Path) -> Arrays:
        """Rubrics as JSON, empty where there is none, and what they were rejected for."""
        found = self.rubrics(cache, self.asked.shown())
        return {
            "rubric": np.array(["" if isinstance(one, Rejected) else rubric_json(one) for one in found]),
            "reasons": np.array(json.dumps(Counter(one.reason for one in found if isinstance(one, Rejected)))),
        }


@dataclass(frozen=True)
class Simulated(Source):
    """One of `ARMS`: the simulated teacher's rubrics, the demanded checks themselves, or those of another prompt."""

    arm: str
    asked: Asked | Nulls

    libraries: ClassVar = ("numpy",)

    def rubrics(self, cache: Path, shown: Sequence[Sides]) -> list[Rubric | Rejected]:
        """See `Source`."""
        teacher = SimulatedTeacher(seed=self.asked.seed)
        if self.arm == "prompt only":
            return [read_rubric(reply) for reply in teacher.ask([prompt_only_ask(one.prompt) for one in shown])]
        if self.arm == "one step":
            return generate(teacher, shown)
        if self.arm == "contrast":
            return [one.rubric for one in synthesise(teacher, shown)]
        demands = [demanded(prompt_text(one.prompt)) for one in shown]
        if self.arm == "oracle":
            return [rubric_of(names) for names in demands]
        return [rubric_of(_foreign(names, demands, index)) for index, names in enumerate(demands)]


def _foreign(names: Sequence[str], demands: Sequence[Sequence[str]], place: int) -> Sequence[str]:
    """The demands of the next prompt that shares none of these."""
    others = (demands[(place + step) % len(demands)] for step in range(1, len(demands)))
    return next((other for other in others if not {*other} & {*names}), ["number"])


@dataclass(frozen=True)
class Learnt(Source):
    """Logistic regressions trained on n rubrics."""

    corpus: Corpus
    n: int
    asked: Asked | Nulls
    swapped: bool = False
    """Whether the rubric is written for the answers in the other order."""

    libraries: ClassVar = ("numpy", "scikit-learn")

    def rubrics(self, cache: Path, shown: Sequence[Sides]) -> list[Rubric | Rejected]:
        """See `Source`."""
        order = [one.swapped() for one in shown] if self.swapped else shown
        return generate(self.corpus.learnt(cache, self.n), order)


# ---- rulings ----


@dataclass(frozen=True)
class Judged(Job):
    """Rulings of a simulated judge on every pair in both orders, under the source's rubrics or under none."""

    source: Source | None
    asked: Asked | Nulls
    biases: Biases
    mask: int = 0
    """Rules, drawn at random, that are taken from every rubric."""

    libraries: ClassVar = ("numpy",)

    def work(self, cache: Path) -> Arrays:
        """`won` and `slot` [P, 2]: 1 if the chosen answer, or slot A, won in that order, else 0; NaN if unread."""
        shown = self.asked.shown()
        rubrics = self._rubrics(cache, len(shown))
        rulings = rule_with(SimulatedJudge(self.biases, self.asked.seed), shown, rubrics)
        counts = [len(rubric.rules) for rubric in rubrics if isinstance(rubric, Rubric)]
        return {
            "won": np.array([_won(ruling, pair) for ruling, pair in zip(rulings, shown, strict=True)]),
            "slot": np.array([_slot(ruling) for ruling in rulings]),
            "rules": np.array(np.mean(counts) if counts else np.nan),
            "without": np.array(np.mean([isinstance(rubric, Rejected) for rubric in rubrics])),
        }

    def _rubrics(self, cache: Path, pairs: int) -> list[Rubric | Rejected]:
        if self.source is None:
            return [Rejected("bare")] * pairs
        rng = Random(f"mask {self.asked.seed} {self.mask}")
        return [_masked(rng, str(text), self.mask) for text in self.source.result(cache)["rubric"]]


def _masked(rng: Random, text: str, mask: int) -> Rubric | Rejected:
    if not text:
        return Rejected("no rubric")
    rubric = parse(text)
    left = sorted(rng.sample(range(len(rubric.rules)), max(0, len(rubric.rules) - mask)))
    return replace(rubric, rules=tuple(rubric.rules[place] for place in left)) if left else Rejected("all masked")


def _won(ruling: Ruling, pair: Sides) -> tuple[float, float]:
    label = "AB".index(pair.preferred)
    first, second = (np.nan if one is None else float(one == label) for one in (ruling.first, ruling.second))
    return first, second


def _slot(ruling: Ruling) -> tuple[float, float]:
    """In the second order answer 1 stands in slot A."""
    first, second = (np.nan if one is None else float(one == a) for one, a in ((ruling.first, 0), (ruling.second, 1)))
    return first, second
