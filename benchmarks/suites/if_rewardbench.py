"""IF-RewardBench: graphs of preferences by satisfied constraints (Wen et al. 2026, arXiv:2603.04738)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...judges.types import Case, Judgment
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column, text_list
from ._suite import ScoredSuite, case, factory


def kendall_tau_b(margins: Sequence[float]) -> float:
    """Return τ_b = (C - D) / √((C + D)(C + D + T)) of a graph of preferences without ties; 0 if all scores tie.

    C, D and T are the numbers of preferences with a positive, negative and zero margin (better minus worse score).

    >>> kendall_tau_b([1.0, 0.5, -1.0, 0.0]) == 1 / 12**0.5
    True
    """
    signs = np.sign(margins)
    ordered = np.count_nonzero(signs)
    return float(signs.sum() / max(1.0, np.sqrt(ordered * len(signs))))


def _case(values: Mapping[str, Any]) -> Case:
    responses = text_list(values, "responses")
    index = {column(response, "response_id"): i for i, response in enumerate(responses)}
    edges = [(edge["chosen"], edge["rejected"]) for edge in text_list(values, "preference_graph")]
    preferences = tuple((index[better["response_id"]], index[worse["response_id"]]) for better, worse in edges)
    if not preferences:
        raise ValueError("'preference_graph' has no preference")
    beaten = {worse for _, worse in preferences}
    best = [i for i in range(len(responses)) if i not in beaten]
    answers = [column(response, "response") for response in responses]
    prompt, subset = as_prompt(column(values, "messages")), str(column(values, "instruction_type"))
    return case(str(column(values, "id")), prompt, answers, best, subset, preferences=preferences)


class IFRewardBench(ScoredSuite):
    """Suite with the share of each instruction's preferences as credit, and the mean over the types of instructions."""

    name = "if_rewardbench"
    parse = staticmethod(_case)
    mean_of_subsets = True

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Return the share of preferences whose better response scores higher."""
        return (float(np.mean(np.array(_margins(case, scores)) > 0)),)

    def margin(self, case: Case, scores: Sequence[float]) -> float:
        """Return the smallest difference of scores (better minus worse response) over the preferences."""
        return min(_margins(case, scores))

    def remarks(self, name: str, cases: Sequence[Case], judgments: Sequence[Judgment]) -> list[str]:
        """Return a finding with τ_b, averaged over the instructions of each type, then over the types."""
        by_type = defaultdict[str, list[float]](list)
        for some, judged in zip(cases, judgments, strict=True):
            if judged.scores:
                by_type[some.subset].append(kendall_tau_b(_margins(some, judged.scores)))
        if not by_type:
            return []
        tau = np.mean([np.mean(values) for values in by_type.values()])
        return [f"{name}: Kendall's tau-b of the preferences is {tau:.3f}, the mean over the types of instructions."]


def _margins(case: Case, scores: Sequence[float]) -> list[float]:
    return [scores[better] - scores[worse] for better, worse in case.preferences]


if_rewardbench = factory(IFRewardBench)
