"""Costs of requests: prices, a running total with a limit, and an estimate in advance."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from ...rm.errors import UNREADABLE, DataError, UsageError, did_you_mean
from ...rm.io.checked_files import from_toml
from .chat import Ask, Reply

MILLION = 1_000_000
LETTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Prices:
    """Price per million tokens of the prompt and of the reply, in any currency.

    >>> Prices(prompt=0.4, completion=1.6).cost(500_000, 250_000)
    0.6
    """

    prompt: float = 0.0
    completion: float = 0.0

    def __post_init__(self):
        for name, price in (("prompt", self.prompt), ("completion", self.completion)):
            if not (math.isfinite(price) and price >= 0):
                raise UsageError(f"the price of a million {name} tokens must be a number >= 0, got {price}")

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of a number of tokens."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / MILLION

    def of(self, reply: Reply) -> float:
        """Return the cost of a reply, whether it was usable or not."""
        return self.cost(reply.prompt_tokens, reply.completion_tokens)


FREE = Prices()
"""Prices of a model that runs in this process: 0."""


def read_prices(path: Path, model: str) -> Prices:
    """Load the model's prices from a TOML file with a table `[model]`, which has `prompt` and `completion`."""
    try:
        tables = from_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable TOML file of prices ({error})") from error
    if model not in tables:
        raise UsageError(f"{path}: no prices for '{model}'; {did_you_mean(model, tables, 'add a table for it')}")
    try:
        prices = {name: float(price) for name, price in tables[model].items()}
        return Prices(prompt=prices.pop("prompt"), completion=prices.pop("completion"), **prices)
    except UNREADABLE as error:
        raise DataError(f"{path}: '{model}' needs the numbers 'prompt' and 'completion' ({error})") from error


ROUNDING = 1e-9
"""Relative tolerance by which sums of costs may exceed a limit."""


class Budget:
    """Total cost of several models with an upper limit. Costs are reserved in advance for requests in flight."""

    def __init__(self, limit: float | None = None, spent: float = 0.0):
        if limit is not None and not limit > 0:
            raise UsageError(f"the cost limit must be > 0, got {limit}")
        self.limit, self.spent, self.reserved = limit, spent, 0.0
        self._changing = Lock()

    def holds(self, cost: float) -> bool:
        """Return whether the total would stay within the limit if this cost were added."""
        return self.limit is None or self.spent + self.reserved + cost <= self.limit * (1 + ROUNDING)

    def reserve(self, cost: float) -> bool:
        """Reserve a cost. Return False, and reserve nothing, if the limit would be exceeded."""
        with self._changing:
            allowed = self.holds(cost)
            self.reserved += cost if allowed else 0.0
        return allowed

    def release(self, cost: float) -> None:
        """Cancel the reservation of a cost."""
        with self._changing:
            self.reserved -= cost

    def spend(self, cost: float) -> None:
        """Add a cost to the total."""
        with self._changing:
            self.spent += cost


class Bill:
    """Requests and tokens of one model. Their cost is added to a budget."""

    def __init__(self, prices: Prices | None = None, budget: Budget | None = None):
        self.prices, self.budget = prices or FREE, budget or Budget()
        self.requests = self.prompt_tokens = self.completion_tokens = 0
        if self.budget.limit is not None and prices is None:
            raise UsageError(
                f"a cost limit ({self.budget.limit}) needs prices; give the model's prices of prompt and completion"
            )

    def add(self, reply: Reply) -> None:
        """Count the requests and tokens of a reply, with or without text, and add their cost to the budget."""
        self.requests += reply.requests
        self.prompt_tokens += reply.prompt_tokens
        self.completion_tokens += reply.completion_tokens
        self.budget.spend(self.prices.of(reply))

    def most(self, ask: Ask) -> float:
        """Return an upper bound of a request's cost."""
        return self.prices.cost(most_prompt_tokens(ask), ask.max_tokens)

    def check(self, asks: Sequence[Ask]) -> None:
        """Raise a `UsageError` if the cost limit is too low for any single request, even with nothing spent yet."""
        cheapest = min(asks, key=self.most)
        if not self.budget.spent and not self.budget.holds(self.most(cheapest)):
            raise UsageError(
                f"--max_cost {self.budget.limit:g} is too low: a single request may cost up to "
                f"{self.most(cheapest):.4g} (at most {most_prompt_tokens(cheapest):,} tokens of the prompt and "
                f"--max_tokens {cheapest.max_tokens:,}); raise --max_cost, or lower --max_tokens"
            )

    def refusal(self, ask: Ask) -> str:
        """Return the error text for a request that would exceed the cost limit."""
        return (
            f"the cost limit {self.budget.limit:g} is reached: {self.budget.spent:.4g} spent, and a further request "
            f"may cost up to {self.most(ask):.4g}"
        )


