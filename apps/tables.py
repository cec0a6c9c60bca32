"""Cases and scores on disk: two Parquet tables joined by `case`, which every view and re-scoring reads."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..benchmarks.evaluate import Evaluation
from ..rm.types import prompt_text

ITEMS, SCORES = "items.parquet", "scores.parquet"


def write_items(evaluation: Evaluation, folder: Path) -> None:
    """One row per case: its texts, the right answers, subset and cluster."""
    cases = evaluation.cases
    columns = {
        "case": [case.id for case in cases],
        "subset": [case.subset for case in cases],
        "cluster": [case.cluster for case in cases],
        "prompt": [prompt_text(case.prompt) for case in cases],
        "messages": [json.dumps(case.prompt, ensure_ascii=False) for case in cases],
        "answers": [list(case.answers) for case in cases],
        "best": [list(case.best) for case in cases],
    }
    pq.write_table(pa.table(columns), folder / ITEMS)


def write_scores(evaluation: Evaluation, folder: Path) -> None:
    """One row per scorer and case: a score per answer in the case's order, or why there is none."""
    rows = [
        {
            "scorer": name,
            "case": judgment.case,
            "scores": list(judgment.scores) or None,
            "abstained": judgment.abstained or None,
            "margin": _margin(case.best, judgment.scores) if judgment.scores else None,
        }
        for name, judgments in evaluation.judgments.items()
        for case, judgment in zip(evaluation.cases, judgments, strict=True)
    ]
    kinds = {"scorer": pa.string(), "case": pa.string(), "scores": pa.list_(pa.float64())}
    kinds |= {"abstained": pa.string(), "margin": pa.float64()}
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(kinds.items()))), folder / SCORES)


def _margin(best: tuple[int, ...], scores: tuple[float, ...]) -> float:
    """The lowest right answer's score minus the highest wrong one's: above 0 is right, 0 a tie."""
    return min(scores[i] for i in best) - max(score for i, score in enumerate(scores) if i not in best)
