"""`rewardlab score`: rewards of conversations in files, with the file and row of each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ....rm.contract.conformal import residual_bounds
from ....rm.contract.loading_settings import loading_options
from ....rm.contract.readings import Rated, Reading, rate_with_readings, readings
from ....rm.data.pairs import LocatedExample, load_located_examples
from ....rm.data.scored_rows import load_judged, reward_columns
from ....rm.errors import DataError, UsageError
from ....rm.kinds.ensemble.combination import deviation
from ....rm.types import Example, ReportsSpread
from ...runs.processes import gathered_columns, process
from ...runs.run_folder import log, log_rows, replace_file, trust_option, write_rows
from ...serving.client import TooLong
from ...serving.open_model import is_served, open_model
from ...serving.replicas import Replicas, open_replicas
from .settings import ScoreConfig

OMITTED = "omitted"
"""Internal column with the texts that the chat template omits from each row. It is counted and not written."""


def run_score(config: ScoreConfig) -> dict[str, Any]:
    """Score all conversations. Refuse conversations beyond the maximum length, or truncate and count them."""
    here = process(config.processes, "score")
    if Path(config.output).is_dir():
        raise UsageError(f"--output {config.output} is a folder; name a file for the scores")
    if Path(config.output).exists() and not config.overwrite:
        raise UsageError(
            f"{config.output} exists already; name another file with --output, or replace it with --overwrite"
        )
    placed, rows = load_located_examples(config.data, on_bad_row=config.on_bad_row)
    log_rows("data", rows)
    model = _open_model(config)
    bounds = _bounds(model, config)
    columns_here = _columns(model, placed[here.rank :: here.world], config, bounds)
    columns = gathered_columns(columns_here, len(placed), here)
    summary = {"scores": config.output, "rows": len(placed), "dropped": len(rows.dropped)}
    omitted = [text for text in columns.pop(OMITTED) if text]
    summary |= {"truncated": sum(columns["truncated"]), "omitted": len(omitted), "contract": model.contract.hash()}
    if not here.leads:
        return summary | {"rank": here.rank}
    if summary["truncated"]:
        log(f"data: {summary['truncated']} of {len(placed)} conversations exceed the model's max_length and were cut")
    if omitted:
        log(f"data: the chat template leaves out text of {len(omitted)} of {len(placed)} rows: {omitted[0][:60]!r}")
    if missing := np.isnan([columns[name] for name in reward_columns(model.contract.objectives)]).any(axis=0).sum():
        log(f"data: {missing} of {len(placed)} rows have no score, for example because no step was read")
    replace_file(Path(config.output), lambda path: _write_columns(columns, path, config.output.endswith(".parquet")))
    return summary


def _open_model(config: ScoreConfig) -> Any:
    if (config.servers or is_served(config.model)) and (stated := loading_options(config)):
        raise UsageError(f"the contract of the served model determines --{next(iter(stated))}; leave this option out")
    if config.servers:
        model: Any = open_replicas(config.servers, "--servers", in_flight=config.in_flight)
    else:
        model = open_model(config.model, check=config.check, **loading_options(config), **trust_option(config))
    if isinstance(model, Replicas):
        model.truncate = config.on_long == "truncate"
    return model


def _columns(
    model: Any, placed: Sequence[LocatedExample], config: ScoreConfig, bounds: dict[str, np.ndarray] | None
) -> dict[str, list[Any]]:
    """Score the examples of this process and return the output columns by name."""
    examples = [row.example for row in placed]
    try:
        if config.on_long == "refuse" and not isinstance(model, Replicas):
            _refuse_long(placed, readings(model, examples), model.contract.max_length)
        scored = rate_with_readings(model, examples)
    except TooLong as error:
        remedy = "" if "--on_long" in str(error) else ": with --on_long truncate"
        raise TooLong(f"{error}{remedy}", error.lengths, error.limit) from error
    _refuse_identical_inputs(placed, scored)
    columns: dict[str, list[Any]] = {"id": [row.id for row in placed]}
    columns |= {"file": [row.file for row in placed], "row": [row.row for row in placed]}
    columns["truncated"] = [facts.truncated for facts in scored.readings]
    columns[OMITTED] = [facts.omitted for facts in scored.readings]
    names = reward_columns(model.contract.objectives)
    columns |= {name: scored.rewards[:, k].tolist() for k, name in enumerate(names)}
    added, spread = {}, _spread(model, examples)
    if spread is not None:
        added["spread"] = spread
    if bounds is not None:
        added |= {name: scored.rewards + bound * (1 if spread is None else spread) for name, bound in bounds.items()}
    for name, values in added.items():
        labels = [name] if len(names) == 1 else [f"{name}_{objective}" for objective in model.contract.objectives]
        columns |= zip(labels, values.T.tolist(), strict=True)
    return columns


def _refuse_long(placed: Sequence[LocatedExample], read: Sequence[Reading], limit: int | None) -> None:
    """Raise an error that names the first conversation that would be truncated."""
    long = [index for index, facts in enumerate(read) if facts.truncated]
    if long:
        first = placed[long[0]]
        raise TooLong(
            f"{len(long)} of {len(placed)} conversations are longer than the {limit} tokens that the model reads, the "
            f"first in {first.file}, row {first.row}; shorten them, or truncate them with --on_long truncate",
            [facts.length for facts in read],
            limit,
        )


def _refuse_identical_inputs(placed: Sequence[LocatedExample], scored: Rated) -> None:
    """Raise an error if the chat template omits text so that two different conversations have the same tokens."""
    omitted = [index for index, facts in enumerate(scored.readings) if facts.omitted and not facts.truncated]
    rows: dict[Any, list[int]] = {}
    for index, facts in enumerate(scored.readings) if omitted else ():
        rows.setdefault(facts.ids or tuple(scored.rewards[index]), []).append(index)
    for index in omitted:
        facts, row = scored.readings[index], placed[index]
        for other in rows[facts.ids or tuple(scored.rewards[index])]:
            if placed[other].example != row.example:
                raise DataError(
                    f"{row.file}, row {row.row} has the same tokens as {placed[other].file}, row {placed[other].row}, "
                    f"since the model's chat template leaves out {facts.omitted[:60]!r}; leave one of the rows out, or "
                    "use a model with a template that renders it"
                )


def _spread(model: Any, examples: list[Example]) -> Float[np.ndarray, "N K"] | None:
    """Return the standard deviation of an ensemble's rewards for each completion, or None for another model."""
    return deviation(model.spread(examples)) if isinstance(model, ReportsSpread) else None


