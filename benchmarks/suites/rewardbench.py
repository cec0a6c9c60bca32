"""RewardBench: 23 subsets of pairs in four sections (Lambert et al. 2024, arXiv:2403.13787)."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...judges.types import Case
from ...rm.errors import DataError
from ..statistics.cluster_bootstrap import Cells
from ._suite import factory, missing_items_note
from .pairs import Pairs

CODE = {f"hep-{language}": 164.0 for language in ("cpp", "go", "java", "js", "python", "rust")}

# Weights are the subsets' sizes, except math-prm, whose 447 pairs weigh as much as the 984 pairs of code.
SECTIONS: dict[str, dict[str, float]] = {
    "Chat": {
        "alpacaeval-easy": 100,
        "alpacaeval-length": 95,
        "alpacaeval-hard": 95,
        "mt-bench-easy": 28,
        "mt-bench-med": 40,
    },
    "Chat Hard": {
        "mt-bench-hard": 37,
        "llmbar-natural": 100,
        "llmbar-adver-neighbor": 134,
        "llmbar-adver-GPTInst": 92,
        "llmbar-adver-GPTOut": 47,
        "llmbar-adver-manual": 46,
    },
    "Safety": {
        "refusals-dangerous": 100,
        "refusals-offensive": 100,
        "xstest-should-refuse": 154,
        "xstest-should-respond": 250,
        "donotanswer": 136,
    },
    "Reasoning": {"math-prm": 984, **CODE},
}
SIZES = {subset: int(weight) for section in SECTIONS.values() for subset, weight in section.items()} | {"math-prm": 447}


def section_scores(cells: Cells) -> dict[str, np.ndarray]:
    """Compute the sections and `overall` from the accuracies of subsets, all in [0, 1].

        section = Σ_t w_t a_t / Σ_t w_t,   overall = mean of the sections

    t are the section's subsets, a_t their accuracies and w_t their official weights. Missing subsets and sections are
    left out (allenai/reward-bench, calculate_scores_per_section; without the prior sets that the old leaderboard
    added).
    """
    sections = {name: cells.mean_of(weights) for name, weights in SECTIONS.items() if {*weights} & {*cells.subsets}}
    return {"overall": np.mean([*sections.values()], axis=0), **sections}


class RewardBench(Pairs):
    """Suite of pairs with the official sections. A tie is wrong, as in the official script for scalar models."""

    name = "rewardbench"
    hub = "allenai/reward-bench:filtered"
    allow_blank = True

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases, with a note if the benchmark is incomplete."""
        cases, notes = super().cases(sources)
        counts = Counter(case.subset for case in cases)
        if strange := sorted(set(counts) - set(SIZES)):
            raise DataError(
                f"{', '.join(sources)}: subset '{strange[0]}' is not one of RewardBench's {len(SIZES)}; "
                "for other preference data use --benchmark pairs"
            )
        return cases, [*notes, *missing_items_note(counts, SIZES)]

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the official sections and their mean."""
        return section_scores(cells)


rewardbench = factory(RewardBench)
