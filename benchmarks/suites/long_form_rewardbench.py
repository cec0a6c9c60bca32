"""Long-form RewardBench: chosen and rejected long responses (2026, arXiv:2603.12963)."""

from collections.abc import Mapping
from typing import Any

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column, text_list
from ...rm.types import content_hash
from ._suite import ScoredSuite, case, factory


def _case(values: Mapping[str, Any]) -> Case:
    right, wrong = text_list(values, "chosen"), text_list(values, "rejected")
    prompt, subset = as_prompt(column(values, "prompt")), str(column(values, "subset"))
    id = values.get("id")
    name = content_hash([prompt, right, wrong]) if id is None else str(id)
    return case(f"{subset}/{name}", prompt, [*right, *wrong], range(len(right)), subset)


class LongFormRewardBench(ScoredSuite):
    """Suite with the mean over items and each subset. All chosen responses must score above all rejected responses."""

    name = "long_form_rewardbench"
    numbers_ids = True
    parse = staticmethod(_case)


long_form_rewardbench = factory(LongFormRewardBench)
