"""MemRewardBench: memory management in contexts of up to 128k tokens (Tang et al. 2026, arXiv:2601.11969)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column
from ...rm.types import content_hash
from ._suite import ScoredSuite, case, factory, in_random_order

TASKS = ("Long-context_Reasoning", "Multi-turn_Dialogue_Understanding", "Long-form_Generation")
LENGTHS = ("8k", "16k", "32k", "64k", "128k")


def _cases(source: str, values: Mapping[str, Any]) -> Sequence[Case]:
    prompt, right, wrong = (column(values, name) for name in ("question", "chosen", "rejected"))
    subset = f"{source}/{column(values, 'task')}/{column(values, 'ctx_length')}"
    id = f"{subset}/{content_hash([prompt, right, wrong])}"
    answers, best = in_random_order(id, right, wrong)
    return [case(id, as_prompt(prompt), answers, best, subset)]


class MemRewardBench(ScoredSuite):
    """Suite with the mean over all pairs, over each task, named by its source, and over each length of context."""

    name = "mem_rewardbench"
    numbers_ids = True
    parse_part = staticmethod(_cases)
    sections: ClassVar = {name: (name,) for name in (*TASKS, *LENGTHS)}


mem_rewardbench = factory(MemRewardBench)
