"""`rewardlab card`: a model card with the results of runs of this model."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ....benchmarks.scorers import open_scorer
from ....rm.contract.scoring_contract import FILE, load_contract
from ....rm.data.preference_vectors import parse_preference
from ....rm.errors import UNREADABLE, DataError, UsageError
from ....rm.io.checked_files import from_yaml
from ...publishing.exported_results import file_name, hub_results
from ...publishing.hub_upload import open_repository
from ...publishing.model_card import Measured, card
from ...runs.finished import Finished, open_finished
from ...runs.run_folder import CONFIG, replace_text, trust_option
from .settings import CardConfig

AGAIN = 8
"""Number of cases of a run that are scored again, to check that the run evaluated this model."""
RESULTS = ".eval_results"
"""Folder of a model repository from which the Hub reads the results that it shows."""
CLOSE = 1e-3
"""Relative tolerance of the comparison with stored scores, because rounding depends on the batch."""


def run_card(config: CardConfig) -> dict[str, Any]:
    """Write the model card. Raise `DataError` for a run of another model."""
    folder = Path(config.model)
    if not (folder / FILE).exists():
        raise UsageError(f"{config.model}: the folder has no {FILE}; give the folder of a trained reward model")
    path = Path(config.output) if config.output else folder / "README.md"
    if path.exists() and not config.overwrite:
        raise UsageError(f"{path} exists already; name another file with --output, or replace it with --overwrite")
    contract = load_contract(folder)
    measured = [measured_of(config, name) for name in config.runs]
    repository = open_repository(config)
    replace_text(path, card(folder, contract, measured))
    results = [str(file) for measurement in measured for file in _write_results(path.parent, measurement)]
    summary = {"card": str(path), "contract": contract.hash(), "runs": len(measured), "results": results}
    if repository:
        summary["commit"] = repository.upload(path.parent, [path.name, f"{RESULTS}/*"])
    return summary


def _write_results(folder: Path, measured: Measured) -> Iterator[Path]:
    """Write a run's results in the Hub's format, and yield the path. Yield nothing for local or partial data."""
    if entries := hub_results(measured.run, measured.row):
        path = folder / RESULTS / f"{file_name(measured.run.suite.name)}.yaml"
        path.parent.mkdir(exist_ok=True)
        replace_text(path, yaml.safe_dump(entries, sort_keys=False, allow_unicode=True))
        yield path


# ---- runs of the model ----


def measured_of(config: CardConfig, name: str) -> Measured:
    """Return a run and the row of its results for the configured model.

    Raise `DataError` unless a row has the model's scoring contract and the model reproduces its scores on a few cases.
    """
    run = open_finished(name)
    scorer = open_scorer(config.model, **_loading_options(run), **trust_option(config))
    rows = [row for row in run.summary["rows"] if row["role"] == "model" and row["contract"] == scorer.contract]
    if not rows:
        contracts = ", ".join(str(row["contract"]) for row in run.summary["rows"] if row["role"] == "model")
        raise DataError(
            f"{name} has no model with the contract {scorer.contract}, only {contracts}; name a run of this model"
        )
    cases = [case for case in run.cases if any(run.judgments[row["scorer"]][case.id].scores for row in rows)][:AGAIN]
    again = [judgment.scores for judgment in scorer(cases)]
    for row in rows:
        stored = [run.judgments[row["scorer"]][case.id].scores for case in cases]
        if cases and all(_equal_scores(*scores) for scores in zip(stored, again, strict=True)):
            return Measured(run, row)
    raise DataError(f"{name} has the contract of {config.model}, but different scores; give a run of this model")


def _loading_options(run: Finished) -> dict[str, Any]:
    """Return the options with which the run opened its models."""
    try:
        recipe = from_yaml((run.folder / CONFIG).read_text(encoding="utf-8"))
        preference = parse_preference(recipe["preference"]) if recipe.get("preference") else None
        return {"objective": recipe.get("objective"), "kind": recipe.get("read_as"), "preference": preference}
    except UNREADABLE as error:
        raise DataError(f"{run.folder / CONFIG}: damaged ({error}); run rewardlab eval again") from error


def _equal_scores(stored: Sequence[float], computed: Sequence[float]) -> bool:
    """Return whether the stored and the computed scores of a case agree within the tolerance."""
    size = max(map(abs, stored), default=0.0)
    return len(stored) == len(computed) and np.allclose(stored, computed, rtol=CLOSE, atol=CLOSE * size)
