"""Auto-J's pairwise test set: 58 scenarios, ties included (Li et al. 2023, arXiv:2310.05470)."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...judges.types import Case
from ...rm.data.pairs import column
from ...rm.types import content_hash
from ._suite import factory, read_cases
from .pandalm import PandaLM, labelled_case

LABELS = {0: 1, 1: 2, 2: 0}  # Auto-J's labels (first, second, tie) -> PandaLM's (1, 2, 0)


class AutoJ(PandaLM):
    """Suite that scores agreement with the label. A scalar reward gives the same verdict in both orders."""

    name = "auto_j"

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases. The test set contains one pair three times; repetitions get a number."""
        return read_cases(sources, _case, self.on_bad_row, numbers_ids=True)


def _case(values: Mapping[str, Any]) -> Case:
    """Return the case of a row. Rows have no id, so the id is a hash of the content."""
    label, prompt = column(values, "label"), column(values, "prompt")
    if label not in LABELS:
        raise ValueError(f"unknown label {label!r}: labels are 0, 1 and 2 (tie)")
    answers = (column(values, "response 1"), column(values, "response 2"))
    return labelled_case(content_hash([prompt, *answers]), prompt, answers, LABELS[label])


auto_j = factory(AutoJ)
