"""Diagnostics of the guides in an evaluation. `rewardlab eval` copies them from the manifests of the models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .....rm.errors import UNREADABLE
from ...html import number, pill, text_html, with_csv
from ...run_list import read_manifest
from ..metrics import metric_html, table_html

MEASURES = ("context_sensitivity", "entropy", "length_correlation", "accuracy", "accuracy_without_length", "pairs")


class Guide(NamedTuple):
    """Measures of a guide (autoregressive reward model) at the end of its training."""

    base: float | None
    """Context sensitivity of the base model."""
    objectives: Mapping[str, Mapping[str, float | None]]
    """Objective -> measure -> value with all weight on that objective."""
    collapsed: tuple[str, ...]


def read_guides(folder: Path) -> dict[str, Guide]:
    """Return model -> measures for each guide of a run. Empty if the manifest has no guides or is damaged."""
    try:
        stored = read_manifest(folder)["guides"]
        return {str(name): _guide(guide) for name, guide in stored.items()}
    except UNREADABLE:
        return {}


def _guide(stored: Mapping[str, Any]) -> Guide:
    objectives = {
        str(name): {measure: None if (value := values.get(measure)) is None else float(value) for measure in MEASURES}
        for name, values in stored["objectives"].items()
    }
    base = stored["base_context_sensitivity"]
    return Guide(None if base is None else float(base), objectives, tuple(map(str, stored["collapsed"])))


def guides_html(guides: Mapping[str, Guide]) -> str:
    """Return a table for every guide, with a row for every objective, as HTML. Empty without guides."""
    return "".join(_guide_html(name, guide) for name, guide in guides.items())


def _guide_html(name: str, guide: Guide) -> str:
    names = [measure.replace("_", " ") for measure in MEASURES]
    rows = (
        [
            f"{text_html(objective)} {pill('collapsed') if objective in guide.collapsed else ''}",
            *(_text(measure, value) for measure, value in values.items()),
        ]
        for objective, values in guide.objectives.items()
    )
    return (
        f"<p>Guide <b>{text_html(name)}</b> at the end of its training, with all weight on one "
        f"objective. Context sensitivity of its base model: {_text('', guide.base)}.</p>"
        f"{with_csv(table_html(['objective', *map(metric_html, names)], rows))}"
    )


def _text(measure: str, value: float | None) -> str:
    """Return a measure as text, with a dash for a missing value."""
    if value is None:
        return "–"
    return number(value) if measure == "pairs" else f"{value:.2f}"
