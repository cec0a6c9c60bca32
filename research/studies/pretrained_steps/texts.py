"""Texts of the study: labelled steps of PRM800K, final answers of ZeroEval, and solutions with known first errors.

They are written to one file in the cache, named by its hash, so that jobs need no data. Parts are by problem, over all
sources: a problem that two sources have is in the same part of both.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....benchmarks.statistics.first_error import NONE
from ....rm.data.conversation_split import normal_prompt
from ....rm.data.readers import read_rows
from .._runs.texts_file import store_texts, stored_texts

PARTS = {"train": range(14), "validation": range(14, 16), "test": range(16, 20)}
"""Twentieths of the problems."""
SOURCES = {
    "prm800k": "data2/prm800k_phase1/steps.jsonl.gz",
    "mr_gsm8k": "data2/mr_gsm8k/traces.jsonl.gz",
    "big_bench_mistake": "data2/big_bench_mistake/traces.jsonl.gz",
    "gsm8k": "data/zeroeval_math/gsm.public.jsonl.gz",
    "math-l5": "data/zeroeval_math/math-l5.public.jsonl.gz",
}
ZEROEVAL = ("gsm8k", "math-l5")
LONGEST, LONGEST_TESTED = 900, 800
"""Characters of a problem with its steps, in training and in tests."""
STEP_END = re.compile(r"(?<=[.!?])\s+|\n+")


class Trace(NamedTuple):
    """A solution with the index of its first wrong step, -1 for none."""

    problem: str
    steps: Sequence[str]
    first_error: int


class Labelled(NamedTuple):
    """A problem, the steps up to one that is labelled, and whether the label is right."""

    problem: str
    steps: Sequence[str]
    right: bool


class Candidates(NamedTuple):
    """Solutions of a problem by several models, their final answers, and which are right."""

    problem: str
    solutions: Sequence[Sequence[str]]
    answers: Sequence[str]
    right: Sequence[bool]


class Texts(NamedTuple):
    """Training texts by kind of label, test traces by set, and candidates by set."""

    labelled: Mapping[str, Sequence[Labelled]]
    traces: Mapping[str, Sequence[Trace]]
    candidates: Mapping[str, Sequence[Candidates]]


class Numbers(NamedTuple):
    """Numbers of texts; smaller ones are a dry run."""

    labels: int = 600
    wrong: int = 2
    """Wrong solutions of a test problem of PRM800K."""
    traces: int = 100
    """Traces of each of the other two sets."""
    problems: int = 16
    """Problems of each set of candidates."""
    candidates: int = 8


def prepared(data: Path, cache: Path, numbers: Numbers, seed: int) -> str:
    """Write the texts to the cache and return their name."""
    draw = np.random.default_rng(seed)
    rows = {name: [row.values for row in read_rows(str(data / file))] for name, file in SOURCES.items()}
    texts = Texts(
        {
            "process": _balanced(draw, _labelled_steps(rows["prm800k"]))[: numbers.labels],
            "outcome": _balanced(draw, _labelled_answers(rows))[: numbers.labels],
        },
        {
            "validation": _prm_traces(draw, rows["prm800k"], "validation", numbers.wrong),
            "prm800k": _prm_traces(draw, rows["prm800k"], "test", numbers.wrong),
            "mr_gsm8k": _halved(_sample(draw, _traces(rows["mr_gsm8k"]), numbers.traces)),
            "big_bench_mistake": _sample(draw, _traces(rows["big_bench_mistake"]), numbers.traces),
        },
        {name: _sample(draw, _candidates(draw, rows[name], numbers), numbers.problems) for name in ZEROEVAL},
    )
    return store_texts(cache, texts)


@lru_cache(maxsize=1)
def load_texts(cache: Path, name: str) -> Texts:
    """Read the texts of a name."""
    values = stored_texts(cache, name)
    return Texts(
        *(
            {key: [of_row(*row) for row in rows] for key, rows in part.items()}
            for of_row, part in zip((Labelled, Trace, Candidates), values, strict=True)
        )
    )


def part_of(problem: str) -> str:
    """Return the part that a problem is in."""
    digest = hashlib.sha256(f"pretrained steps|{normal_prompt(problem)}".encode()).hexdigest()
    twentieth = int(digest, 16) % 20
    return next(part for part, twentieths in PARTS.items() if twentieth in twentieths)


# ---- PRM800K ----


def _labelled_steps(rows: Sequence[Mapping[str, Any]]) -> list[Labelled]:
    """Return every step that is rated good or bad, behind the steps before it; neutral ones are left out."""
    return [
        Labelled(row["prompt"], [*row["prefix"], candidate["text"]], candidate["rating"] == 1)
        for row in rows
        for candidate in row["candidates"]
        if part_of(row["prompt"]) == "train" and candidate["rating"] in (1, -1) and _length(row, candidate) <= LONGEST
    ]


def _prm_traces(draw: np.random.Generator, rows: Sequence[Mapping[str, Any]], part: str, number: int) -> list[Trace]:
    """Return the finished solution of each problem, and `number` that end with a step rated bad, behind good ones."""
    by_problem: dict[str, dict[bool, list[Trace]]] = {}
    for row in rows:
        if part_of(row["prompt"]) != part:
            continue
        of_kind = by_problem.setdefault(row["prompt"], {True: [], False: []})
        for candidate in row["candidates"]:
            steps = [*row["prefix"], candidate["text"]]
            if _length(row, candidate) > LONGEST_TESTED:
                continue
            if candidate["rating"] == -1:
                of_kind[False].append(Trace(row["prompt"], steps, len(row["prefix"])))
            elif candidate["rating"] == 1 and candidate["final"]:
                of_kind[True].append(Trace(row["prompt"], steps, NONE))
    return [
        trace
        for of_kind in by_problem.values()
        for trace in (*of_kind[True][:1], *_sample(draw, of_kind[False], number))
    ]


def _length(row: Mapping[str, Any], candidate: Mapping[str, Any]) -> int:
    return len(row["prompt"]) + sum(map(len, row["prefix"])) + len(candidate["text"])


# ---- traces of other sets ----


def _traces(rows: Sequence[Mapping[str, Any]]) -> list[Trace]:
    traces = [
        Trace(row["prompt"], row["steps"], NONE if row["first_error"] is None else row["first_error"]) for row in rows
    ]
    return [trace for trace in traces if len(trace.problem) + sum(map(len, trace.steps)) <= LONGEST_TESTED]


def _halved(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces, all wrong, and the steps before the error of each as a solution without one."""
    before = [Trace(trace.problem, trace.steps[: trace.first_error], NONE) for trace in traces if trace.first_error > 0]
    return [*traces, *before]


