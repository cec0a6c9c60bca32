"""PPE Preference: human preferences of Chatbot Arena (Frick et al. 2024, arXiv:2410.14872)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column
from ._suite import ScoredSuite, case, factory, one_of

CATEGORIES = {"code": "is_code", "hard": "hard_prompt", "easy": "easy_prompt", "if": "if_prompt", "math": "math_prompt"}
WINNERS = {"model_a": (0,), "model_b": (1,), "tie": (0, 1), "tie (bothbad)": (0, 1)}


def _case(values: Mapping[str, Any]) -> Case:
    best, prompt = WINNERS[one_of("winner", column(values, "winner"), WINNERS)], as_prompt(column(values, "prompt"))
    answers = (column(values, "response_1"), column(values, "response_2"))
    authors = (str(column(values, "model_a")), str(column(values, "model_b")))
    subset = "/".join(name for name, flag in CATEGORIES.items() if column(values, flag)) or "other"
    return case(str(column(values, "question_id")), prompt, answers, best, subset, authors=authors)


class PPEPreference(ScoredSuite):
    """Suite of the pairs with a winner. The categories of a prompt overlap."""

    name = "ppe_preference"
    hub = "lmarena-ai/PPE-Human-Preference-V1:test"
    parse = staticmethod(_case)
    sections: ClassVar = {name: (name,) for name in CATEGORIES}

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases with a winner, and a note on the number of ties."""
        cases, notes = super().cases(sources)
        decided = [case for case in cases if len(case.best) == 1]
        return decided, [*notes, f"{len(cases) - len(decided)} of {len(cases)} pairs are ties and are left out."]


ppe_preference = factory(PPEPreference)
