"""EvalBiasBench: pairs that lure a judge by one of six biases (Park et al. 2024, arXiv:2407.06551)."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...judges.types import Case
from ...rm.data import as_prompt, column
from ...rm.types import content_hash
from ..suite import case, in_random_order, read_cases
from .ifbench import IFBench


class EvalBiasBench(IFBench):
    """The mean over all pairs, and over each bias."""

    name = "evalbiasbench"

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """The cases; the data always put the right answer first, so its place is drawn from the id's hash."""
        return read_cases(sources, _case, self.on_bad_row)


def _case(values: Mapping[str, Any]) -> Case:
    label = column(values, "label")
    if label not in (1, 2):
        raise ValueError(f"unknown label {label!r}: labels are 1 and 2")
    first, second = column(values, "response1"), column(values, "response2")
    right, wrong = (first, second) if label == 1 else (second, first)
    subset, instruction = str(column(values, "bias")), column(values, "instruction")
    name = f"{subset}/{content_hash([instruction, right, wrong])}"
    answers, best = in_random_order(name, right, wrong)
    return case(name, as_prompt(instruction), answers, best, subset)


def evalbiasbench(on_bad_row="refuse") -> EvalBiasBench:
    """EvalBiasBench."""
    return EvalBiasBench(on_bad_row)
