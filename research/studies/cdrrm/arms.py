"""Arms of the study `cdrrm`: sources of rubrics, and the rulings of a simulated judge under them."""

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

from ....judges.cdrrm.filter import FilteredRubric, verify
from ....judges.cdrrm.generator import Record, generate, generator_records, rule_with
from ....judges.cdrrm.requests import Rejected, ask
from ....judges.cdrrm.ruling import Ruling
from ....judges.cdrrm.synthesise import Sides, Synthesis, read_rubric, sides, synthesise
from ....judges.rubrics.rubric import SCHEMA, Rubric, parse, rubric_json
from ....rm.types import PreferencePair, prompt_text
from ....tests.stand_ins.checks import demanded
from ....tests.stand_ins.simulated_judge import Biases, SimulatedJudge, rubric_of
from ....tests.stand_ins.simulated_teacher import SimulatedTeacher, Teacher
from ....tests.stand_ins.verifiable_prompts import items, null_pairs, pairs
from .._runs.job_cache import Arrays, Job
from .learnt_rubrics import LearntGenerator, as_shown

TEACHER_ARMS = ("prompt only", "one step", "contrast")
OTHER_PROMPT = "another prompt's"
ARMS = (*TEACHER_ARMS, "oracle", OTHER_PROMPT)
CELLS = tuple(product(range(3), range(3)))
BLIND = Biases(reads=0.0, position=0.0, length=0.0, style=0.0, failure=0.0)
"""Biases of an unbiased judge: it decides at random where the rubric does not decide."""


# ---- training corpus ----


@dataclass(frozen=True)
class Corpus(Job):
    """Rubrics that a simulated teacher writes for training pairs, filtered or not.

    With the leak of the released code the preferred response is always A, and the teacher exploits it.
    """

    seed: int
    pairs: int
    corrupt: float = 0.0
    filtered: bool = True
    leaky: bool = False

    libraries: ClassVar = ("numpy",)

    def shown(self) -> list[Sides]:
        """Return the pairs with their slots assigned."""
        preference_pairs = pairs(self.pairs, self.seed)
        return [_chosen_first(pair) if self.leaky else sides(pair, self.seed) for pair in preference_pairs]

    def work(self, cache: Path) -> Arrays:
        """Return the indices of the pairs, their rubrics, and conversations with the contrast first."""
        shown = self.shown()
        teacher = SimulatedTeacher(Teacher(corrupt=self.corrupt, leaks=self.leaky), self.seed)
        written = [*map(Synthesis, generate(teacher, shown))] if self.leaky else synthesise(teacher, shown)
        judge = SimulatedJudge(seed=self.seed)
        filtered = verify(judge, shown, written) if self.filtered else [*map(_unfiltered, shown, written)]
        kept_pairs = {index: pair for index, pair in enumerate(filtered) if isinstance(pair, FilteredRubric)}
        rejected = [outcome.reason for outcome in filtered if isinstance(outcome, Rejected)]
        return {
            "place": np.array([*kept_pairs], int),
            "rubric": np.array([rubric_json(pair.rubric) for pair in kept_pairs.values()]),
            "useful": np.array([pair.useful for pair in kept_pairs.values()]),
            "records": np.array([json.dumps(record) for record in self._records([*kept_pairs.values()])]),
            "reasons": np.array(json.dumps(dict(Counter(rejected).most_common()))),
        }

    def _records(self, kept_pairs: Sequence[FilteredRubric]) -> list[Record]:
        return [] if self.leaky else generator_records(kept_pairs, contrast_first=True)

    def learnt(self, cache: Path, n: int) -> LearntGenerator:
        """Train a generator on the first n rubrics: in both orders, or with the leak, the preferred response as A."""
        result, shown = self.result(cache), self.shown()
        training_pairs = [shown[index] for index in result["place"][:n]]
        rubrics = [parse(str(text)) for text in result["rubric"][:n]]
        if self.leaky:
            return LearntGenerator([as_shown(pair) for pair in training_pairs], rubrics)
        both = [as_shown(shown_pair) for pair in training_pairs for shown_pair in (pair, pair.swapped())]
        return LearntGenerator(both, [rubric for rubric in rubrics for _ in range(2)])

    def records(self, cache: Path, n: int) -> list[Record]:
        """Return the conversations of the first n rubrics, both orders of each."""
        return [json.loads(str(text)) for text in self.result(cache)["records"][: 2 * n]]


def _chosen_first(pair: PreferencePair) -> Sides:
    return Sides(pair.prompt, *pair.texts, "A")


def _unfiltered(shown: Sides, written: Synthesis) -> FilteredRubric | Rejected:
    if isinstance(written.rubric, Rejected):
        return written.rubric
    return FilteredRubric(shown, written.rubric, useful=False, diagnoses=written.diagnoses)


