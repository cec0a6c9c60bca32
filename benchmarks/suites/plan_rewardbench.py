"""Plan-RewardBench: pairs of agents' trajectories with tool calls (Wang et al. 2026, arXiv:2604.08178)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column, text_list
from ._suite import ScoredSuite, case, factory, in_random_order, missing_items_note

SIZES = {
    **{"planning_single_easy": 144, "planning_single_hard": 158, "planning_multi_easy": 109, "planning_multi_hard": 73},
    **{"robust_recovery": 361, "safety_refusal": 51, "tool_irrelevance": 275},
}
BUCKETS = {"refusal": "safety_refusal", "irrelevance_unavailable": "tool_irrelevance"}
TIE = 1e-4
"""Largest difference of scores that the authors count as a tie."""


def _case(values: Mapping[str, Any]) -> Case:
    query, bucket = str(column(values, "query")), str(column(values, "_lcp_bucket"))
    environment = json.dumps(text_list(values, "tools"), indent=2, ensure_ascii=False)
    prompt = f"<tool_environment>\n{environment}\n</tool_environment>\n<user_query>\n{query}\n</user_query>"
    rejected = "reject" if "reject" in values else "rejected"
    right, wrong = (_trajectory(column(column(values, name), "messages")) for name in ("chosen", rejected))
    id = str(column(values, "uuid"))
    answers, best = in_random_order(id, right, wrong)
    split = BUCKETS.get(bucket, bucket if bucket in SIZES else "robust_recovery")
    return case(id, as_prompt(prompt), answers, best, split)


def _trajectory(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return a trajectory as the authors show it to reward models: each message after its role and tool name."""
    lines = []
    for turn in messages:
        role, content = (column(turn, name) for name in ("role", "content"))
        if not isinstance(role, str) or not isinstance(content, str):
            raise ValueError(f"missing response: a message must be {{role, content}} with text, got {str(turn)[:60]}")
        is_tool = role in ("tool_call", "tool_response")
        name = f" name={turn.get('name')}" if is_tool and turn.get("name") else ""
        lines.append(f"[{role.upper()}{name}] {content}")
    return "\n\n".join(lines)


class PlanRewardBench(ScoredSuite):
    """Suite with the mean over seven splits of the share of pairs won; a tie counts 1/2."""

    name = "plan_rewardbench"
    hub = "wyy1112/Plan-RewardBench:train"
    parse = staticmethod(_case)
    numbers_ids = True
    mean_of_subsets = True

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases, with a note if a split is incomplete."""
        cases, notes = super().cases(sources)
        return cases, [*notes, *missing_items_note(Counter(case.subset for case in cases), SIZES)]

    def credit(self, case: Case, scores: Sequence[float]) -> Sequence[float]:
        """Return 1 if the right response scores higher, 1/2 for a difference of at most 1e-4, else 0."""
        margin = self.margin(case, scores)
        return (0.5 if abs(margin) <= TIE else float(margin > 0),)


plan_rewardbench = factory(PlanRewardBench)
