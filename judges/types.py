"""A question with several answers, and what a judge made of them. No torch here."""

import math
from dataclasses import dataclass
from typing import Protocol

from ..rm.types import Messages


@dataclass(frozen=True)
class Case:
    """A prompt and R answers; `best` holds the places of the answers that are right (all of them: a tie).

    `cluster` names what cases share (usually the prompt): cases of one cluster are not independent evidence.
    `values` is what each answer is worth in [0, 1], where a benchmark knows more than right and wrong; NaN is unknown.
    `sets` are the sizes of the sets that the answers fall into, where a benchmark asks several questions in one case.
    """

    id: str
    prompt: Messages
    answers: tuple[str, ...]
    best: tuple[int, ...] = (0,)
    subset: str = ""
    cluster: str = ""
    values: tuple[float, ...] = ()
    sets: tuple[int, ...] = ()

    def __post_init__(self):
        if len(self.answers) < 2:
            raise ValueError(f"case '{self.id}': a case has at least two answers, got {len(self.answers)}")
        if self.values and len(self.values) != len(self.answers):
            raise ValueError(f"case '{self.id}': {len(self.values)} values for {len(self.answers)} answers")
        if self.sets and sum(self.sets) != len(self.answers):
            raise ValueError(f"case '{self.id}': sets {self.sets} do not cover {len(self.answers)} answers")
        if not self.best or not all(0 <= place < len(self.answers) for place in self.best):
            raise ValueError(f"case '{self.id}': best {self.best} does not name answers 0 to {len(self.answers) - 1}")


@dataclass(frozen=True)
class Judgment:
    """One score per answer, or the reason for having none: never both."""

    case: str
    scores: tuple[float, ...] = ()
    abstained: str = ""

    def __post_init__(self):
        if bool(self.scores) == bool(self.abstained):
            raise ValueError(f"judgment of '{self.case}': either scores or a reason for abstaining")
        if not all(math.isfinite(score) for score in self.scores):
            raise ValueError(f"judgment of '{self.case}': scores are finite, got {self.scores}; abstain instead")


class Judge(Protocol):
    """Somebody who is shown a case as it stands and says what he thinks of it: a model behind an API, or a person."""

    name: str

    def __call__(self, case: Case) -> Judgment:
        """Scores in the order of the answers shown, higher is better, or an abstention."""
        ...
