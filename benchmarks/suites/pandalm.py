"""PandaLM's test set: pairs with labels of three annotators, ties included (Wang et al. 2023, arXiv:2306.05087)."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column
from ._suite import StrictSuite, case, factory

ANNOTATORS = ("annotator1", "annotator2", "annotator3")


def majority(labels: Sequence[int]) -> int | None:
    """Return the label of more than half of the annotators: 0 (tie), 1 or 2. None without a majority."""
    return next((label for label in (0, 1, 2) if labels.count(label) * 2 > len(labels)), None)


def labelled_case(id: str, prompt: Any, answers: tuple[str, str], label: int) -> Case:
    """Return a case whose label is 0 (tie), 1 or 2."""
    best = (0, 1) if label == 0 else (label - 1,)
    return case(id, as_prompt(prompt), answers, best, "people call it a tie" if label == 0 else "people name a winner")


def _case(values: Mapping[str, Any]) -> Case:
    label = majority([column(values, name) for name in ANNOTATORS])
    if label is None:
        raise ValueError("no majority: the three annotators differ")
    instruction, more = column(values, "instruction"), values.get("input") or ""
    prompt = f"{instruction}\n\n{more}" if more.strip() else instruction
    answers = (column(values, "response1"), column(values, "response2"))
    return labelled_case(str(column(values, "idx")), prompt, answers, label)


class PandaLM(StrictSuite):
    """Suite that scores agreement with the majority label, overall and by label. Only equal scores agree with a tie."""

    name = "pandalm"
    measures = ("agreement",)
    parse = staticmethod(_case)


pandalm = factory(PandaLM)
