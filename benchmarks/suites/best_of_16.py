"""Best of 16: how often the response that a model picks beats a reference (Lambert et al. 2024, arXiv:2403.13787)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column
from ._suite import StrictSuite, case, factory, read_cases


class BestOf16(StrictSuite):
    """Suite of the win rate of the highest-scored response, averaged as in AlpacaEval. The first wins a tie."""

    name = "best_of_16"
    measures = ("win rate",)

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases. Responses without an annotation are left out, since their win rate is unknown."""
        cases, notes = read_cases(sources, _case, self.on_bad_row)
        offered = {len(case.answers) for case in cases}
        return cases, [*notes, f"Between {min(offered)} and {max(offered)} of the answers are annotated and offered."]

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Return the annotated win share of the response with the highest score."""
        return (case.values[int(np.argmax(scores))],)


def _case(values: Mapping[str, Any]) -> Case:
    pairs = zip(column(values, "candidates"), column(values, "gpt4_preference_vs_reference"), strict=True)
    labelled_answers = [
        (answer, preference - 1) for answer, preference in pairs if preference is not None
    ]  # from [1, 2]
    answers, worths = [answer for answer, _ in labelled_answers], tuple(share for _, share in labelled_answers)
    if not worths:
        raise ValueError("no response has an annotated preference")
    if not 0 <= min(worths) <= max(worths) <= 1:
        raise ValueError(f"a preference must lie in [1, 2], got {1 + min(worths):g} to {1 + max(worths):g}")
    best = [index for index, value in enumerate(worths) if value == max(worths)]
    prompt = as_prompt(column(values, "instruction"))
    return case(str(column(values, "id")), prompt, answers, best, str(column(values, "dataset")), values=worths)


best_of_16 = factory(BestOf16)
