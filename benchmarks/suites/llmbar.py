"""LLMBar: which of two outputs follows the instruction, plain and adversarial (Zeng et al. 2023, arXiv:2310.07641)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column
from ...rm.data.readers import source_name
from ..statistics.cluster_bootstrap import Cells
from ._suite import StrictSuite, case, factory, read_cases, refuse_repeated

SETS = ("Natural", "Neighbor", "GPTInst", "GPTOut", "Manual")


class LLMBar(StrictSuite):
    """Suite with the mean over Natural, the mean of the adversarial sets, and the mean over all items."""

    name = "llmbar"

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases. The name of the set is taken from the path, as in the authors' repository."""
        parsers = [partial(_case, subset=_set_of(source), numbers=count()) for source in sources]  # rows have no id
        read = [read_cases([source], parse, self.on_bad_row) for source, parse in zip(sources, parsers, strict=True)]
        cases = [case for case_list, _ in read for case in case_list]
        refuse_repeated(cases, sources)
        return cases, [note for _, notes in read for note in notes]

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the mean over all items, over Natural, and the unweighted mean of the adversarial sets."""
        adversarial = [name for name in cells.subsets if name in SETS[1:]]
        areas = {"overall": cells.mean()}
        areas |= {"Natural": cells.mean(["Natural"])} if "Natural" in cells.subsets else {}
        return areas | (
            {"Adversarial": np.mean([cells.mean([name]) for name in adversarial], axis=0)} if adversarial else {}
        )


def _set_of(source: str) -> str:
    """Return the last set that the path names; without one, the file's name."""
    last = {name: source.lower().rfind(name.lower()) for name in SETS}
    name = max(last, key=lambda name: last[name])
    return name if last[name] >= 0 else source_name(source)


def _case(values: Mapping[str, Any], subset: str, numbers: Iterator[int]) -> Case:
    number = next(numbers)
    label = column(values, "label")
    if label not in (1, 2):
        raise ValueError(f"unknown label {label!r}: labels are 1 and 2")
    answers = (column(values, "output_1"), column(values, "output_2"))
    return case(f"{subset}/{number}", as_prompt(column(values, "input")), answers, (label - 1,), subset)


llmbar = factory(LLMBar)
