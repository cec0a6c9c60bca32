"""IFBench: preferences for the response that satisfies the constraints (Peng et al. 2025, arXiv:2502.19328)."""

from collections.abc import Mapping
from typing import Any

from ...judges.types import Case
from ...rm.data.pairs import column, parse_pair
from ._suite import StrictSuite, case, factory, in_random_order


def _case(values: Mapping[str, Any]) -> Case:
    conversations = {"chosen": column(values, "text_chosen"), "rejected": column(values, "text_rejected")}
    pair = parse_pair({**conversations, "id": column(values, "id")}, allow_blank=True)
    answers, best = in_random_order(pair.id, pair.chosen, pair.rejected)
    return case(pair.id, pair.prompt, answers, best, str(column(values, "domain")))


class IFBench(StrictSuite):
    """Suite with the mean over all pairs and over each level. The id's hash decides the right response's position."""

    name = "ifbench"
    parse = staticmethod(_case)


ifbench = factory(IFBench)
