"""Auto-J's pairwise test set: 58 scenarios, ties included (Li et al. 2023, arXiv:2310.05470)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...judges.types import Case
from ...rm.data.pairs import OnBadRow, column
from ...rm.types import content_hash
from ._suite import read_cases
from .pandalm import PandaLM, labelled_case

LABELS = {0: 1, 1: 2, 2: 0}  # Auto-J's labels (first, second, tie) -> PandaLM's (1, 2, 0)


class AutoJ(PandaLM):
    """Suite that scores agreement with the label. A scalar reward gives the same verdict in both orders."""

    name = "auto_j"

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases. The test set contains one pair three times; repetitions get a number."""
        repeats: Counter[str] = Counter()
        return read_cases(sources, lambda values: _case(values, repeats), self.on_bad_row)


def _case(values: Mapping[str, Any], repeats: Counter[str]) -> Case:
    """Return the case of a row. Rows have no id, so it is a hash of the content, with a number for repetitions."""
    label, prompt = column(values, "label"), column(values, "prompt")
    if label not in LABELS:
        raise ValueError(f"unknown label {label!r}: labels are 0, 1 and 2 (tie)")
    answers = (column(values, "response 1"), column(values, "response 2"))
    case = labelled_case(content_hash([prompt, *answers]), prompt, answers, LABELS[label])
    repeats[case.id] += 1
    return case if repeats[case.id] == 1 else replace(case, id=f"{case.id}#{repeats[case.id]}")


def auto_j(on_bad_row: OnBadRow = "refuse") -> AutoJ:
    """Return the suite of Auto-J's pairwise test set."""
    return AutoJ(on_bad_row)
