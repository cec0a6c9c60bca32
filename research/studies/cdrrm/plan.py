"""Jobs of the study `cdrrm`, and their results by arm, sweep point and seed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....tests.stand_ins.simulated_judge import Biases
from .._runs.job_cache import Arrays, Job
from .arms import ARMS, BLIND, OTHER_PROMPT, Asked, Corpus, Judged, Learnt, Simulated, Source
from .measures import Measures, doublings, measures
from .models import LanguageModel, Reader

MIDDLE = "middle"
POINTS = {
    "mild": Biases(reads=0.5, position=0.2, length=0.5, style=0.2, error=0.05),
    MIDDLE: Biases(),
    "position": Biases(position=1.2),
    "length and style": Biases(length=1.8, style=0.8),
    "noisy rules": Biases(error=0.2),
}
"""Sweep over a simulated judge's biases; fixed before the first run."""
BARE, ORACLE, TRAINED, MODEL = "bare", "oracle", "trained", "language model"
SIZES = (100, 300, 1000, 3000)
MASKS = (1, 2, 3)
MASKED = ("prompt only", "contrast")


@dataclass(frozen=True)
class Plan:
    """Numbers of seeds, pairs and steps."""

    seed: int = 0
    seeds: int = 5
    pairs: int = 5600
    corrupt_pairs: int = 2600
    sizes: tuple[int, ...] = SIZES
    corrupt_size: int = 1000
    items: int = 60
    nulls: int = 500
    reading: int = 2400
    steps: int = 300

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        return cls(
            seed,
            seeds=2,
            pairs=5 * rows,
            corrupt_pairs=5 * rows,
            sizes=(rows, 2 * rows),
            corrupt_size=rows,
            items=rows,
            nulls=rows,
            reading=2,
            steps=2,
        )

    @property
    def seed_range(self) -> range:
        """Return the seeds."""
        return range(self.seed, self.seed + self.seeds)

    @property
    def most(self) -> int:
        """Return the size of the largest training set."""
        return self.sizes[-1]

    def asked(self, seed: int) -> Asked:
        """Return the held-out comparisons on which every arm is judged."""
        return Asked(seed, self.items)

    def corpus(self, seed: int) -> Corpus:
        """Return the training corpus of the generators."""
        return Corpus(seed, self.pairs)

    def corrupted(self, seed: int, filtered: bool) -> Corpus:
        """Return a corpus of which a quarter of the rubrics are about random checks."""
        return Corpus(seed, self.corrupt_pairs, corrupt=0.25, filtered=filtered)

    def leaky(self, seed: int) -> Corpus:
        """Return a corpus in which the preferred response is always A."""
        return Corpus(seed, self.corrupt_pairs, filtered=False, leaky=True)

    def learnt(self, seed: int, n: int, **options: Any) -> Learnt:
        """Return the job of a trained generator's rubrics."""
        return Learnt(self.corpus(seed), n, self.asked(seed), **options)

    def model(self, seed: int) -> LanguageModel:
        """Return the job of the language model's rubrics."""
        return LanguageModel(self.reader, self.corpus(seed), self.most, self.steps, self.asked(seed))

    @property
    def reader(self) -> Reader:
        """Return the start model of every seed."""
        return Reader(self.reading)

    def sources(self, seed: int) -> dict[str, Source | None]:
        """Return the rubric sources of the sweep's arms."""
        simulated = {name: Simulated(name, self.asked(seed)) for name in ARMS if name != OTHER_PROMPT}
        trained = {f"{TRAINED} {self.most}": self.learnt(seed, self.most), MODEL: self.model(seed)}
        return {BARE: None, **simulated, **trained}

    def sweep(self, seed: int) -> dict[tuple[str, str], Judged]:
        """Return the judging jobs by arm and sweep point."""
        return {
            (name, point): Judged(source, self.asked(seed), biases)
            for name, source in self.sources(seed).items()
            for point, biases in POINTS.items()
        }

    def middle(self, seed: int) -> dict[str, Judged]:
        """Return the judging jobs at the middle point alone."""
        asked, biases = self.asked(seed), POINTS[MIDDLE]
        sources: dict[str, Source] = {f"{TRAINED} {n}": self.learnt(seed, n) for n in self.sizes[:-1]}
        for name, filtered in (("filtered", True), ("unfiltered", False)):
            sources[f"corrupted, {name}"] = Learnt(self.corrupted(seed, filtered), self.corrupt_size, asked)
        sources["written for BA"] = self.learnt(seed, self.most, swapped=True)
        judged = {name: Judged(source, asked, biases) for name, source in sources.items()}
        for name in MASKED:
            judged |= {f"{name}, {mask} masked": Judged(Simulated(name, asked), asked, biases, mask) for mask in MASKS}
        for name in ("contrast", OTHER_PROMPT):
            judged[f"{name}, blind judge"] = Judged(Simulated(name, asked), asked, BLIND)
        first = Asked(seed, self.items, chosen_first=True)
        leaks = {"leak, shuffled": asked, "leak, chosen first": first}
        for name, shown in leaks.items():
            source = Learnt(self.leaky(seed), self.corrupt_size, shown)
            judged[name] = Judged(source, shown, biases)
        return judged

    def nulls_of(self, seed: int) -> dict[str, Judged]:
        """Return the judging jobs on pairs of equally good responses; the last two have leaks."""
        asked, first = (Asked(seed, self.nulls, chosen_first, equal=True) for chosen_first in (False, True))
        biases, corpus = POINTS[MIDDLE], self.corpus(seed)
        fair = Learnt(corpus, self.most, asked)
        leaky = Learnt(self.leaky(seed), self.corrupt_size, first)
        return {
            BARE: Judged(None, asked, biases),
            "contrast": Judged(Simulated("contrast", asked), asked, biases),
            f"{TRAINED} {self.most}": Judged(fair, asked, biases),
            "leak: winner is A in training and use": Judged(leaky, first, biases),
            "the same, judge without a taste": Judged(leaky, first, BLIND),
        }

    def stages(self) -> list[tuple[str, Sequence[Job]]]:
        """Return the jobs in order of dependency."""
        corpora = [
            job
            for s in self.seed_range
            for job in (self.corpus(s), self.leaky(s), *(self.corrupted(s, filtered) for filtered in (True, False)))
        ]
        judged = [job for s in self.seed_range for job in (*self.sweep(s).values(), *self.middle(s).values())]
        nulls = [job for s in self.seed_range for job in self.nulls_of(s).values()]
        sources = [job.source for job in [*judged, *nulls] if job.source is not None]
        models = [source for source in sources if isinstance(source, LanguageModel)]
        others = [source for source in sources if not isinstance(source, LanguageModel)]
        return [
            ("teacher and filter", corpora),
            ("rubrics", others),
            ("reading lessons", [self.reader]),
            ("language models", models),
            ("judging", [*judged, *nulls]),
        ]