# ---- ZeroEval ----


def solution_steps(output: str) -> list[str]:
    """Return the sentences and lines of a reply's field `reasoning`, or of the whole reply where there is no JSON."""
    try:
        start = output.index("{")
        reasoning = json.JSONDecoder(strict=False).raw_decode(output[start:])[0]["reasoning"]
    except (ValueError, KeyError, TypeError):
        reasoning = output
    return [step.strip() for step in STEP_END.split(str(reasoning)) if step.strip()]


def _labelled_answers(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Labelled]:
    """Return whole solutions with the label of their final answer."""
    return [
        Labelled(row["question"], steps, candidate["correct"])
        for name in ZEROEVAL
        for row in rows[name]
        if part_of(row["question"]) == "train"
        for candidate in row["candidates"]
        if candidate["correct"] is not None
        and (steps := solution_steps(candidate["output"]))
        and len(row["question"]) + sum(map(len, steps)) <= LONGEST
    ]


def _candidates(draw: np.random.Generator, rows: Sequence[Mapping[str, Any]], numbers: Numbers) -> list[Candidates]:
    """Return problems of the test with sampled candidates, of which one at least is right and one wrong."""
    found = []
    for row in rows:
        if part_of(row["question"]) != "test":
            continue
        usable = [
            (steps, str(candidate["parsed_answer"]), candidate["correct"])
            for candidate in row["candidates"]
            if candidate["correct"] is not None
            and (steps := solution_steps(candidate["output"]))
            and len(row["question"]) + sum(map(len, steps)) <= LONGEST_TESTED
        ]
        chosen = _sample(draw, usable, numbers.candidates)
        if len(chosen) == numbers.candidates and len({right for *_, right in chosen}) == 2:
            found.append(Candidates(row["question"], *zip(*chosen, strict=True)))
    return found


# ---- sampling ----


def _balanced(draw: np.random.Generator, labelled: Sequence[Labelled]) -> list[Labelled]:
    """Return as many right as wrong ones, in turn."""
    sides = [[some for some in labelled if some.right == right] for right in (True, False)]
    shuffled = [_sample(draw, side, len(side)) for side in sides]
    return [some for both in zip(*shuffled, strict=False) for some in both]


def _sample(draw: np.random.Generator, values: Sequence[Any], number: int) -> list[Any]:
    return [values[index] for index in draw.permutation(len(values))[:number]]
