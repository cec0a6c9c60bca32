"""Areas of a suite's report (overall, sections and subsets), and the subsets' weights in their figures."""

from collections.abc import Sequence

import numpy as np

from ..types import Suite
from .cluster_bootstrap import Cells

OVERALL = "overall"
SUBSET = "subset:"
"""Prefix of areas that are single subsets."""


def is_section(area: str) -> bool:
    """Return whether an area is a section: neither a subset nor `overall`."""
    return area != OVERALL and not area.startswith(SUBSET)


def figures_by_area(suite: Suite, cells: Cells) -> dict[str, np.ndarray]:
    """Return the figure of every area: the subsets' means, and the suite's own aggregates."""
    return {f"{SUBSET}{name}": cells.mean([name]) for name in cells.subsets} | suite.add_up(cells)


def area_weights(suite: Suite, cells: Cells) -> dict[str, dict[str, float]]:
    """Return the weight of each subset in each area's figure: its derivative with respect to the subset's mean."""
    # a probe instead of a declaration: `add_up` is the authors' formula and does not state its subsets
    known_areas = {
        area: np.nan_to_num(value) for area, value in figures_by_area(suite, _indicator_cells(cells)).items()
    }
    weights: dict[str, dict[str, float]] = {area: {} for area in known_areas}
    for index, name in enumerate(cells.subsets):
        for area, value in figures_by_area(suite, _indicator_cells(cells, index)).items():
            if not np.isclose(np.nan_to_num(value), known_areas[area], rtol=0, atol=1e-12):
                weights[area][name] = 2 * float(np.nan_to_num(value) - known_areas[area])  # its mean rose by 1/2
    return weights


def section_members(suite: Suite, subsets: Sequence[str]) -> dict[str, list[str]]:
    """Return the subsets of each section, in the given order."""
    number = len(subsets)
    # a probe for each subset, and one of nothing; of 1/2, because a harmonic mean with 0 is always 0
    total = np.full((number + 1, number, len(suite.measures)), 0.5)
    total[range(number), range(number)] = 1
    figures = suite.add_up(Cells(tuple(subsets), suite.measures, total, np.ones_like(total)))
    members = {}
    for area in filter(is_section, figures):
        values = np.nan_to_num(np.broadcast_to(figures[area], number + 1))
        moved = ~np.isclose(values[:-1], values[-1], rtol=0, atol=1e-12)
        members[area] = [name for name, moves in zip(subsets, moved, strict=True) if moves]
    return members


def _indicator_cells(cells: Cells, index: int | None = None) -> Cells:
    """Return the cells with the mean of every subset set to 1/2, except 1 for the subset at `index`."""
    total = cells.count / 2
    if index is not None:
        total[index] = cells.count[index]
    return cells._replace(total=total)
