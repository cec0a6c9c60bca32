"""IFBench preferences: which answer keeps to the constraints, on three levels (Peng et al. 2025, arXiv:2502.19328)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...judges.types import Case
from ...rm.data import OnBadRow, column, parse_pair
from ..statistics import Cells
from ..suite import case, in_random_order, read_cases, strictly_best

VERSION = "1"


class IFBench:
    """The mean over all pairs, and over each level."""

    name = "ifbench"
    version = VERSION
    hub = ""
    measures = ("accuracy",)

    def __init__(self, on_bad_row: OnBadRow = "refuse"):
        self.on_bad_row = on_bad_row

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """The cases; the right answer stands in a place that the id's hash decides."""
        return read_cases(sources, _case, self.on_bad_row)

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Whether the right answer scores higher."""
        return (strictly_best(case, scores),)

    def add_up(self, cells: Cells) -> dict[str, np.ndarray]:
        """All pairs, then the levels."""
        return {"overall": cells.mean(), **{name: cells.mean([name]) for name in cells.subsets}}


def _case(values: Mapping[str, Any]) -> Case:
    conversations = {"chosen": column(values, "text_chosen"), "rejected": column(values, "text_rejected")}
    pair = parse_pair({**conversations, "id": column(values, "id")})
    answers, best = in_random_order(pair.id, pair.chosen, pair.rejected)
    return case(pair.id, pair.prompt, answers, best, str(column(values, "domain")))


def ifbench(on_bad_row: OnBadRow = "refuse") -> IFBench:
    """IFBench's preference pairs."""
    return IFBench(on_bad_row)
