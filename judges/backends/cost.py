"""Costs of requests: prices, a running total with a limit, and an estimate in advance."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...rm.errors import UNREADABLE, DataError, UsageError, did_you_mean
from ...rm.io.checked_files import from_toml
from .chat import Ask, Reply

MILLION = 1_000_000
LETTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Prices:
    """Money per million tokens of the prompt and of the reply, in any one currency.

    >>> Prices(prompt=0.4, completion=1.6).cost(500_000, 250_000)
    0.6
    """

    prompt: float = 0.0
    completion: float = 0.0

    def __post_init__(self):
        for name, price in (("prompt", self.prompt), ("completion", self.completion)):
            if not (math.isfinite(price) and price >= 0):
                raise UsageError(f"the price of a million {name} tokens is a number >= 0, got {price}")

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of a number of tokens."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / MILLION

    def of(self, reply: Reply) -> float:
        """Return the cost of a reply, whether or not it could be used."""
        return self.cost(reply.prompt_tokens, reply.completion_tokens)


FREE = Prices()


def read_prices(path: Path, model: str) -> Prices:
    """Load the model's prices from a TOML file with a table per model: `[model]`, then `prompt` and `completion`."""
    try:
        tables = from_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no readable TOML file of prices ({error})") from error
    if model not in tables:
        raise UsageError(f"{path}: no prices for '{model}'; {did_you_mean(model, tables, 'add a table for it')}")
    try:
        return Prices(**{name: float(price) for name, price in tables[model].items()})
    except UNREADABLE as error:
        raise DataError(f"{path}: '{model}' needs the numbers prompt and completion ({error})") from error


@dataclass
class Bill:
    """What was spent so far. Attempts that ended without a reply are not on it: their cost is unknown."""

    prices: Prices = FREE
    limit: float | None = None
    """Cost at which no further request is sent; None is no limit."""
    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __post_init__(self):
        if self.limit is not None and not self.limit > 0:
            raise UsageError(f"a limit of cost is a number > 0, got {self.limit}")
        if self.limit is not None and self.prices == FREE:
            raise UsageError(
                f"a limit of cost ({self.limit}) needs prices; give the model's Prices(prompt, completion)"
            )

    def add(self, reply: Reply) -> None:
        """Add the cost of a reply."""
        self.replies += 1
        self.prompt_tokens += reply.prompt_tokens
        self.completion_tokens += reply.completion_tokens

    @property
    def money(self) -> float:
        """All of it."""
        return self.prices.cost(self.prompt_tokens, self.completion_tokens)

    @property
    def refusal(self) -> str:
        """Return why no further request may be sent; empty if one may."""
        if self.limit is None or self.money < self.limit:
            return ""
        return f"the limit of cost {self.limit:g} is reached: {self.money:.4g} spent on {self.replies} replies"


# ---- before anything is asked ----


class Counter(NamedTuple):
    """A way to count a text's tokens."""

    count: Callable[[str], int]
    how: str


def letters_as_tokens(text: str) -> int:
    """A quarter of the text's letters, rounded up: about right for English, too low for most other languages.

    >>> letters_as_tokens("Which is better?"), letters_as_tokens("")
    (4, 0)
    """
    return math.ceil(len(text) / LETTERS_PER_TOKEN)


LETTERS = Counter(letters_as_tokens, f"letters / {LETTERS_PER_TOKEN}")


def counter(tokenizer: str = "") -> Counter:
    """Counts with the tokenizer of a folder or Hub id where there is one, by letters otherwise, and says which."""
    if not tokenizer:
        return LETTERS
    from ...rm.backbones.loading import load_tokenizer

    try:
        words = load_tokenizer(tokenizer)
    except DataError as error:
        return LETTERS._replace(how=f"{LETTERS.how}, for {error}")
    return Counter(lambda text: len(words(text, add_special_tokens=False).input_ids), f"the tokenizer of {tokenizer}")


def prompt_tokens(ask: Ask, by: Counter = LETTERS) -> int:
    """Count the tokens of the messages' text, without those of a chat template."""
    return sum(by.count(message["content"]) for message in ask.messages)


class Estimate(NamedTuple):
    """Estimate of calls, tokens and cost."""

    calls: int
    prompt_tokens: int
    most_completion_tokens: int
    """Cost if every reply has its maximum length."""
    least: float
    """Cost of the prompts alone."""
    most: float
    counted: str

    def __str__(self) -> str:
        return (
            f"{self.calls:,} calls, about {self.prompt_tokens:,} prompt tokens ({self.counted}) and at most "
            f"{self.most_completion_tokens:,} of replies: {self.least:.4g} to {self.most:.4g}"
        )


def estimate(asks: Sequence[Ask], prices: Prices = FREE, by: Counter = LETTERS) -> Estimate:
    """Estimate calls, tokens and cost of sending all requests once, without retries."""
    prompts, most = sum(prompt_tokens(ask, by) for ask in asks), sum(ask.max_tokens for ask in asks)
    return Estimate(len(asks), prompts, most, prices.cost(prompts, 0), prices.cost(prompts, most), by.how)
