"""JudgeBench: pairs with one objectively correct response (Tan et al. 2024, arXiv:2410.12784)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column
from ..statistics.cluster_bootstrap import Cells
from ._suite import StrictSuite, case, factory, sections_by_prefix

GROUPS = {
    "knowledge": "mmlu-pro",
    "reasoning": "livebench-reasoning",
    "math": "livebench-math",
    "coding": "livecodebench",
}
LABELS = {"A>B": 0, "B>A": 1}


def votes(decisions: Sequence[str | None]) -> tuple[float, float]:
    """Return the votes for A and B from a judge's decisions in the orders A, B and B, A.

    The benchmark gives +1 for a decision that agrees with the label, -1 for the opposite and 0 for a tie or no
    decision, and counts a positive sum as right: more votes for the right response than against it.
    """
    vote_counts = [0.0, 0.0]
    for exchanged, decision in enumerate(decisions):
        if decision in LABELS:
            vote_counts[LABELS[decision] ^ exchanged] += 1
    return vote_counts[0], vote_counts[1]


def _case(values: Mapping[str, Any]) -> Case:
    label = column(values, "label")
    if label not in LABELS:
        raise ValueError(f"unknown label {label!r}: labels are {', '.join(LABELS)}")
    answers = (column(values, "response_A"), column(values, "response_B"))
    prompt = as_prompt(column(values, "question"))
    return case(str(column(values, "pair_id")), prompt, answers, (LABELS[label],), str(column(values, "source")))


class JudgeBench(StrictSuite):
    """Suite with the mean over all pairs and each group of sources. A judge's scores are its votes in both orders."""

    name = "judgebench"
    hub = "ScalerLab/JudgeBench:gpt"
    parse = staticmethod(_case)

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the mean over all pairs, and over each group."""
        return {"overall": cells.mean(), **sections_by_prefix(cells, GROUPS)}


judgebench = factory(JudgeBench)
