"""Functions shared by kinds of judges: requests for many cases, and judgments with costs from the replies."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from ..rm.errors import UsageError
from ..rm.types import content_hash
from .backends.chat import Ask, Chat, PricedChat, Reply
from .backends.cost import FREE
from .parsing.statements import NoVerdict
from .prompts import instructions
from .rubrics.formats import Levels
from .rubrics.rubric import Rubric
from .types import Case, Comparison, Criterion, Judgment, Reason

RubricSource = Callable[[Sequence[Case]], Sequence[Rubric | None]]
"""Function that maps cases to their rubrics, in order. None if a case has no rubric; the judge then abstains."""
ExampleSource = Callable[[Sequence[Case]], Sequence[str]]
"""Function that maps cases to few-shot examples as text, in order. Empty if a case has no examples."""
POINTWISE_KINDS = ("pointwise", "rubric", "checklist")
"""Kinds of judges that score each response by itself, so that the scores of two responses do not sum to 1."""
T = TypeVar("T")


@runtime_checkable
class NamedSource(Protocol):
    """A source of rubrics, levels or examples. Its `name` identifies its content in a scoring contract."""

    name: str


@runtime_checkable
class Retrieving(NamedSource, Protocol):
    """A source that retrieves rubrics or examples."""

    def retrieved(self, cases: Sequence[Case]) -> list[tuple[str, ...]]:
        """Return the ids of the rubrics or examples that are retrieved for each case."""
        ...


class Judging:
    """A judge of many cases at once: a name, the settings that its judgments depend on, and a function."""

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any],
        judge: Callable[[Sequence[Case]], list[Judgment]],
        role: str = "model",
        sources: Sequence[Any] = (),
    ):
        """Create a judge. Each judgment records the ids that the retrieving `sources` returned for its case."""
        self.name, self.role, self.judge = name, role, judge
        self.retrieving = [source for source in sources if isinstance(source, Retrieving)]
        self.settings = settings
        self.contract = content_hash(settings)

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """Return one judgment per case, in order."""
        judgments = self.judge(cases)
        for source in self.retrieving:
            ids = source.retrieved(cases)
            judgments = [
                replace(judgment, retrieved=(*judgment.retrieved, *of_case))
                for judgment, of_case in zip(judgments, ids, strict=True)
            ]
        return judgments


def ask_all(chat: Chat, asks: Sequence[Sequence[Ask]]) -> list[list[Reply]]:
    """Send the requests of all cases in one call, so that a backend can batch them. Return the replies by case."""
    replies = iter(chat.ask([ask for of_case in asks for ask in of_case]))
    return [[next(replies) for _ in of_case] for of_case in asks]


def failure(reply: Reply) -> NoVerdict | None:
    """Return the reason why a reply cannot be parsed (error, refusal to judge, truncation); None if it can."""
    if reply.error:
        return NoVerdict(Reason.NO_REPLY, reply.error)
    if reply.finish == "length":
        return NoVerdict(Reason.CUT_OFF)
    return NoVerdict(Reason.DECLINED, reply.text or "a content filter") if reply.finish == "declined" else None


Outcome = Sequence[float] | NoVerdict | str
"""Scores, or the reason for an abstention. A string is the reason for the abstention of another judgment."""


def _scores_or_reason(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, NoVerdict | str):
        return {"abstained": str(outcome)}
    return {"scores": tuple(map(float, outcome))}


def judgment(
    case: Case,
    outcome: Outcome,
    chat: Chat,
    replies: Sequence[Reply],
    *,
    orders: Sequence[Sequence[int]] = (),
    comparisons: Sequence[Comparison] = (),
    reasoning: Sequence[str] = (),
    criteria: Sequence[Criterion] = (),
) -> Judgment:
    """Return a case's judgment with replies, reasoning and costs. Costs are counted for abstentions too."""
    prices = chat.prices if isinstance(chat, PricedChat) else FREE
    return Judgment(
        case.id,
        **_scores_or_reason(outcome),
        criteria=tuple(criteria),
        reasoning="\n\n".join(part for part in reasoning if part),
        raw=tuple(reply.text for reply in replies),
        orders=tuple(tuple(order) for order in orders),
        comparisons=tuple(comparisons),
        tokens=(sum(reply.prompt_tokens for reply in replies), sum(reply.completion_tokens for reply in replies)),
        seconds=sum(reply.seconds for reply in replies),
        cost=sum(map(prices.of, replies)) if prices else math.nan,
        requests=sum(reply.requests for reply in replies),
        estimated=sum(reply.estimated for reply in replies),
    )


