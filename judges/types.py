"""A question with several answers, and what a judge made of them. No torch here."""

import math
from dataclasses import dataclass

from ..rm.types import Messages


@dataclass(frozen=True)
class Case:
    """A prompt and R answers; `best` holds the places of the answers that are right.

    `cluster` names what cases share (usually the prompt): cases of one cluster are not independent evidence.
    """

    id: str
    prompt: Messages
    answers: tuple[str, ...]
    best: tuple[int, ...] = (0,)
    subset: str = ""
    cluster: str = ""

    def __post_init__(self):
        if len(self.answers) < 2:
            raise ValueError(f"case '{self.id}': a case has at least two answers, got {len(self.answers)}")
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