TEMPLATE_TOKENS = 64
"""Upper bound of the tokens that a chat template adds to a message, or to a conversation as a default system turn."""


def most_tokens(text: str) -> int:
    """Return an upper bound of a text's tokens for any tokenizer: its bytes in UTF-8.

    Each token of byte-level BPE, or of SentencePiece with byte fallback, has at least one byte.

    >>> most_tokens("Grün"), most_tokens("")
    (5, 0)
    """
    return len(text.encode("utf-8", "surrogatepass"))


def most_prompt_tokens(ask: Ask) -> int:
    """Return an upper bound of the tokens of a request: its messages, its schema and the chat template."""
    schema = json.dumps(ask.schema) if ask.schema else ""
    texts = [schema, *(message["content"] for message in ask.messages)]
    return sum(most_tokens(text) + TEMPLATE_TOKENS for text in texts)


def most_completion_tokens(ask: Ask, text: str, finish: str) -> int:
    """Return an upper bound of a reply's tokens from its text and reasoning.

    It is `max_tokens` if there is no text or if the reply was truncated.
    """
    return min(most_tokens(text) + 1, ask.max_tokens) if text and finish == "stop" else ask.max_tokens


class Counter(NamedTuple):
    """Method of counting the tokens of a text."""

    count: Callable[[str], int]
    how: str


def letters_as_tokens(text: str) -> int:
    """Return a quarter of the number of characters, rounded up: about right for English, too low for most languages.

    >>> letters_as_tokens("Which is better?"), letters_as_tokens("")
    (4, 0)
    """
    return math.ceil(len(text) / LETTERS_PER_TOKEN)


LETTERS = Counter(letters_as_tokens, f"letters / {LETTERS_PER_TOKEN}")


def counter(tokenizer: str = "") -> Counter:
    """Return a token counter: the tokenizer of a folder or Hub id, else an estimate by characters."""
    if not tokenizer:
        return LETTERS
    from ...rm.backbones.loading import load_tokenizer

    try:
        words = load_tokenizer(tokenizer)
    except DataError as error:
        return LETTERS._replace(how=f"{LETTERS.how}, for {error}")
    return Counter(lambda text: len(words(text, add_special_tokens=False).input_ids), f"the tokenizer of {tokenizer}")


def prompt_tokens(ask: Ask, by: Counter = LETTERS) -> int:
    """Count the tokens of the messages' text, without the tokens of a chat template."""
    return sum(by.count(message["content"]) for message in ask.messages)


class CostEstimate(NamedTuple):
    """Estimate of requests, tokens and cost."""

    calls: int
    prompt_tokens: int
    most_completion_tokens: int
    """Tokens of the replies if every reply has its maximum length."""
    least: float | None
    """Lower bound of the cost: the cost of the prompts alone. None without prices."""
    most: float | None
    """Upper bound of the cost, with every reply at its maximum length. None without prices."""
    counted: str

    def __str__(self) -> str:
        cost = "no cost without prices" if self.most is None else f"{self.least:.4g} to {self.most:.4g}"
        return (
            f"{self.calls:,} calls, about {self.prompt_tokens:,} prompt tokens ({self.counted}) and at most "
            f"{self.most_completion_tokens:,} of replies: {cost}"
        )


def estimate(asks: Sequence[Ask], prices: Prices | None = FREE, by: Counter = LETTERS) -> CostEstimate:
    """Estimate requests, tokens and cost of sending all requests once, without retries."""
    prompts, most = sum(prompt_tokens(ask, by) for ask in asks), sum(ask.max_tokens for ask in asks)
    costs = (prices.cost(prompts, 0), prices.cost(prompts, most)) if prices else (None, None)
    return CostEstimate(len(asks), prompts, most, *costs, by.how)
