"""EvalBiasBench: pairs that exploit one of six biases of judges (Park et al. 2024, arXiv:2407.06551)."""

from collections.abc import Mapping
from typing import Any

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column
from ...rm.types import content_hash
from ._suite import StrictSuite, case, factory, in_random_order


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


class EvalBiasBench(StrictSuite):
    """Suite with the mean over all pairs and over each bias. The id's hash decides the right response's position."""

    name = "evalbiasbench"
    parse = staticmethod(_case)


evalbiasbench = factory(EvalBiasBench)
