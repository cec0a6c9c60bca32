"""Files of an evaluation: report, figures, summary, cases and scores."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from ...benchmarks.evaluate import Evaluation
from ...benchmarks.report import figure, markdown, reliability_figure
from .run_folder import save_figure, write_json
from .tables import write_items, write_scores


def write_evaluation(evaluation: Evaluation, folder: Path) -> None:
    """Write report, figures and summary, and all cases and scores as Parquet."""
    (folder / "report.md").write_text(markdown(evaluation.report), encoding="utf-8")
    save_figure(figure(evaluation.report), folder / "report.png")
    models = [row.scorer for row in evaluation.report.rows if row.role == "model" and row.scored]
    if models and evaluation.report.compares:  # else the margins claim no probability
        margins = {name: np.array([m for m in evaluation.margins[name] if m is not None], float) for name in models}
        save_figure(reliability_figure(margins), folder / "calibration.png")
    write_json(folder / "summary.json", asdict(evaluation.report))
    write_items(evaluation, folder)
    write_scores(evaluation, folder)
