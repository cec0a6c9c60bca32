"""Rubric-ARM: reward of a rubric by the verdict of a judge that reads it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...judges.backends.chat import Reply
from ...judges.cdrrm.synthesise import read_rubric
from ...judges.judge import ByCase
from ...judges.rubrics.rubric import Rubric
from ...judges.types import Case
from ...policy.types import RewardFunction
from ...rm.data.pairs import column, text_list
from ...rm.types import Example, prompt_text, user_turn
from ..assembly.judge_reward import first_preferred
from ._open import RunFacts
from .judge import open_judge_of_run


def rubric_arm(*, run: RunFacts, kind: str = "pairwise", **settings: Any) -> RewardFunction:
    """r = 1 if a frozen judge that reads the rubric prefers the best response, 1/m for a tie of m responses, else 0

    This trains the generator of Rubric-ARM 2026, arXiv:2602.01511; its judge is trained with the reward `verdict`. The
    policy writes a rubric as JSON (no rubric: 0) for the text in column `question`; the best response is the first text
    in column `responses`. An abstention is a missing reward. The settings are those of `judge`.
    """
    rubrics = ByCase[Rubric]({})
    opened = open_judge_of_run(run, kind, run.replies, rubric=rubrics, **settings)
    cases = run.one_by_prompt(
        lambda row: Case("", user_turn(str(column(row, "question"))), tuple(map(str, text_list(row, "responses"))))
    )

    def reward(examples: Sequence[Example]) -> list[float]:
        written = {str(index): read_rubric(Reply(example.text, "stop")) for index, example in enumerate(examples)}
        rubrics.items = {index: rubric for index, rubric in written.items() if isinstance(rubric, Rubric)}
        readable = [replace(cases[prompt_text(examples[int(index)].prompt)], id=index) for index in rubrics.items]
        shares = map(first_preferred, opened.ask(readable))
        return [next(shares) if index in rubrics.items else 0.0 for index in written]

    return reward
