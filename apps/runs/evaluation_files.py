"""Files of an evaluation: report, figures, summary, and every case and score."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from ...benchmarks.evaluate import Evaluation
from ...benchmarks.report import figure, markdown, reliability_figure
from .figures import save_figure
from .run_folder import write_json
from .tables import write_items, write_scores


def write_evaluation(evaluation: Evaluation, folder: Path) -> None:
    """Write report, figures and summary, and all cases and scores as Parquet."""
    (folder / "report.md").write_text(markdown(evaluation.report), encoding="utf-8")
    save_figure(figure(evaluation.report), folder / "report.png")
    if margins := _model_margins(evaluation):
        save_figure(reliability_figure(margins), folder / "calibration.png")
    write_json(folder / "summary.json", asdict(evaluation.report))
    write_items(evaluation, folder)
    write_scores(evaluation, folder)


def _model_margins(evaluation: Evaluation) -> dict[str, np.ndarray]:
    """Return the margins of each model, for its calibration; none where they claim no probability."""
    if not evaluation.report.compares:
        return {}
    models = [row.scorer for row in evaluation.report.rows if row.role == "model" and row.scored]
    return {
        name: np.array([margin for margin in evaluation.margins[name] if margin is not None], float) for name in models
    }
