"""RubricBench: pairs with rubrics of human annotators (Zhang et al. 2026, arXiv:2603.01562)."""

from collections.abc import Mapping
from typing import Any

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column
from ._suite import ScoredSuite, case, factory, one_of

GROUPS = {
    "chat": ("general", "focus", "human-preference", "factuality", "helpful"),
    "instruction following": ("precise if", "ifeval"),
    "STEM": ("stem", "math", "mmlu-pro", "gpqa"),
    "code": ("mbpp", "code"),
    "safety": ("safety", "harmlessness"),
}
DOMAINS = [domain for domains in GROUPS.values() for domain in domains]


def _case(values: Mapping[str, Any]) -> Case:
    label = one_of("label", column(values, "label"), (0, 1))
    domain = one_of("domain", str(column(values, "domain")).lower(), DOMAINS)
    answers = (column(values, "response_a"), column(values, "response_b"))
    prompt = as_prompt(column(values, "instruction"))
    return case(str(column(values, "case_id")), prompt, answers, (int(label),), domain)


class RubricBench(ScoredSuite):
    """Suite with the mean over all pairs and over five groups of domains. Its rubrics are for `judge --rubric`."""

    name = "rubricbench"
    hub = "DonJoey/rubricbench:train"
    parse = staticmethod(_case)
    sections = GROUPS


rubricbench = factory(RubricBench)
