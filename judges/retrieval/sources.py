"""Sources of retrieved rubrics and examples for each case, as arguments of judges."""

from collections.abc import Sequence

from ...rm.types import content_hash, prompt_text
from ..judge import Retrieving, describe_setting
from ..rubrics.rubric import Rubric
from ..types import Case
from .selection import Collection, Selection

MOST_CHARACTERS = 4_000
"""Maximum characters of a prompt or response in an example. Longer texts are truncated, with a mark."""


class RetrievedRubrics(Retrieving):
    """A `RubricSource` with the first entry selected for each case; None if no entry is selected."""

    def __init__(self, selection: Selection, rubrics: Sequence[Rubric]):
        self.selection, self.rubrics = selection, rubrics
        self.name = f"{selection.how} rubrics {content_hash([selection.contract, [*map(describe_setting, rubrics)]])}"

    def __call__(self, cases: Sequence[Case]) -> list[Rubric | None]:
        """Return one rubric per case."""
        return [self.rubrics[chosen[0]] if chosen else None for chosen in self.selection(cases)]

    def retrieved(self, cases: Sequence[Case]) -> list[tuple[str, ...]]:
        """See `Retrieving`."""
        return [ids[:1] for ids in self.selection.ids(cases)]


class RetrievedExamples(Retrieving):
    """An `ExampleSource` with the labelled cases selected for each case, and their best responses."""

    def __init__(self, selection: Selection, examples: Sequence[Case]):
        self.selection, self.examples = selection, examples
        labels = [[example.id, list(example.best)] for example in examples]
        self.name = f"{selection.how} examples {content_hash([selection.contract, labels, MOST_CHARACTERS])}"

    def __call__(self, cases: Sequence[Case]) -> list[str]:
        """Return each case's examples as text."""
        return [
            "\n\n".join(example_text(self.examples[index], number) for number, index in enumerate(chosen, start=1))
            for chosen in self.selection(cases)
        ]

    def retrieved(self, cases: Sequence[Case]) -> list[tuple[str, ...]]:
        """See `Retrieving`."""
        return self.selection.ids(cases)


def collection_of(cases: Sequence[Case]) -> Collection:
    """Return labelled cases as a collection of examples."""
    return Collection(
        [case.id for case in cases], [prompt_text(case.prompt) for case in cases], [case.texts for case in cases]
    )


def example_text(example: Case, number: int) -> str:
    """Return a labelled case as text for the judge's request."""
    return f"Example {number}\n\n{labelled_text(example)}"


def labelled_text(case: Case) -> str:
    """Return a case and its best responses as text. The responses are ordered by a hash of the texts."""
    prompt = prompt_text(case.prompt)
    order = sorted(range(len(case.answers)), key=lambda index: content_hash([prompt, case.texts[index]]))
    answers = [f"Answer {label}:\n{_truncate(case.texts[index])}" for label, index in enumerate(order, start=1)]
    best = " and ".join(f"answer {label}" for label, index in enumerate(order, start=1) if index in case.best)
    return "\n\n".join([f"Instruction:\n{_truncate(prompt)}", *answers, f"Best: {best}"])


def _truncate(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} […]"
