"""Cases (a prompt with several responses), judgments, and the interfaces of judges. Does not import torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from ..rm.types import AnyCompletion, Messages, completion_text


@dataclass(frozen=True)
class Case:
    """A prompt and R responses. `best` holds the indices of the right responses; if all are right, they are tied.

    Cases with the same `cluster` (usually the prompt) are correlated, so statistics treat them as one unit. `values`
    are graded qualities of the responses in [0, 1], if a benchmark has them; NaN is unknown. `sets` are the sizes of
    consecutive sets of responses, if a benchmark has several comparisons in one case. `reference` is a response known
    to be good. Judges may see it for comparison. `authors` are the models that wrote the responses, if known. Judges do
    not see them. `preferences` are the pairs (better, worse) of indices, if a benchmark orders the responses partially.
    """

    id: str
    prompt: Messages
    answers: tuple[AnyCompletion, ...]
    best: tuple[int, ...] = (0,)
    subset: str = ""
    cluster: str = ""
    values: tuple[float, ...] = ()
    sets: tuple[int, ...] = ()
    reference: str = ""
    authors: tuple[str, ...] = ()
    preferences: tuple[tuple[int, int], ...] = ()

    def __post_init__(self):
        if len(self.answers) < 1 + (not self.values):  # a single answer is compared with its own grade only
            raise ValueError(f"case '{self.id}': a case must have at least two answers, got {len(self.answers)}")
        for name, entries in (("values", self.values), ("authors", self.authors)):
            if entries and len(entries) != len(self.answers):
                raise ValueError(f"case '{self.id}': {len(entries)} {name} for {len(self.answers)} answers")
        if self.sets and sum(self.sets) != len(self.answers):
            raise ValueError(f"case '{self.id}': `sets` must sum to {len(self.answers)} responses, got {self.sets}")
        if not self.best or not all(0 <= index < len(self.answers) for index in self.best):
            raise ValueError(f"case '{self.id}': best {self.best} is not within answers 0 to {len(self.answers) - 1}")
        if not all(0 <= min(pair) < max(pair) < len(self.answers) for pair in self.preferences):
            raise ValueError(f"case '{self.id}': a preference must be a pair of its answers, got {self.preferences}")

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the responses."""
        return tuple(map(completion_text, self.answers))


class Reason(StrEnum):
    """Reasons for an abstention. The text of an abstention begins with a reason; details follow after a colon."""

    NO_REPLY = "no reply"
    CUT_OFF = "the reply is cut off (raise --max_tokens)"
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
    SINGLE = "a single response, which nothing is compared with"
    NOT_FINITE = "the reward is not a finite number"
    ALIKE = "responses that are the same to the model"


class Criterion(NamedTuple):
    """One criterion's value for one response."""

    answer: int
    """Index of the response in the case."""
    name: str
    value: float
    """1 if the criterion is met, 0 if it is not. For a panel: the score of one member, on the member's scale."""
    evidence: str = ""
    """The judge's quotation from the response."""
    quoted: bool = False
    """Whether the response contains the evidence."""


class Comparison(NamedTuple):
    """Result of one request that compared two responses."""

    order: tuple[int, int]
    """Indices of the two responses in the case, in the order in which the request showed them."""
    first: float
    """Credit of the response shown first: 1 if it was preferred, 0.5 for a tie, else 0. NaN without a verdict."""


@dataclass(frozen=True)
class Judgment:
    """Scores of a case's responses, or the reason for an abstention; exactly one of the two is set.

    Replies and costs are recorded in either case.
    """

    case: str
    scores: tuple[float, ...] = ()
    abstained: str = ""
    criteria: tuple[Criterion, ...] = ()
    reasoning: str = ""
    raw: tuple[str, ...] = ()
    """Unprocessed replies, in the order of the requests."""
    orders: tuple[tuple[int, ...], ...] = ()
    """Indices of the responses in the order in which each request showed them."""
    comparisons: tuple[Comparison, ...] = ()
    """The verdicts of all requests that compared two responses."""
    tokens: tuple[int, int] = (0, 0)
    """Numbers of tokens of requests and of replies, including replies without a verdict."""
    seconds: float = 0.0
    """Sum of the durations of the requests. The elapsed time is shorter if they run concurrently."""
    cost: float = 0.0
    """Cost in the currency of the backend's prices. NaN without prices, 0 for a model in this process."""
    requests: int = 0
    """Number of requests that were or may have been billed, with retries and replies without a verdict."""
    estimated: int = 0
    """Number of billed requests whose tokens and cost are upper bounds, since the server did not state them."""
    retrieved: tuple[str, ...] = ()
    """Ids of the rubrics and examples that were retrieved for the case and shown to the judge."""
    truncated: bool = False
    """Whether a response with its prompt was truncated because it is longer than the model's context."""
    omitted: str = ""
    """Text of the case that the model's chat template drops; empty if the template renders all of it."""

    def __post_init__(self):
        if bool(self.scores) == bool(self.abstained):
            raise ValueError(f"judgment of '{self.case}': give either scores or a reason for abstaining")
        if not all(math.isfinite(score) for score in self.scores):
            raise ValueError(f"judgment of '{self.case}': scores must be finite, got {self.scores}; abstain instead")

    @property
    def reason(self) -> str:
        """Reason of the abstention without its details. Empty if there are scores.

        >>> Judgment("a", abstained="no reply: 429 after 5 tries").reason
        'no reply'
        """
        return self.abstained.partition(":")[0]


def judgment_from_scores(case: Case, scores: Sequence[float]) -> Judgment:
    """Return a judgment with these scores, or an abstention if any score is not finite."""
    if all(math.isfinite(score) for score in scores):
        return Judgment(case.id, scores=tuple(scores))
    return Judgment(case.id, abstained=str(Reason.NOT_FINITE))


def strictly_best(case: Case, scores: Sequence[float]) -> float:
    """Return 1 if every right response scores above every wrong one, else 0.

    If all responses are right, return 1 if all scores are equal.
    """
    wrong = [score for index, score in enumerate(scores) if index not in case.best]
    if not wrong:
        return float(len(set(scores)) == 1)
    return float(min(scores[index] for index in case.best) > max(wrong))


class Judge(Protocol):
    """Judge of a single case whose responses are shown in the given order: a model behind an API, or a person."""

    name: str

    def __call__(self, case: Case) -> Judgment:
        """Return the scores in the order of the responses (higher is better), or an abstention."""
        ...


class BatchJudge(Protocol):
    """Judge of many cases at once, the interface of the benchmarks. It handles the order of the responses itself."""

    name: str
    role: str
    """`model`, `reference` (reported for comparison) or `baseline`."""
    contract: str
    """Hash of the settings that the judgments depend on (the scoring contract). May be empty."""

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """Return one judgment per case, in order."""
        ...
