"""Figures as authors published them, in the form that a suite aggregates."""

from collections.abc import Mapping

import numpy as np
from rewardlab.benchmarks.statistics.cluster_bootstrap import Cells


def published_cells(subsets: Mapping[str, float], measure: str = "accuracy") -> Cells:
    """Cells that hold published figures by subset, to check an author's aggregation against them."""
    figures = np.array([*subsets.values()], float)[:, None]
    return Cells(tuple(subsets), (measure,), figures, np.ones_like(figures))
