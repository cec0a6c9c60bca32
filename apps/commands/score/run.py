"""`rewardlab score`: rewards of conversations in files, with the file and row of each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....rm.data.pairs import PlacedExample, load_placed_examples
from ....rm.errors import UsageError
from ....rm.models.ensemble.combination import deviation
from ....rm.types import Example
from ...runs.processes import gathered_columns, process
from ...runs.run_folder import log, log_rows, replace_file, trust, write_rows
from ...serving.client import TooLong
from ...serving.open_model import open_model
from ...serving.replicas import Replicas, open_replicas
from ...serving.requests import encoders_of
from .settings import ScoreConfig


def run_score(config: ScoreConfig) -> dict[str, Any]:
    """Score all conversations; those beyond the maximum length are refused, or truncated and counted."""
    here = process(config.processes, "score")
    if Path(config.output).is_dir():
        raise UsageError(f"--output {config.output} is a folder; name a file for the scores")
    if Path(config.output).exists() and not config.overwrite:
        raise UsageError(
            f"{config.output} exists already; name another file with --output, or replace it with --overwrite"
        )
    placed, rows = load_placed_examples(config.data, on_bad_row=config.on_bad_row)
    log_rows("data", rows)
    model = _open_model(config)
    columns_here = _columns(model, placed[here.rank :: here.world], config)
    columns = gathered_columns(columns_here, len(placed), here)
    summary = {"scores": config.output, "rows": len(placed), "dropped": len(rows.dropped)}
    summary |= {"truncated": sum(columns["truncated"]), "contract": model.contract.hash()}
    if not here.leads:
        return summary | {"rank": here.rank}
    if summary["truncated"]:
        log(f"data: {summary['truncated']} of {len(placed)} conversations are longer than the model reads and were cut")
    replace_file(Path(config.output), lambda path: _write_columns(columns, path, config.output.endswith(".parquet")))
    return summary


def _open_model(config: ScoreConfig) -> Any:
    if config.servers:
        model: Any = open_replicas(config.servers, "--servers", in_flight=config.in_flight)
    else:
        model = open_model(config.model, check=config.check, **trust(config))
    if isinstance(model, Replicas):
        model.truncate = config.on_long == "truncate"
    return model


def _columns(model: Any, placed: Sequence[PlacedExample], config: ScoreConfig) -> dict[str, list[Any]]:
    examples = [row.example for row in placed]
    if isinstance(model, Replicas):
        try:
            rewards, truncated = model.rate_with_truncation(examples)
        except TooLong as error:
            raise TooLong(f"{error}: with --on_long truncate", error.lengths, error.limit) from error
    else:
        lengths = token_lengths(model, examples)
        truncated = [length > model.contract.max_length for length in lengths] if lengths else [False] * len(examples)
        if any(truncated) and config.on_long == "refuse":
            first = placed[truncated.index(True)]
            raise TooLong(
                f"{sum(truncated)} of {len(placed)} conversations are longer than the {model.contract.max_length} "
                f"tokens that the model reads, the first in {first.file}, row {first.row}; shorten them, or have them "
                "cut with --on_long truncate",
                lengths,
                model.contract.max_length,
            )
        rewards = model.rate(examples)
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in placed] for name in ("id", "file", "row")}
    columns["truncated"] = truncated
    taken = {*columns, "spread"}
    names = [f"reward_{name}" if name in taken else name for name in model.contract.objectives]
    columns |= {name: rewards[:, k].tolist() for k, name in enumerate(names)}
    return columns | _spread_columns(model, examples)


def token_lengths(model: Any, examples: Sequence[Example]) -> list[int]:
    """Return the tokens of each conversation before truncation; empty if the model truncates nothing."""
    if model.contract.max_length is None:
        return []
    if hasattr(model, "lengths"):
        return model.lengths(examples)
    readings = [[encoded.length for encoded in encoder.encode_all(examples)] for encoder in encoders_of(model)]
    return [max(several) for several in zip(*readings, strict=True)]


def _spread_columns(model: Any, examples: list[Example]) -> dict[str, list[float]]:
    """Return the standard deviation of the members' rewards for each completion; empty without members."""
    if not hasattr(model, "spread"):
        return {}
    spread = deviation(model.spread(examples))
    names = model.contract.objectives
    return {"spread" if len(names) == 1 else f"spread_{name}": spread[:, k].tolist() for k, name in enumerate(names)}


def _write_columns(columns: dict[str, list], path: Path, parquet: bool) -> None:
    if parquet:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)
    else:
        lines = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        write_rows(path, lines)