class Results(NamedTuple):
    """All results that the report shows."""

    plan: Plan
    sweep: Mapping[tuple[str, str], list[Measures]]
    """Maps arm and point to the measures of each seed."""
    middle: Mapping[str, list[Measures]]
    won: Mapping[str, list[np.ndarray]]
    """Maps an arm to `won` [P, 2] of each seed, at the middle point."""
    nulls: Mapping[str, list[np.ndarray]]
    corpora: list[dict[str, Any]]

    @classmethod
    def of(cls, plan: Plan, cache: Path) -> "Results":
        """Read the results from the cache, or compute them."""
        sweep: dict[tuple[str, str], list[Measures]] = {}
        middle: dict[str, list[Measures]] = {}
        won: dict[str, list[np.ndarray]] = {}
        nulls: dict[str, list[np.ndarray]] = {}
        for seed in plan.seed_range:
            lengths = _lengths(plan.asked(seed))
            for (arm, point), job in plan.sweep(seed).items():
                result = job.result(cache)
                sweep.setdefault((arm, point), []).append(_measured(result, lengths))
                if point == MIDDLE:
                    middle.setdefault(arm, []).append(_measured(result, lengths))
                    won.setdefault(arm, []).append(result["won"])
            for arm, job in plan.middle(seed).items():
                result = job.result(cache)
                middle.setdefault(arm, []).append(_measured(result, lengths))
                won.setdefault(arm, []).append(result["won"])
            for arm, job in plan.nulls_of(seed).items():
                nulls.setdefault(arm, []).append(job.result(cache)["won"])
        corpora = [_corpus_facts(plan.corpus(seed).result(cache)) for seed in plan.seed_range]
        return cls(plan, sweep, middle, won, nulls, corpora)

    def values(self, arm: str, measure: str, point: str = MIDDLE) -> np.ndarray:
        """Return a measure of an arm for each seed."""
        measured = self.middle[arm] if point == MIDDLE else self.sweep[arm, point]
        return np.array([getattr(measured_seed, measure) for measured_seed in measured])

    def as_json(self) -> dict[str, Any]:
        """Return every measure by point, arm and seed."""
        points = {point: {} for point in POINTS}
        for (arm, point), measured in self.sweep.items():
            points[point][arm] = [measured_seed._asdict() for measured_seed in measured]
        rest = {arm: [measured_seed._asdict() for measured_seed in measured] for arm, measured in self.middle.items()}
        return {"sweep": points, "middle": rest, "corpora": self.corpora}


def _lengths(asked: Asked) -> np.ndarray:
    return doublings([(pair.a, pair.b) if pair.preferred == "A" else (pair.b, pair.a) for pair in asked.shown()])


def _measured(result: Arrays, lengths: np.ndarray) -> Measures:
    return measures(result["won"], result["slot"], lengths, float(result["rules"]), float(result["without"]))


def _corpus_facts(result: Arrays) -> dict[str, Any]:
    return {
        "kept": len(result["place"]),
        "useful": float(result["useful"].mean()),
        "rejected": json.loads(str(result["reasons"])),
    }
