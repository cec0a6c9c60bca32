"""Human labels of the cases of a run, and the accuracies and scores of its judges corrected by these labels."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ...benchmarks.corrections import HumanLabel, correct, credit, score_margin, sentence
from ...benchmarks.report import markdown
from ...judges.case_rows import stated_id
from ...judges.types import Case
from ...rm.data.pairs import OnBadRow, collect, is_number, parse_pair
from ...rm.errors import DataError
from ...rm.types import OVERALL, completion_text, content_hash, prompt_text
from ..runs.finished import open_finished
from ..runs.run_folder import log, log_report, replace_file, replace_text, write_json

CREDITS = {"agree": 1.0, "tie": 0.5, "disagree": 0.0}
"""Verdict of an annotation in the inspector -> credit of the labelled response."""
PREFIX = "Corrected by human labels: "
"""Beginning of the report's notes on corrected figures."""
CORRECTIONS = "corrections.json"


class CaseLabels(NamedTuple):
    """Labels by case id, averaged over annotators, and the number of unused rows (other case or text, or invalid)."""

    labels: dict[str, HumanLabel]
    unused: int


def read_labels(source: str, cases: Sequence[Case], on_bad_row: OnBadRow = "refuse") -> CaseLabels:
    """Read the human labels of cases from annotations of the inspector, or from rows that name or contain a case.

    A row has `case` (or `id`, and `subset` if the cases have one) and `verdict` (agree, tie or disagree with the
    label), `best` (index or indices of the best response) or `scores` (a number for each response); or it is a
    preference pair with the texts of a case and an overall label. Only the last row of each annotator (`who`) counts.
    Annotations of other texts under the same id are not used. Raise `DataError` if there is no label of these cases.
    """
    by_id = {case.id: case for case in cases}
    by_texts = {_texts(case.prompt, case.texts): case for case in cases}

    def parse(row: Mapping[str, Any]) -> tuple[str, str, HumanLabel] | None:
        if "chosen" in row:
            pair = parse_pair(row)
            case = by_texts.get(_texts(pair.prompt, [completion_text(pair.chosen), completion_text(pair.rejected)]))
            label = None
            if case and OVERALL in pair.wins:
                label = _pair_label(case, completion_text(pair.chosen), pair.wins[OVERALL])
        else:
            if (name := stated_id(row)) is None:
                raise ValueError(f"no column 'case' or 'id': the row has {', '.join(map(str, row)) or 'nothing'}")
            case = by_id.get(name) or by_id.get(f"{row.get('subset')}/{name}")
            label = case and _label(case, row)
        return (case.id, str(row.get("who", "")), label) if case and label else None

    rows, report = collect(source, parse, on_bad_row)
    by_reader = {row[:2]: row[2] for row in rows if row}
    if not by_reader:
        raise DataError(
            f"{source}: none of its {len(rows)} labels is for a case of this run; label cases such as '{cases[0].id}'"
        )
    by_case: dict[str, list[HumanLabel]] = defaultdict(list)
    for (case, _), label in by_reader.items():
        by_case[case].append(label)
    means = {case: HumanLabel(*map(_mean, zip(*labels, strict=True))) for case, labels in by_case.items()}
    return CaseLabels(means, rows.count(None) + len(report.dropped))


def _mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN without any."""
    stated = [value for value in values if value == value]
    return fmean(stated) if stated else float("nan")


def _texts(prompt: Any, responses: Sequence[str]) -> tuple[str, frozenset[str]]:
    return prompt_text(prompt), frozenset(responses)


def _pair_label(case: Case, chosen: str, probability: float) -> HumanLabel:
    """Return the label of a pair whose response `chosen` is preferred with this probability."""
    return HumanLabel(probability if case.texts.index(chosen) in case.best else 1 - probability)


def _label(case: Case, row: Mapping[str, Any]) -> HumanLabel | None:
    """Return the label of a row. None for an annotation of other texts. Raise `ValueError` if the label is invalid."""
    size = len(case.answers)
    if "verdict" in row:
        if row["verdict"] not in CREDITS:
            raise ValueError(f"'verdict' must be one of {', '.join(CREDITS)}; got {row['verdict']!r:.60}")
        current = content_hash(json.dumps([case.prompt, case.texts, case.best]))
        return HumanLabel(CREDITS[row["verdict"]]) if row.get("texts", current) == current else None
    if "scores" in row:
        scores = row["scores"]
        if not isinstance(scores, list) or len(scores) != size or not all(map(is_number, scores)):
            raise ValueError(f"'scores' must be a list of {size} numbers, one for each response, got {scores!r:.60}")
        return HumanLabel(credit(score_margin(case, scores)), float(np.mean(scores)))
    best = row.get("best")
    stated = best if isinstance(best, list) else [best]  # a cell of a CSV file is text
    indices = [int(index) if isinstance(index, str) and index.isdecimal() else index for index in stated]
    if not indices or not all(type(index) is int and 0 <= index < size for index in indices):
        raise ValueError(f"no 'verdict' or 'scores', and 'best' is not one or more indices below {size}: {best!r:.60}")
    return HumanLabel(credit(score_margin(case, [float(index in indices) for index in range(size)])))


def correct_run(folder: str, source: str, width: float, on_bad_row: OnBadRow = "refuse") -> dict[str, Any]:
    """Correct a finished run's results by human labels. Save them in the run's report and `corrections.json`.

    `width` is the target width of the interval of a share. Notes of an earlier correction are replaced.
    """
    run = open_finished(folder)
    labels, unused = read_labels(source, run.cases, on_bad_row)
    models = [row["scorer"] for row in run.summary["rows"] if row["role"] == "model"]
    corrected = {name: correct(run.cases, run.of(name, run.cases), labels) for name in models}
    sentences = [
        f"{PREFIX}{sentence(name, figure, correction, width)}"
        for name, figures in corrected.items()
        for figure, correction in figures.items()
    ]
    if not sentences:
        raise DataError(f"{source}: no model of {folder} judged a labelled case; label cases that the run judged")
    if unused:
        log(f"{source}: {unused} rows are not used; they are for other cases or texts, or have no label")
    report = run.report([*(note for note in run.summary["notes"] if not note.startswith(PREFIX)), *sentences])
    facts = {
        name: {
            figure: {"judge": correction.judge, "p": correction.p}
            | {method: estimate._asdict() for method, estimate in correction.by_method.items()}
            for figure, correction in figures.items()
        }
        for name, figures in corrected.items()
    }
    replace_text(run.folder / "report.md", markdown(report))
    replace_file(run.folder / "summary.json", lambda path: write_json(path, asdict(report)))
    write_json(run.folder / CORRECTIONS, {"labels": len(labels), "unused": unused, "width": width, "figures": facts})
    log_report("\n".join(sentences))
    return {"run": folder, "labels": len(labels), "unused_labels": unused, "corrected": facts}
