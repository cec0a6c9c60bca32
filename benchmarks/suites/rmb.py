"""RMB: pairs and best-of-N over 49 kinds of requests, helpful and harmless (Zhou et al. 2024, arXiv:2410.09893)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column
from ..statistics.cluster_bootstrap import Cells
from ._suite import StrictSuite, case, factory, missing_items_note, read_cases, sections_by_prefix

SECTIONS = {
    "pairs, helpful": "Pairwise_set/Helpfulness",
    "pairs, harmless": "Pairwise_set/Harmlessness",
    "best of N, helpful": "BoN_set/Helpfulness",
    "best of N, harmless": "BoN_set/Harmlessness",
}
BEST_OF_N = {"best of N, helpful": 2109, "best of N, harmless": 1677}


class RMB(StrictSuite):
    """Suite of pairs and best-of-N items, whose best response must beat all others. Sections are means over items."""

    name = "rmb"

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases of the pairwise and the best-of-N files, with a note on sections without cases."""
        cases, notes = read_cases(sources, _case, self.on_bad_row)
        absent = [name for name, prefix in SECTIONS.items() if not any(c.subset.startswith(prefix) for c in cases)]
        counts = {name: sum(c.subset.startswith(SECTIONS[name]) for c in cases) for name in BEST_OF_N}
        notes += missing_items_note(counts, BEST_OF_N)
        return cases, [*notes, *([f"No cases of {', '.join(absent)}: overall is over the rest."] if absent else [])]

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the four sections and their mean."""
        sections = sections_by_prefix(cells, SECTIONS)
        return {"overall": np.mean([*sections.values()], axis=0), **sections}


def _case(values: Mapping[str, Any]) -> Case:
    best_of_n = "bon_best" in values
    right = column(values, "bon_best" if best_of_n else "chosen")
    wrong = column(values, "loser_list") if best_of_n else [column(values, "reject")]
    turns = [{"role": turn["role"], "content": turn["content"]} for turn in column(values, "conversation_input")]
    path = str(column(values, "category_path"))
    if not path.startswith(tuple(SECTIONS.values())):
        raise ValueError(f"unknown category path '{path}': paths begin with {', '.join(SECTIONS.values())}")
    name = f"{path}/{column(values, 'bon_uid' if best_of_n else 'pair_uid')}"
    answers = [answer["answer"] for answer in (right, *wrong)]
    return case(name, as_prompt(turns), answers, (0,), path)


rmb = factory(RMB)
