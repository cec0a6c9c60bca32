"""Judgments stored in chunks, so that an evaluation can be resumed and run in several processes."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from tqdm import tqdm

from ...benchmarks.types import Scorer
from ...judges.types import Case, Judgment
from .processes import Process, wait_for
from .run_folder import log, replace_text
from .tables import CHUNK, PLAN, PROGRESS

SECONDS = 15
"""Minimum time in seconds between two log lines on the progress of a scorer."""


def write_plan(folder: Path, cases: int, scorers: int) -> None:
    """Write the numbers of cases and scorers of an evaluation, from which its progress is computed."""
    (folder / PROGRESS).mkdir(exist_ok=True)
    replace_text(folder / PROGRESS / PLAN, json.dumps({"cases": cases, "scorers": scorers}))


class Progress:
    """Progress of a scorer as log lines, at most one per `SECONDS` seconds. Used if stderr is not a terminal."""

    def __init__(self, name: str, total: int, clock: Callable[[], float] = monotonic):
        self.name, self.total, self.clock = name, total, clock
        self.started = self.logged = clock()
        self.done = 0

    def update(self, cases: int) -> None:
        """Count judged cases, and log their number with an estimate of the remaining time."""
        self.done += cases
        now = self.clock()
        if now - self.logged >= SECONDS and self.done < self.total:
            seconds = (now - self.started) * (self.total - self.done) / self.done
            time = tqdm.format_interval(seconds)  # MM:SS
            log(f"{self.name}: {self.done} of {self.total} cases, about {time} remaining")
            self.logged = now


class ResumableScorer:
    """A scorer that stores its judgments in a folder in chunks. Each process computes its shard of the chunks.

    Chunks, and so judgments, do not depend on the number of processes or on interruptions.
    """

    def __init__(self, scorer: Scorer, folder: Path, process: Process):
        self.scorer, self.folder, self.process = scorer, folder, process
        self.name, self.role, self.contract = scorer.name, scorer.role, scorer.contract

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """Return one judgment per case. Wait for the chunks of the other processes."""
        self.work(cases)
        starts = range(0, len(cases), CHUNK)
        return [judgment for index, start in enumerate(starts) for judgment in self._read(index, cases, start)]

    def work(self, cases: Sequence[Case]) -> None:
        """Compute and store the missing chunks in this process's shard."""
        self.folder.mkdir(parents=True, exist_ok=True)
        chunks = list(enumerate(range(0, len(cases), CHUNK)))[self.process.rank :: self.process.world]
        missing = [(index, cases[start : start + CHUNK]) for index, start in chunks if not self._file(index).exists()]
        progress = Progress(self.name, sum(len(chunk) for _, chunk in missing))
        with tqdm(total=progress.total, desc=self.name, unit="case", disable=None) as bar:
            for index, chunk in missing:
                lines = [json.dumps(_judgment_json(judgment)) for judgment in self.scorer(chunk)]
                replace_text(self._file(index), "\n".join(lines))
                bar.update(len(chunk))
                if bar.disable:
                    progress.update(len(chunk))

    def _file(self, index: int) -> Path:
        return self.folder / f"{index:06d}.jsonl"

    def _read(self, index: int, cases: Sequence[Case], start: int) -> list[Judgment]:
        """Return the judgments of a chunk as soon as the process that computes the chunk has written them."""
        wait_for(self._file(index))
        rows = [json.loads(line) for line in self._file(index).read_text("utf-8").split("\n")]
        return [_judgment(case, stored) for case, stored in zip(cases[start : start + CHUNK], rows, strict=True)]


PARTIAL = ("truncated", "omitted")
"""Fields of a judgment that state whether the model read the case only in part."""


def _judgment_json(judgment: Judgment) -> Any:
    value = judgment.abstained or judgment.scores
    partial = {name: vars(judgment)[name] for name in PARTIAL if vars(judgment)[name]}
    return {"value": value} | partial if partial else value


def _judgment(case: Case, stored: Any) -> Judgment:
    facts = dict(stored) if isinstance(stored, dict) else {"value": stored}
    value = facts.pop("value")
    result = {"abstained": value} if isinstance(value, str) else {"scores": tuple(value)}
    return Judgment(case.id, **result, **facts)
