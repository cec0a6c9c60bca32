"""Files of `rewardlab decode`: completions of each prompt at several preferences, with values of each token."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .....rm.errors import DataError
from .....rm.types import prompt_text
from ...run_list import stamp
from .guided import ShownCompletion

LARGEST = 64_000_000  # bytes that are read of a file
CURVES = ("base", "mixed", "kl", "entropy")
OTHERS = ("id", "preference", "weight", "prompt", "completion", "finished", "tokens", "pieces", "key", *CURVES)


class Answers(NamedTuple):
    """Rows of a file by the id of the prompt, in the order of the file."""

    rows: Mapping[str, list[dict[str, Any]]]
    note: str
    """A sentence on skipped rows. Empty if no row was skipped."""

    def prompt(self, id: str) -> str:
        """Return the turns of a prompt as text."""
        try:
            return prompt_text(self.rows[id][0]["prompt"])
        except (KeyError, TypeError):
            return ""


def read_answers(path: Path) -> Answers:
    """Load the rows of a file, or the first rows of a large file. An incomplete last line is skipped."""
    return _read(path, stamp(path.parent, [path.name]))


@lru_cache(maxsize=2)
def _read(path: Path, _stamp: Any) -> Answers:
    with path.open("rb") as file:
        text = file.read(LARGEST)
    lines = text.split(b"\n")
    rows: dict[str, list[dict[str, Any]]] = {}
    for number, line in enumerate(lines, start=1):
        if line and (row := _row(line, f"{path.name}:{number}", complete=number < len(lines))):
            rows.setdefault(str(row.get("id")), []).append(row)
    if not rows:
        raise DataError(f"{path.name} has no complete line of `rewardlab decode --output`; decode it again")
    large = path.stat().st_size > LARGEST
    return Answers(rows, f"The first {LARGEST:,} bytes of {path.stat().st_size:,} are shown." if large else "")


def _row(line: bytes, location: str, *, complete: bool) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
        _check_row(row)
        return row | {"preference": {name: float(share) for name, share in (row.get("preference") or {}).items()}}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        if complete:
            raise DataError(f"{location}: no line of `rewardlab decode --output` ({error}); decode it again") from error
        return None


def _check_row(row: Mapping[str, Any]) -> None:
    """Raise an error if a row lacks a field, or if a field has the wrong type or length."""
    lists = [row["tokens"], row["pieces"], *(_curve(row[name]) for name in CURVES)]
    lengths = {len(values) for values in (*lists, *(_curve(row[name]) for name in guides_of(row)))}
    if len(lengths) > 1:
        raise ValueError(f"its lists have {sorted(lengths)} values")
    if not all(isinstance(text, str) for text in (row["completion"], row["finished"], *row["pieces"])):
        raise ValueError("its completion is not a string")
    if "prompt" in row:
        prompt_text(row["prompt"])  # raises if a message is no object
    if not all(type(id) is int and id >= 0 for id in row["tokens"]):
        raise ValueError("its tokens are not token ids")
    float(row["weight"])


def guides_of(row: Mapping[str, Any]) -> list[str]:
    """Return the guides whose log-probabilities a row contains."""
    return [name for name, value in row.items() if name not in OTHERS and isinstance(value, list)]


def decoded_completion(row: Mapping[str, Any]) -> ShownCompletion:
    """Return a row of `read_answers` as a completion.

    The weight of the guide for objective i is w α_i: guidance weight w times preference α_i.
    """
    names, shares = guides_of(row), row["preference"]
    return ShownCompletion(
        title=", ".join(f"{name} {share:.2f}" for name, share in shares.items()) or "no preference",
        text=row["completion"],
        finished=row["finished"],
        pieces=tuple(row["pieces"]),
        guides={name: _curve(row[name]) for name in names},
        weights={name: float(row["weight"]) * shares[name] for name in names if name in shares},
        **{name: _curve(row[name]) for name in CURVES},
    )


def _curve(values: Sequence[float | None]) -> np.ndarray:
    """Return the values of the tokens as an array, with NaN for missing values."""
    return np.array([np.nan if value is None else value for value in values], float)
