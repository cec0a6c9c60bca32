"""A question with several answers, and what a judge made of them. No torch here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from ..rm.types import Messages


@dataclass(frozen=True)
class Case:
    """A prompt and R answers; `best` holds the places of the answers that are right (all of them: a tie).

    `cluster` names what cases share (usually the prompt): cases of one cluster are not independent evidence.
    `values` is what each answer is worth in [0, 1], where a benchmark knows more than right and wrong; NaN is unknown.
    `sets` are the sizes of the sets that the answers fall into, where a benchmark asks several questions in one case.
    `reference` is an answer known to be good, which a judge may be shown beside those that it judges.
    `authors` are the models that wrote the answers, where they are known; no judge is shown them.
    """

    id: str
    prompt: Messages
    answers: tuple[str, ...]
    best: tuple[int, ...] = (0,)
    subset: str = ""
    cluster: str = ""
    values: tuple[float, ...] = ()
    sets: tuple[int, ...] = ()
    reference: str = ""
    authors: tuple[str, ...] = ()

    def __post_init__(self):
        if len(self.answers) < 2:
            raise ValueError(f"case '{self.id}': a case has at least two answers, got {len(self.answers)}")
        for name, known in (("values", self.values), ("authors", self.authors)):
            if known and len(known) != len(self.answers):
                raise ValueError(f"case '{self.id}': {len(known)} {name} for {len(self.answers)} answers")
        if self.sets and sum(self.sets) != len(self.answers):
            raise ValueError(f"case '{self.id}': sets {self.sets} do not cover {len(self.answers)} answers")
        if not self.best or not all(0 <= index < len(self.answers) for index in self.best):
            raise ValueError(f"case '{self.id}': best {self.best} does not name answers 0 to {len(self.answers) - 1}")


class Reason(StrEnum):
    """Why there is no verdict. An abstention begins with one of these; what else there is to say follows a colon."""

    NO_REPLY = "no reply"
    CUT_OFF = "the reply is cut off"
    NO_VERDICT = "no verdict in the reply"
    CONTRADICTION = "contradictory verdicts"
    DECLINED = "declined to decide"
    ONLY_QUOTED = "the only verdict is a quotation"
    MALFORMED = "the verdict is malformed"
    OUT_OF_RANGE = "a score out of range"
    MISSING = "a criterion without a verdict"
    NO_EVIDENCE = "the evidence is not in the answer"
    FLIP = "the verdict follows the order"
    DISAGREEMENT = "the judges disagree"
    INCONSISTENT = "scores and comparison disagree"
    NO_RUBRIC = "no rubric"
    NOT_FINITE = "the reward is not a finite number"


class Criterion(NamedTuple):
    """What was found on one criterion in one answer."""

    answer: int
    """The answer's place in the case."""
    name: str
    value: float
    """1 is met, 0 is not; a member of a panel has its own scale here."""
    evidence: str = ""
    """The judge's quotation from the answer."""
    quoted: bool = False
    """Whether the evidence is in the answer."""


class Comparison(NamedTuple):
    """One request that compared two responses."""

    order: tuple[int, int]
    """The places of the two responses in the case, in the order in which the request showed them."""
    first: float
    """1 if the response shown first was preferred, 0.5 for a tie, 0 if the other one was; NaN without a verdict."""


@dataclass(frozen=True)
class Judgment:
    """One score per answer, or the reason for having none: never both. What it rests on is kept in either case."""

    case: str
    scores: tuple[float, ...] = ()
    abstained: str = ""
    criteria: tuple[Criterion, ...] = ()
    reasoning: str = ""
    raw: tuple[str, ...] = ()
    """Every reply as it came, in the order of the requests."""
    orders: tuple[tuple[int, ...], ...] = ()
    """The places of the answers in the order in which each request showed them."""
    comparisons: tuple[Comparison, ...] = ()
    """The verdicts of all requests that compared two responses."""
    tokens: tuple[int, int] = (0, 0)
    """Of the requests and of the replies, also of those that nothing could be read from."""
    seconds: float = 0.0
    """The requests' own durations, added up; less time passes where several are in flight."""
    cost: float = 0.0
    """In the currency of the backend's prices; 0 where it has none."""

    def __post_init__(self):
        if bool(self.scores) == bool(self.abstained):
            raise ValueError(f"judgment of '{self.case}': either scores or a reason for abstaining")
        if not all(math.isfinite(score) for score in self.scores):
            raise ValueError(f"judgment of '{self.case}': scores are finite, got {self.scores}; abstain instead")

    @property
    def reason(self) -> str:
        """The kind of the abstention, without its details; empty where there are scores.

        >>> Judgment("a", abstained="no reply: 429 after 5 tries").reason
        'no reply'
        """
        return self.abstained.partition(":")[0]


def scored(case: Case, scores: Sequence[float]) -> Judgment:
    """These scores, or an abstention where one of them is not a finite number."""
    if all(math.isfinite(score) for score in scores):
        return Judgment(case.id, scores=tuple(scores))
    return Judgment(case.id, abstained=str(Reason.NOT_FINITE))


class Judge(Protocol):
    """One who is shown a case as it is and says what he thinks of it: a model behind an API, or a person."""

    name: str

    def __call__(self, case: Case) -> Judgment:
        """Scores in the order of the answers shown, higher is better, or an abstention."""
        ...


class BatchJudge(Protocol):
    """Judges many cases at once and sees to the order of the answers itself: what every kind of judge is.

    It is what a benchmark scores by, too.
    """

    name: str
    role: str
    """`model`, `reference` (shown beside it) or `baseline`."""
    contract: str
    """Hash of everything that its judgments depend on; empty for one without."""

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """One judgment per case, in order."""
        ...
