"""Experiment trackers: the metrics of a finished run of `rewardlab eval` or `judge`, logged once."""

import importlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...benchmarks.types import Report
from ...rm.errors import UsageError
from ...rm.io.escaping import redact
from ...rm.registry.settings import setting

TRACKERS = ("none", "tensorboard", "wandb", "trackio")


def report_to_setting() -> Any:
    """Return the setting `report_to`. `settings.preflight` checks that the package of the tracker is installed."""
    return setting(
        "none",
        "Experiment tracker to which a finished run logs accuracy, interval, abstentions and cost.",
        choices=TRACKERS,
        advanced=True,
    )


def report_figures(report: Report, accounts: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, float]:
    """Return the metrics of a report as `SUITE/cases` and `SUITE/SCORER/NAME`. Metrics without a value are left out.

    The names are accuracy, accuracy_low and accuracy_high (95 % interval; shares in [0, 1]) and abstentions (cases).
    For judges, `accounts` adds coverage (share of the cases that the judge decided), agreement with the labels (share
    of right verdicts among these cases, unweighted; accuracy weighs sections as the benchmark does) and cost.
    """
    figures: dict[str, float | None] = {"cases": report.cases}
    for row in report.rows:
        value, low, high = row.overall
        of_scorer = {"accuracy": value, "accuracy_low": low, "accuracy_high": high, "abstentions": row.unscored}
        account = (accounts or {}).get(row.scorer)
        if account:
            of_scorer |= {"coverage": account["coverage"], "agreement": account["accuracy"], "cost": account["cost"]}
        figures |= {f"{row.scorer}/{name}": value for name, value in of_scorer.items()}
    return {
        _plain_name(f"{report.suite}/{name}"): float(value)
        for name, value in figures.items()
        if value is not None and math.isfinite(value)
    }


def _plain_name(name: str) -> str:
    """Return a name of letters, digits, dots, slashes, hyphens and underscores.

    >>> _plain_name("pairs/prompt-blind tf-idf/accuracy")
    'pairs/prompt-blind_tf-idf/accuracy'
    """
    return re.sub(r"[^\w./-]+", "_", name)


def log_figures(tracker: str, folder: Path, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
    """Log the metrics of the run in `folder` as scalars, with the run's settings as its configuration.

    TensorBoard's files are written to the run folder. The project of wandb or trackio is read from WANDB_PROJECT or
    TRACKIO_PROJECT; the default is rewardlab. Raise `UsageError` if the tracker fails; the run folder is complete then.
    """
    if tracker == "none":
        return
    configuration = _redact(dict(settings))
    try:
        if tracker == "tensorboard":
            _log_to_tensorboard(folder / "tensorboard", figures, configuration)
        else:
            _log_to_client(tracker, folder.name, figures, configuration)
    except Exception as error:  # each client has a family of errors of its own
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"{folder} is complete, but --report_to {tracker} failed ({reason})") from error


def _redact(value: Any) -> Any:
    """Return JSON values in which API keys and passwords within texts are replaced by asterisks."""
    if isinstance(value, dict):
        return {name: _redact(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_redact(item) for item in value]
    return redact([value])[0] if isinstance(value, str) else value


def _log_to_tensorboard(folder: Path, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]
    with SummaryWriter(str(folder)) as writer:
        writer.add_text("settings", json.dumps(settings, indent=1, default=str))
        for name, value in figures.items():
            writer.add_scalar(name, value, 0)


def _log_to_client(package: str, run_name: str, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
    """Log to `wandb`, or to `trackio`, which has the same functions."""
    projects = {"wandb": os.environ.get("WANDB_PROJECT"), "trackio": os.environ.get("TRACKIO_PROJECT")}
    client = importlib.import_module(package)
    run = client.init(project=projects[package] or "rewardlab", name=run_name, config=settings)
    run.log(dict(figures))
    run.finish()
