"""Cases and scores on disk: two Parquet tables joined by `case`, which every view and re-scoring reads.

The names of files that one verb writes and another reads stand here as well.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..benchmarks.evaluate import Evaluation
from ..judges.types import Case, Judgment
from ..rm.errors import DataError
from ..rm.types import prompt_text

ITEMS, SCORES, JUDGMENTS = "items.parquet", "scores.parquet", "judgments.parquet"
STEPS = "steps.jsonl"
"""A line for each step of a policy's training, in its run folder."""
ROWS = 8192
"""Of a row group, which is what has to be read to show one row."""


def write_items(evaluation: Evaluation, folder: Path) -> None:
    """One row per case: its texts, the answers' lengths in characters, the right answers, subset and cluster."""
    cases = evaluation.cases
    columns = {
        "case": [case.id for case in cases],
        "subset": [case.subset for case in cases],
        "cluster": [case.cluster for case in cases],
        "prompt": [prompt_text(case.prompt) for case in cases],
        "messages": [json.dumps(case.prompt, ensure_ascii=False) for case in cases],
        "answers": [list(case.answers) for case in cases],
        "lengths": [list(map(len, case.answers)) for case in cases],
        "best": [list(case.best) for case in cases],
        "values": [list(case.values) for case in cases],
        "sets": [list(case.sets) for case in cases],
    }
    pq.write_table(pa.table(columns), folder / ITEMS, row_group_size=ROWS)


def write_scores(evaluation: Evaluation, folder: Path) -> None:
    """One row per scorer and case: a score per answer in the case's order, or why there is none."""
    rows = [
        {
            "scorer": name,
            "case": judgment.case,
            "scores": list(judgment.scores) or None,
            "abstained": judgment.abstained or None,
            "margin": margin(case.best, judgment.scores) if judgment.scores else None,
        }
        for name, judgments in evaluation.judgments.items()
        for case, judgment in zip(evaluation.cases, judgments, strict=True)
    ]
    kinds = {"scorer": pa.string(), "case": pa.string(), "scores": pa.list_(pa.float64())}
    kinds |= {"abstained": pa.string(), "margin": pa.float64()}
    table = pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))
    pq.write_table(table, folder / SCORES, row_group_size=ROWS)


def read_items(folder: Path) -> list[Case]:
    """The cases of a run, as they were judged."""
    return [
        Case(
            id=row["case"],
            prompt=tuple(json.loads(row["messages"])),
            answers=tuple(row["answers"]),
            best=tuple(row["best"]),
            subset=row["subset"],
            cluster=row["cluster"],
            values=tuple(row["values"]),
            sets=tuple(row["sets"]),
        )
        for row in _rows(folder / ITEMS)
    ]


def read_judgments(folder: Path) -> dict[str, dict[str, Judgment]]:
    """Scorer -> case -> judgment."""
    found: dict[str, dict[str, Judgment]] = {}
    for row in _rows(folder / SCORES):
        judgment = Judgment(row["case"], scores=tuple(row["scores"] or ()), abstained=row["abstained"] or "")
        found.setdefault(row["scorer"], {})[row["case"]] = judgment
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        return pq.ParquetFile(path).read().to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: not a table of an eval run ({error}); run rewardlab eval again") from error


def margin(best: tuple[int, ...], scores: tuple[float, ...]) -> float:
    """The lowest right answer's score minus the highest wrong one's: above 0 is right, 0 a tie.

    Where every answer is right, only equal scores are: minus their spread.
    """
    if len(best) == len(scores):
        return min(scores) - max(scores) or 1.0
    return min(scores[i] for i in best) - max(score for i, score in enumerate(scores) if i not in best)
