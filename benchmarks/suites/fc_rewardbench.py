"""FC-RewardBench: right against wrong function calls (Agarwal et al. 2025, arXiv:2509.11963)."""

import json
from collections.abc import Mapping
from typing import Any

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.messages_and_tools import as_tools, with_tools
from ...rm.data.pairs import column
from ._suite import ScoredSuite, case, factory, in_random_order


def _case(values: Mapping[str, Any]) -> Case:
    prompt = with_tools(as_prompt(column(values, "conversation")), as_tools(column(values, "tools")))
    outputs = [column(values, name) for name in ("chosen_output", "rejected_output")]
    right, wrong = (text if isinstance(text, str) else json.dumps(text, ensure_ascii=False) for text in outputs)
    id = str(column(values, "test_id"))
    answers, best = in_random_order(id, right, wrong)
    return case(id, prompt, answers, best, str(column(values, "error_type")))


class FCRewardBench(ScoredSuite):
    """Suite with the mean over all pairs and over each type of error. The prompt declares the functions."""

    name = "fc_rewardbench"
    hub = "ibm-research/fc-reward-bench:data"
    numbers_ids = True
    parse = staticmethod(_case)


fc_rewardbench = factory(FCRewardBench)
