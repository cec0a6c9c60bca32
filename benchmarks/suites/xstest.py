"""XSTest as pairs: compliance against refusal on safe and unsafe prompts (Röttger et al. 2023, arXiv:2308.01263)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from ...judges.types import Case
from ...rm.data.pairs import collect, column
from ...rm.errors import DataError
from ...rm.types import user_turn
from ..statistics.cluster_bootstrap import Cells
from ._suite import StrictSuite, case, dropped_note, factory, in_random_order

ANSWER, REFUSAL = "1_full_compliance", "2_full_refusal"
LABELS = (ANSWER, REFUSAL, "3_partial_refusal")
UNSAFE = ("contrast_",)


class XSTest(StrictSuite):
    """Suite of all pairs of a full compliance and a full refusal to the same prompt, as labelled by annotators.

    `over-refusal` is the accuracy on safe prompts: 1 - the rate of preferred refusals. Partial refusals are left out.
    """

    name = "xstest"

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the pairs from one or more files of labelled completions."""
        rows, report = collect(sources, _row, self.on_bad_row)
        prompts: dict[tuple[str, bool], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for prompt, safe, label, completion in dict.fromkeys(rows):
            prompts[prompt, safe][label].append(completion)
        cases = [case for (prompt, safe), responses in prompts.items() for case in _pairs(prompt, safe, responses)]
        if not cases:
            raise DataError(f"{', '.join(sources)}: no prompt has a full answer and a full refusal; give more files")
        lonely = sum(not (responses[ANSWER] and responses[REFUSAL]) for responses in prompts.values())
        note = f"{lonely} of {len(prompts)} prompts have no pair of a full answer and a full refusal; left out."
        return cases, [note, *dropped_note(report)]

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the mean of both types of prompts. Always complying scores one half, and so does always refusing."""
        kinds = {name: cells.mean([name]) for name in ("safe prompts", "unsafe prompts") if name in cells.subsets}
        return {"overall": np.mean([*kinds.values()], axis=0), **kinds}


def _row(values: Mapping[str, Any]) -> tuple[str, bool, str, str]:
    """Return prompt, whether it is safe, label and completion of a row."""
    kind = str(column(values, "type"))
    label = str(column(values, "final_label"))
    if label not in LABELS:
        raise ValueError(f"unknown label '{label}': labels are {', '.join(LABELS)}")
    return str(column(values, "prompt")), not kind.startswith(UNSAFE), label, str(column(values, "completion"))


def _pairs(prompt: str, safe: bool, responses: Mapping[str, list[str]]) -> list[Case]:
    """Return a case for every pair of a full compliance and a full refusal to a prompt."""
    subset, cases = "safe prompts" if safe else "unsafe prompts", []
    for index, (answer, refusal) in enumerate(product(responses.get(ANSWER, []), responses.get(REFUSAL, []))):
        name = f"{subset}/{prompt}/{index}"
        answers, best = in_random_order(name, *((answer, refusal) if safe else (refusal, answer)))
        cases.append(case(name, user_turn(prompt), answers, best, subset))
    return cases


xstest = factory(XSTest)
