"""PPE Correctness: right against wrong responses of five benchmarks (Frick et al. 2024, arXiv:2410.14872)."""

from collections.abc import Mapping
from typing import Any

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import column, text_list
from ._suite import ScoredSuite, case, factory


def _cases(source: str, values: Mapping[str, Any]) -> list[Case]:
    """Return a case for each of a row's `sampled_conflict_pairs`: indices (from 0) of a right and a wrong response."""
    prompt, is_right = as_prompt(column(values, "prompt")), text_list(values, "scores")
    name = f"{source}/{column(values, 'question_id')}/{column(values, 'model_name')}"
    cases = []
    for number, (first, second) in enumerate(text_list(values, "sampled_conflict_pairs"), start=1):
        if not 0 <= min(first, second) <= max(first, second) < len(is_right) or is_right[first] == is_right[second]:
            raise ValueError(f"the conflict pair [{first}, {second}] is not one right and one wrong response")
        answers = [column(values, f"response_{index + 1}") for index in (first, second)]
        cases.append(case(f"{name}/{number}", prompt, answers, (0 if is_right[first] else 1,), source))
    return cases


class PPECorrectness(ScoredSuite):
    """Suite of sampled pairs of a right and a wrong response: the mean of the data sets, named by their sources."""

    name = "ppe_correctness"
    parse_part = staticmethod(_cases)
    mean_of_subsets = True


ppe_correctness = factory(PPECorrectness)
