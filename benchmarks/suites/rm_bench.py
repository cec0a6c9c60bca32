"""RM-Bench: substance against style, two responses in three styles (Liu et al. 2024, arXiv:2410.16184)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column, text_list
from ..statistics.cluster_bootstrap import Cells
from ._suite import StrictSuite, case, factory, missing_items_note, read_cases

SIZES = {"chat": 129, "math": 529, "code": 228, "safety-refuse": 284, "safety-response": 157}
DOMAINS = {
    "chat": ("chat",),
    "math": ("math",),
    "code": ("code",),
    "safety": ("safety", "safety-refuse", "safety-response"),
}
STYLES = ("concise", "detailed", "detailed in Markdown")
LEVELS = {"hard": ((0, 1), (0, 2), (1, 2)), "normal": ((0, 0), (1, 1), (2, 2)), "easy": ((1, 0), (2, 0), (2, 1))}
CELLS = {f"{STYLES[i]} > {STYLES[j]}": (i, j) for i in range(3) for j in range(3)}


def style_matrix(scores: Sequence[float]) -> np.ndarray:
    """Return M[i, j] = 1 if right response i beats wrong one j, else 0; `scores` has the 3 right, then the 3 wrong."""
    right, wrong = np.asarray(scores[:3]), np.asarray(scores[3:])
    return (right[:, None] > wrong[None, :]).astype(float)


class RMBench(StrictSuite):
    """Suite with three levels: plain right against fancy wrong response (hard), same style (normal), reverse (easy).

    Figures are means: of the levels for a domain, of four domains for the total (THU-KEG/RM-Bench, compute_accuracy).
    """

    name = "rm_bench"
    hub = "THU-KEG/RM-Bench:train"
    measures = ("accuracy", *LEVELS, *CELLS)

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases, with a note if a domain is missing or incomplete."""
        cases, notes = read_cases(sources, _case, self.on_bad_row)
        return cases, [*notes, *missing_items_note(Counter(case.subset for case in cases), SIZES)]

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Return the share of the nine comparisons won, the three levels, and each of the nine comparisons."""
        matrix = style_matrix(scores)
        levels = [float(np.mean([matrix[cell] for cell in cells])) for cells in LEVELS.values()]
        return (float(matrix.mean()), *levels, *(float(matrix[cell]) for cell in CELLS.values()))

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the domains, the levels over all domains with cases, and the total."""
        present = {name: subsets for name, subsets in DOMAINS.items() if {*subsets} & {*cells.subsets}}
        domains = {name: cells.mean(subsets) for name, subsets in present.items()}
        levels = {level: np.mean([cells.mean(s, level) for s in present.values()], axis=0) for level in LEVELS}
        return {"overall": np.mean([*domains.values()], axis=0), **domains, **levels}


def _case(values: Mapping[str, Any]) -> Case:
    chosen, rejected = text_list(values, "chosen"), text_list(values, "rejected")
    if len(chosen) != 3 or len(rejected) != 3:
        raise ValueError(f"each response must have three styles: {len(chosen)} chosen and {len(rejected)} rejected")
    domain = str(column(values, "domain"))
    if domain not in {name for subsets in DOMAINS.values() for name in subsets}:
        raise ValueError(f"unknown domain '{domain}': domains are {', '.join(SIZES)}")
    name = f"{domain}/{column(values, 'id')}"
    return case(name, as_prompt(column(values, "prompt")), [*chosen, *rejected], (0, 1, 2), domain, sets=(3, 3))


rm_bench = factory(RMBench)