def _bounds(model: Any, config: ScoreConfig) -> dict[str, np.ndarray] | None:
    """Return bounds [K] of a rater's score minus the reward, per objective; for an ensemble, divided by its spread."""
    if not config.calibrate:
        return None
    names = model.contract.objectives
    rated, rows = load_judged(config.calibrate, names, on_bad_row=config.on_bad_row)
    log_rows("calibrate", rows)
    examples = [completion.example for completion in rated.completions]
    scores = np.array([[completion.scores.get(name, np.nan) for name in names] for completion in rated.completions])
    rewards, read = rate_with_readings(model, examples)
    if long := [completion.id for completion, facts in zip(rated.completions, read, strict=True) if facts.truncated]:
        counts = f"calibrate: {len(long)} of {len(examples)} conversations exceed the model's max_length"
        if config.on_long == "refuse":
            raise DataError(f"{counts}, first '{long[0]}'; shorten them, or truncate them with --on_long truncate")
        log(f"{counts} and were truncated")
    residuals = scores.reshape(-1, len(names)) - rewards
    spread = _spread(model, examples)
    residuals /= 1 if spread is None else np.maximum(spread, np.finfo(float).tiny)
    low, high = np.array([residual_bounds(column, config.level) for column in residuals.T]).T
    return {"low": low, "high": high}


def _write_columns(columns: dict[str, list], path: Path, parquet: bool) -> None:
    if parquet:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)
    else:
        lines = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        write_rows(path, lines)