# ---- rubrics for the judged pairs ----


@dataclass(frozen=True)
class Asked:
    """The held-out items of a seed, nine comparisons each; or pairs of equally good responses, one called chosen."""

    seed: int
    items: int
    chosen_first: bool = False
    """Whether the chosen response is shown first, a leak; else slots are random."""
    equal: bool = False

    def shown(self) -> list[Sides]:
        """Return the pairs with their slots assigned; the style of an item's chosen response varies slowest."""
        comparisons = (item.pair(*cell) for item in items(self.items, self.seed, "test") for cell in CELLS)
        preference_pairs = null_pairs(self.items, self.seed) if self.equal else comparisons
        return [_chosen_first(pair) if self.chosen_first else sides(pair, self.seed) for pair in preference_pairs]


class Source(Job):
    """A job that writes a rubric for every judged pair."""

    asked: Asked

    @abstractmethod
    def rubrics(self, cache: Path, shown: Sequence[Sides]) -> list[Rubric | Rejected]:
        """Return a rubric for every pair as it is shown, or the reason why there is none."""

    def work(self, cache: Path) -> Arrays:
        """Return the rubrics as JSON, empty if there is none, and counts of the reasons for rejection."""
        rubrics = self.rubrics(cache, self.asked.shown())
        return {
            "rubric": np.array(["" if isinstance(rubric, Rejected) else rubric_json(rubric) for rubric in rubrics]),
            "reasons": np.array(json.dumps(Counter(r.reason for r in rubrics if isinstance(r, Rejected)))),
        }


@dataclass(frozen=True)
class Simulated(Source):
    """One of `ARMS`: the simulated teacher's rubrics, the demanded checks themselves, or those of another prompt."""

    arm: str
    asked: Asked

    libraries: ClassVar = ("numpy",)

    def rubrics(self, cache: Path, shown: Sequence[Sides]) -> list[Rubric | Rejected]:
        """See `Source`."""
        teacher = SimulatedTeacher(seed=self.asked.seed)
        if self.arm == "prompt only":
            asks = [ask("prompt_only", {"instruction": prompt_text(pair.prompt)}, SCHEMA) for pair in shown]
            return [read_rubric(reply) for reply in teacher.ask(asks)]
        if self.arm == "one step":
            return generate(teacher, shown)
        if self.arm == "contrast":
            return [synthesis.rubric for synthesis in synthesise(teacher, shown)]
        demands = [demanded(prompt_text(pair.prompt)) for pair in shown]
        if self.arm == "oracle":
            return [rubric_of(names) for names in demands]
        return [rubric_of(_foreign(names, demands, index)) for index, names in enumerate(demands)]


def _foreign(names: Sequence[str], demands: Sequence[Sequence[str]], position: int) -> Sequence[str]:
    """Return the demands of the next prompt that shares none of these."""
    others = (demands[(position + step) % len(demands)] for step in range(1, len(demands)))
    return next((other for other in others if not {*other} & {*names}), ["number"])


@dataclass(frozen=True)
class Learnt(Source):
    """Rubrics by logistic regressions trained on n rubrics."""

    corpus: Corpus
    n: int
    asked: Asked
    swapped: bool = False
    """Whether the rubric is written for the responses in the other order."""

    libraries: ClassVar = ("numpy", "scikit-learn")

    def rubrics(self, cache: Path, shown: Sequence[Sides]) -> list[Rubric | Rejected]:
        """See `Source`."""
        order = [pair.swapped() for pair in shown] if self.swapped else shown
        return generate(self.corpus.learnt(cache, self.n), order)


# ---- rulings ----


@dataclass(frozen=True)
class Judged(Job):
    """Rulings of a simulated judge on every pair in both orders, under the source's rubrics or under none."""

    source: Source | None
    asked: Asked
    biases: Biases
    mask: int = 0
    """Number of random rules that are removed from every rubric."""

    libraries: ClassVar = ("numpy",)

    def work(self, cache: Path) -> Arrays:
        """Return `won` and `slot` [P, 2]: 1 if chosen, or slot A, won in that order, else 0; NaN if unreadable."""
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
    return replace(rubric, rules=tuple(rubric.rules[index] for index in left)) if left else Rejected("all masked")


def _won(ruling: Ruling, pair: Sides) -> tuple[float, float]:
    label = "AB".index(pair.preferred)
    first, second = (np.nan if winner is None else float(winner == label) for winner in (ruling.first, ruling.second))
    return first, second


def _slot(ruling: Ruling) -> tuple[float, float]:
    """Return whether slot A won in each order; in the second order response 1 is in slot A."""
    first, second = (
        np.nan if winner is None else float(winner == a) for winner, a in ((ruling.first, 0), (ruling.second, 1))
    )
    return first, second
