"""Gate: rules on the areas of a comparison that a later run must satisfy."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..rm.data.pairs import is_number
from ..rm.errors import UsageError
from ..rm.io.checked_files import from_yaml
from .compare import Change, Comparison
from .evaluate import OVERALL

RULE = "write it as {area: overall, max_drop: 0.01, even_if_noise: false, max_unscored: 0}"
OPTIONAL = {"even_if_noise", "max_unscored"}


def read_gate(path: str) -> list[dict[str, Any]]:
    """Load rules of the form `- {area: overall, max_drop: 0.01}`. `area` is `overall`, a section or a subset."""
    try:
        rules = from_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as rules ({error})") from error
    if not isinstance(rules, list):
        raise UsageError(f"{path}: rules are a list, got {type(rules).__name__}; {RULE}")
    for number, rule in enumerate(rules, start=1):
        if fault := _fault_of(rule):
            raise UsageError(f"{path}, rule {number}: {fault}; {RULE}")
    return rules


def _fault_of(rule: Any) -> str:
    """Return the error of a gate's rule; empty if the rule is valid."""
    if not isinstance(rule, dict) or not {"area", "max_drop"} <= {*rule} <= {"area", "max_drop", *OPTIONAL}:
        return f"a rule has area, max_drop and perhaps even_if_noise and max_unscored, got {str(rule)[:80]}"
    if not isinstance(rule["area"], str):
        return f"area is the name of one area, got {rule['area']!r:.40}"
    if not is_number(rule["max_drop"]) or not 0 <= rule["max_drop"] <= 1:
        return f"max_drop is a number from 0 to 1, where 0.01 is one point, got {rule['max_drop']!r:.40}"
    if not isinstance(rule.get("even_if_noise", False), bool):
        return f"even_if_noise is true or false, got {rule['even_if_noise']!r:.40}"
    most = rule.get("max_unscored", 0)
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        return f"max_unscored is a number of cases, got {most!r:.40}"
    return ""


def broken_rules(gate: Sequence[Mapping[str, Any]], comparison: Comparison) -> list[str]:
    """Return a sentence for each rule that a comparison breaks."""
    return [sentence for rule in gate if (sentence := _violation(rule, comparison))]


def check_areas(gate: Sequence[Mapping[str, Any]], comparison: Comparison) -> None:
    """Raise a `UsageError` if a rule names an area that the comparison does not have."""
    changes = _changes(comparison)
    if absent := [rule["area"] for rule in gate if rule["area"] not in changes]:
        raise UsageError(f"no area '{absent[0]}' in this comparison; there is {', '.join(changes)}")


def _changes(comparison: Comparison) -> dict[str, Change]:
    """Return the change of every area by its name. A subset takes precedence over a section of the same name."""
    return {**comparison.areas, **comparison.subsets, OVERALL: comparison.areas[OVERALL]}


def _violation(rule: Mapping[str, Any], comparison: Comparison) -> str | None:
    """Return how a comparison breaks a rule: unscored cases, or a drop beyond `max_drop`. None if it does not."""
    area, change = rule["area"], _changes(comparison)[rule["area"]]
    is_subset = area in comparison.subsets and area != OVERALL
    unscored = comparison.unscored[f"subset:{area}" if is_subset else area]
    drop = -change.difference.value
    if math.isnan(drop):
        return f"{area} has no case that both scored, so that its rule cannot be checked"
    if unscored > rule.get("max_unscored", 0):
        return (
            f"{area}: {comparison.second} abstained from {unscored} of the cases that {comparison.first} "
            f"scored, so that the rule cannot be checked; find out why, or accept it with max_unscored: {unscored}"
        )
    if drop <= rule["max_drop"] or not (change.significant or rule.get("even_if_noise")):
        return None
    return f"{area} fell by {100 * drop:.1f} points, more than {100 * rule['max_drop']:.1f}"
