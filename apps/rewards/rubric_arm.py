"""Rubric-ARM: reward of a rubric by the verdict of a judge that reads it."""

from collections.abc import Sequence
from typing import Any

from ...judges.backends.chat import Reply
from ...judges.cdrrm.synthesise import read_rubric
from ...judges.judge import ByCase
from ...judges.rubrics.rubric import Rubric
from ...judges.types import Case
from ...policy.training.prompts import Row
from ...policy.types import RewardFunction
from ...rm.data.pairs import column, text_list
from ...rm.types import Example, prompt_text, user_turn
from ..assembly.judge_reward import first_preferred
from ._open import RunFacts
from .judge import open_judge_of_run


def rubric_arm(*, run: RunFacts, kind: str = "pairwise", **settings: Any) -> RewardFunction:
    """r = 1 if a frozen judge that reads the rubric prefers the right response, 0.5 for a tie, else 0

    The generator's phase of Rubric-ARM 2026 (arXiv:2602.01511); the reward of the judge's phase is `verdict`. The
    policy writes a rubric as JSON (`rewardlab rubrics`), for the text in column `question` and the two texts in column
    `responses`, of which the first is preferred. A completion that is no rubric gets 0, an abstention is missing. The
    settings are those of `judge`.
    """
    rubrics: dict[str, Rubric] = {}
    opened = open_judge_of_run(run, kind, run.replies, rubric=ByCase(rubrics), **settings)
    pairs = run.one_by_prompt(_pair)

    def reward(examples: Sequence[Example]) -> list[float]:
        cases, shares = [], dict.fromkeys(map(str, range(len(examples))), 0.0)
        for index, example in zip(shares, examples, strict=True):
            if isinstance(rubric := read_rubric(Reply(example.text, "stop")), Rubric):
                rubrics[index] = rubric
                cases.append(Case(index, *pairs[prompt_text(example.prompt)]))
        judgments = opened.judge(cases) if cases else []
        return [*(shares | {judgment.case: first_preferred(judgment) for judgment in judgments}).values()]

    return reward


def _pair(row: Row) -> tuple[Any, tuple[str, str]]:
    better, worse = map(str, text_list(row, "responses"))
    return user_turn(str(column(row, "question"))), (better, worse)
