"""M-RewardBench: RewardBench translated to 23 languages (Gureja et al. 2024, arXiv:2410.15522)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column
from ..statistics.cluster_bootstrap import Cells
from ._suite import ScoredSuite, case, factory, in_random_order, one_of
from .rewardbench import CODE, SECTIONS

ENGLISH = "eng_Latn"
SIZES = {"alpacaeval-easy": 79, "alpacaeval-length": 79, "alpacaeval-hard": 76, "mt-bench-easy": 24} | {
    **{"mt-bench-med": 38, "mt-bench-hard": 35, "llmbar-natural": 76, "llmbar-adver-neighbor": 124},
    **{"llmbar-adver-GPTInst": 87, "llmbar-adver-GPTOut": 42, "llmbar-adver-manual": 43, "refusals-dangerous": 100},
    **{"refusals-offensive": 100, "xstest-should-refuse": 154, "xstest-should-respond": 247, "donotanswer": 135},
    **{"math-prm": 983, **CODE, "hep-python": 163},
}
"""The authors' weights (for-ai/m-rewardbench, EXAMPLE_COUNTS)."""


def _case(values: Mapping[str, Any]) -> Case:
    language, subset = (str(column(values, name)) for name in ("language", "subset"))
    id = f"{language}/{one_of('subset', subset, SIZES)}/{column(values, 'id')}"
    answers, best = in_random_order(id, column(values, "chosen"), column(values, "rejected"))
    return case(id, as_prompt(column(values, "prompt")), answers, best, f"{language}/{subset}")


class MRewardBench(ScoredSuite):
    """Suite with the mean of each language's four sections, and their mean over the languages other than English."""

    name = "m_rewardbench"
    numbers_ids = True
    parse = staticmethod(_case)

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases. The cluster is the item's prompt in its first language, since translations correlate."""
        cases, notes = super().cases(sources)
        prompts: dict[str, str] = {}
        for some in sorted(cases, key=lambda some: some.id):
            prompts.setdefault(_item(some), some.cluster)
        return [replace(some, cluster=prompts[_item(some)]) for some in cases], notes

    def aggregate(self, cells: Cells) -> dict[str, np.ndarray]:
        """Compute the figures of languages and sections, and the mean over languages other than English, if any."""
        languages = sorted({name.partition("/")[0] for name in cells.subsets})
        scores = {language: _sections(cells, language) for language in languages}
        means = {language: np.mean([*parts.values()], axis=0) for language, parts in scores.items()}
        translated = [language for language in languages if language != ENGLISH] or languages
        over = {s: [scores[name][s] for name in translated if s in scores[name]] for s in SECTIONS}
        sections = {section: np.mean(values, axis=0) for section, values in over.items() if values}
        return {"overall": np.mean([means[name] for name in translated], axis=0), **means, **sections}


def _item(case: Case) -> str:
    """Return the subset and number of an item, which its translations share."""
    return case.id.partition("/")[2]


def _sections(cells: Cells, language: str) -> dict[str, np.ndarray]:
    """Return the sections of a language: means of its subsets, weighted by their official sizes."""
    weights = {section: {f"{language}/{name}": SIZES[name] for name in names} for section, names in SECTIONS.items()}
    return {name: cells.mean_of(some) for name, some in weights.items() if {*some} & {*cells.subsets}}


m_rewardbench = factory(MRewardBench)
