"""RFCS: how early in a completion the right answer appears."""

from collections.abc import Sequence

from ...policy.types import RewardFunction
from ...rm.errors import UsageError
from ._open import RunFacts, per_completion


def first_correct(*, run: RunFacts, reference: str = "reference", step_end: str = "\n\n") -> RewardFunction:
    """RFCS = first step that contains the right answer / number of steps                 SAGE 2026, arXiv:2602.08354

    A ratio in (0, 1], missing if no step contains the answer; use it with `--watch`. Steps end with `step_end`;
    blank steps do not count. `reference` is a column with the answer.
    """
    if not step_end:
        raise UsageError("first_correct: step_end is empty; give the text at the end of a step")
    return per_completion(run.texts_by_prompt(reference), lambda text, right: ratio(text.split(step_end), right))


def ratio(steps: Sequence[str], answer: str) -> float | None:
    """Compute RFCS of the steps.

    >>> ratio(["Add 2 and 2.", "It is 4.", "Check: 4 - 2 = 2.", "4"], "4"), ratio(["5"], "4")
    (0.5, None)
    """
    written = [step for step in steps if step.strip()]
    return next((number / len(written) for number, step in enumerate(written, 1) if answer in step), None)
