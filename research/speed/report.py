"""Seconds from stored judgments to a written report."""

import argparse
import json
import os
import platform
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...benchmarks.baselines import Baseline, longest, random_guess, shortest
from ...benchmarks.evaluate import evaluate
from ...benchmarks.report import markdown
from ...benchmarks.scorers import StoredScores
from ...benchmarks.suites.pairs import pairs
from ...benchmarks.types import Scorer
from ...judges.types import Case, Judgment
from ...rm.types import user_turn
from ._scripts import seconds as wall_seconds

LETTERS = "x" * 400


class Times(NamedTuple):
    """Seconds of one run."""

    report: float
    """Crediting, aggregation, bootstrap and Markdown."""
    scorers: dict[str, float]
    """Time of each scorer, which is not in `report`."""


def synthetic_cases(number: int, prompts: int, subsets: int, seed: int = 0) -> list[Case]:
    """Generate pairs with random prompts and lengths; no two subsets share a prompt."""
    random = np.random.default_rng(seed)
    prompt, lengths = random.integers(prompts, size=number).tolist(), random.integers(1, 400, (number, 2)).tolist()
    return [
        Case(
            f"case-{index}",
            user_turn(f"prompt {key}"),
            (LETTERS[:first], LETTERS[:second]),
            (0,),
            f"subset-{key % subsets:02d}",
            f"prompt {key}",
        )
        for index, (key, (first, second)) in enumerate(zip(prompt, lengths, strict=True))
    ]


def timed(scorer: Scorer, seconds: dict[str, float]) -> Scorer:
    """Wrap a scorer so that it records its time in `seconds`."""

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        start = time.perf_counter()
        judged = scorer(cases)
        seconds[scorer.name] = time.perf_counter() - start
        return judged

    timed_scorer = Baseline(scorer.name, judge)
    timed_scorer.role = scorer.role
    return timed_scorer


def report_times(number: int = 100_000, prompts: int = 85_000, subsets: int = 20, samples: int = 1000) -> Times:
    """Measure one report of two stored models and the three cheap baselines.

    100,000 cases use about 59,000 of 85,000 prompts: 85,000 (1 - e^(-100/85)).
    """
    cases, random = synthetic_cases(number, prompts, subsets), np.random.default_rng(1)
    drawn = [random.normal((0.5 + index, 0.0), 1.0, (number, 2)).tolist() for index in range(2)]
    models = [
        StoredScores(f"model-{index}", {case.id: tuple(row) for case, row in zip(cases, rows, strict=True)})
        for index, rows in enumerate(drawn)
    ]
    seconds: dict[str, float] = {}
    scorers = [timed(scorer, seconds) for scorer in [*models, longest(), shortest(), random_guess()]]
    took = wall_seconds(lambda: markdown(evaluate(pairs(), cases, scorers, samples=samples).report))
    return Times(took - sum(seconds.values()), seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the seconds of each run and the machine; the last line is JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = [report_times() for _ in range(parser.parse_args(arguments).runs)]
    for times in runs:
        scorer_seconds = ", ".join(f"{name} {seconds:.2f}" for name, seconds in times.scorers.items())
        print(f"report {times.report:.2f} s; scorers, not counted: {scorer_seconds}", flush=True)
    seconds = [times.report for times in runs]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}"
    print(json.dumps({"median_s": round(float(np.median(seconds)), 2), "max_s": round(max(seconds), 2), "on": machine}))


if __name__ == "__main__":
    main()
