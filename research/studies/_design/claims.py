"""Claims of a study, which are written down before its runs: `research/studies/STUDY/claims.yaml`."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import ConfigDict, PositiveFloat, ValidationError
from pydantic.dataclasses import dataclass

from ....rm.errors import DataError, UsageError, did_you_mean
from ....rm.io.checked_files import from_yaml

STUDIES = Path(__file__).parents[1]


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid", str_min_length=1, allow_inf_nan=False))
class Claim:
    """A claim about an arm of a study against its control arm."""

    name: str
    claim: str
    """A sentence."""
    metric: str
    """What is compared, with its unit."""
    arm: str
    control: str
    direction: Literal["higher", "lower", "different"]
    """`higher`, `lower`: the arm is claimed to be better, and better means above or below the control. `different`:
    neither is better, as in a negative control. Tests are two-sided in every case."""
    smallest_effect: PositiveFloat
    """Smallest effect of interest, in the metric's unit: below it, arm and control count as equivalent."""
    family: str
    """Claims of one family are tested together, by Holm's method."""
    decided: datetime.date
    """Day on which the claim was written down."""


def read_claims(study: str, folder: Path = STUDIES) -> tuple[Claim, ...]:
    """Read the claims of a study; raise DataError for a missing, unknown or invalid field and for a repeated name."""
    file = folder / study / "claims.yaml"
    try:
        entries = from_yaml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: not a list of claims ({error}); write YAML") from error
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{file}: not a list of claims; begin each with '- name: ...'")
    claims = tuple(_claim(entry, f"{file}, claim {index}") for index, entry in enumerate(entries, start=1))
    names = [claim.name for claim in claims]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{file}: more than one claim is called '{repeated[0]}'; give each a name of its own")
    return claims


def _claim(entry: object, where: str) -> Claim:
    fields = ", ".join(Claim.__dataclass_fields__)
    if not isinstance(entry, dict):
        raise DataError(f"{where}: not a claim, got {entry!r}; a claim has {fields}")
    try:
        return Claim(**{str(name): value for name, value in entry.items()})
    except ValidationError as error:
        raise DataError(f"{where}: {_reason(error)}; a claim has {fields}") from error


def _reason(error: ValidationError) -> str:
    """Return the first field that is wrong, and why."""
    first = error.errors()[0]
    without_value = {"missing": "is missing", "unexpected_keyword_argument": "is not known"}
    reason = f"{first['msg'].removeprefix('Input ')}, got {first['input']!r}"
    return f"'{first['loc'][0]}' {without_value.get(first['type'], reason)}"


def paired_differences(
    claims: Sequence[Claim], values: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return arm minus control by seed [S] of every claim, by its name.

    `values` are the results by seed, metric -> arm -> [S], all in the same order of seeds; a seed without a value is
    NaN.
    """
    return {claim.name: _values(claim, claim.arm, values) - _values(claim, claim.control, values) for claim in claims}


def _values(claim: Claim, arm: str, values: Mapping[str, Mapping[str, np.ndarray]]) -> np.ndarray:
    if claim.metric not in values:
        raise UsageError(f"claim '{claim.name}': no metric '{claim.metric}'; {did_you_mean(claim.metric, values)}")
    if arm not in (arms := values[claim.metric]):
        raise UsageError(f"claim '{claim.name}': no arm '{arm}'; {did_you_mean(arm, arms)}")
    return np.asarray(arms[arm], np.float64)