def merge_judgments(
    case: Case, outcome: Outcome, parts: Sequence[Judgment], criteria: Sequence[Criterion] = ()
) -> Judgment:
    """Return a judgment that combines several judgments: replies are concatenated, costs are summed."""
    return Judgment(
        case.id,
        **_scores_or_reason(outcome),
        criteria=(*criteria, *(criterion for part in parts for criterion in part.criteria)),
        reasoning="\n\n".join(part.reasoning for part in parts if part.reasoning),
        raw=tuple(text for part in parts for text in part.raw),
        orders=tuple(order for part in parts for order in part.orders),
        comparisons=tuple(comparison for part in parts for comparison in part.comparisons),
        tokens=(sum(part.tokens[0] for part in parts), sum(part.tokens[1] for part in parts)),
        seconds=sum(part.seconds for part in parts),
        cost=sum(part.cost for part in parts),
        requests=sum(part.requests for part in parts),
        estimated=sum(part.estimated for part in parts),
        retrieved=tuple(dict.fromkeys(id for part in parts for id in part.retrieved)),
        truncated=any(part.truncated for part in parts),
        omitted=next((part.omitted for part in parts if part.omitted), ""),
    )


def examples_for(examples: ExampleSource | None, cases: Sequence[Case]) -> list[str | None]:
    """Return the few-shot examples of each case; None if a case has no examples."""
    return [text or None for text in examples(cases)] if examples else [None] * len(cases)


def with_examples(system: str, examples: ExampleSource | None) -> str:
    """Return a judge's instructions, with an explanation of the examples if there is a source of examples."""
    return f"{system}\n\n{instructions('examples')}" if examples else system


def rubrics_for(rubric: Rubric | RubricSource | None, cases: Sequence[Case]) -> list[Rubric | None]:
    """Return one rubric per case. A single rubric, or None, is used for all cases."""
    if rubric is None or isinstance(rubric, Rubric):
        return [rubric] * len(cases)
    rubrics = list(rubric(cases))
    if len(rubrics) != len(cases):
        raise UsageError(
            f"{describe_setting(rubric)} gave {len(rubrics)} rubrics for {len(cases)} cases; give one each, or None"
        )
    return rubrics


class ByCase(Generic[T]):
    """A source that looks up items, such as rubrics, by case id. `name` identifies the items in a scoring contract."""

    def __init__(self, items: Mapping[str, T], name: str = "by case"):
        self.items = items
        self.name = f"{name} {content_hash({id: describe_setting(item) for id, item in items.items()})}"

    def __call__(self, cases: Sequence[Case]) -> list[T | None]:
        """Return the item of each case, or None."""
        return [self.items.get(case.id) for case in cases]


def describe_setting(item: Any) -> Any:
    """Return how a scoring contract records a setting: a rubric's content, a callable's name, or the value itself."""
    if isinstance(item, Rubric):
        return asdict(item)
    if isinstance(item, Levels):
        return item.render()
    if callable(item):
        name = item.name if isinstance(item, NamedSource) else ""
        return name or getattr(item, "__qualname__", type(item).__qualname__)  # a function, or an object of own code
    return item


def one_of(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raise a `UsageError` if the value is not among the choices."""
    if value not in choices:
        raise UsageError(f"{name} must be {' or '.join(map(str, choices))}, got {value!r}")


def is_quotation_of(evidence: str, answer: str) -> bool:
    """Return whether the response contains the quotation word by word, ignoring whitespace, case and enclosing quotes.

    >>> is_quotation_of('"Four  apples"', "I have four apples."), is_quotation_of("", "I have four apples.")
    (True, False)
    """
    words = " ".join(evidence.casefold().strip(" \"'“”‘’«».").split())
    return bool(words) and words in " ".join(answer.casefold().split())
