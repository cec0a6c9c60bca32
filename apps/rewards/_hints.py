"""Conversion of rubrics in the prompts' rows to scaffolding hints for generation."""

from ...judges.rubrics.files import rubric_of_row
from ...judges.rubrics.rubric import Rubric
from ...policy.scaffolds._scaffold import Hints
from ._open import RunFacts


def hints_of(rubric: Rubric) -> Hints:
    """Convert a rubric to hints: rewarded criteria are points to include, penalized or forbidden ones points to avoid.

    >>> from ...judges.rubrics.rubric import Principle
    >>> hints_of(Rubric((), (Principle("c1", "Advises rest.", 4.0), Principle("c2", "Invents a dose.", -1.0))))
    Hints(include=('Advises rest.',), avoid=('Invents a dose.',))
    """
    rules = [(rule.criterion, rule.type == "must") for rule in rubric.rules]
    criteria = [*rules, *((principle.description, principle.weight > 0) for principle in rubric.principles)]
    include, avoid = (tuple(text for text, good in criteria if good is is_positive) for is_positive in (True, False))
    return Hints(include, avoid)


def hints_by_prompt(run: RunFacts) -> dict[str, Hints]:
    """Return the hints of the rubric in each prompt's row, by the prompt's text."""
    return {text: hints_of(rubric) for text, rubric in run.one_by_prompt(rubric_of_row).items()}
