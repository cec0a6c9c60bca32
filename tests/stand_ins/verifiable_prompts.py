"""Prompts with verifiable demands, and responses of known quality in three styles.

A prompt demands two to four of the checks through phrases ("Cite a source."); a chosen response satisfies all of them,
a rejected one fails exactly one. Checks that a prompt does not demand pass at random and do not affect the label, nor
does style: every response is written concisely, padded, and padded in Markdown, as in RM-Bench (Liu et al. 2024,
arXiv:2410.16184).
"""

import zlib
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ...judges.types import Case
from ...rm.errors import UsageError
from ...rm.types import OVERALL, Messages, PreferencePair, user_turn
from .checks import CHECKS, demanded

STYLES = ("concise", "padded", "padded in Markdown")
SPLITS = ("train", "test")
FEWEST, MOST = 2, 4
BY_CHANCE = 0.15
"""Probability of each sentence that was not demanded."""
SENTENCES = 8
"""Sentences of a response without padding, unless its checks need more."""
TOPICS = ("roses", "bees", "ponds", "herbs", "apples", "compost", "lawns", "hedges", "tulips", "beans", "ferns", "moss")
QUESTIONS = ("How do I care for {}?", "What should I know about {}?", "Help me with {}.", "Teach me about {}.")
NEUTRAL = (
    "Water helps the roots.", "Give it some shade.", "Loose soil is best.", "Keep the bed tidy.",
    "Old leaves can stay.", "Morning light is kind.", "Check it now and again.", "Rain does the rest.",
    "A calm spot is good.", "Let the wind pass.", "Feed it in spring.", "Cut back what is dry.",
)  # fmt: skip
PADDING = (
    "There is so much that one could say about this lovely matter.",
    "Many people wonder about exactly this and they are right to do so.",
    "It is worth taking the time to look at it from every side.",
    "All of this matters a great deal when you think about it for longer.",
    "With care and with patience everything falls into place as it should.",
    "What counts in the end is the joy that it brings to everyone around.",
)
HEADING = "## In detail"


class Text(NamedTuple):
    """A response without style: a greeting or "", the sentences between, a closing question or ""."""

    opening: str
    body: tuple[str, ...]
    closing: str


def write(rng: Random, passed: frozenset[str]) -> Text:
    """Return a text that passes exactly the named checks' tests, filled up with neutral sentences."""
    sentence_of = {name: rng.choice(CHECKS[name].sentences) for name in CHECKS if name in passed}
    opening, closing = sentence_of.pop("greeting", ""), sentence_of.pop("question", "")
    free = max(0, SENTENCES - len(sentence_of) - bool(opening) - bool(closing))
    body = [*sentence_of.values(), *rng.sample(NEUTRAL, free)]
    rng.shuffle(body)
    return Text(opening, tuple(body), closing)


def render(text: Text, style: str, padding: Sequence[str] = PADDING[:3]) -> str:
    """Render a text in one of `STYLES`, with three sentences of padding; no style changes what it satisfies."""
    if style == STYLES[0]:
        return " ".join(filter(None, [text.opening, *text.body, text.closing]))
    if style == STYLES[1]:
        half = len(text.body) // 2
        parts = [text.opening, padding[0], *text.body[:half], padding[1], *text.body[half:], padding[2]]
        return " ".join(filter(None, [*parts, text.closing]))
    if style == STYLES[2]:
        listed = "\n".join(f"- {sentence}" for sentence in text.body)
        blocks = [text.opening, HEADING, padding[0], listed, padding[1], f"**{padding[2]}**", text.closing]
        return "\n\n".join(filter(None, blocks))
    raise UsageError(f"no style '{style}' in the world of checks; there are {STYLES}")


def _by_chance(rng: Random, fixed: Sequence[str]) -> frozenset[str]:
    """Draw the checks that a response passes beyond those that the prompt demands or excludes."""
    return frozenset(name for name in CHECKS if name not in fixed and rng.random() < BY_CHANCE)


def _answer(rng: Random, demands: Sequence[str], missed: str = "") -> Text:
    """Return a text that satisfies all demands except the missed one."""
    fixed = frozenset(name for name in demands if CHECKS[name].forbids == (name == missed))
    return write(rng, fixed | _by_chance(rng, demands))


# ---- items ----


class Item(NamedTuple):
    """A prompt with a chosen and a rejected response in three styles each, and the check that the latter fails."""

    id: str
    prompt: str
    chosen: tuple[str, ...]
    rejected: tuple[str, ...]
    missed: str

    @property
    def messages(self) -> Messages:
        """The prompt as a user turn."""
        return user_turn(self.prompt)

    def case(self) -> Case:
        """Return an RM-Bench-shaped case: three right responses, then three wrong ones."""
        answers = (*self.chosen, *self.rejected)
        return Case(self.id, self.messages, answers, (0, 1, 2), self.missed, cluster=self.prompt, sets=(3, 3))

    def pair(self, chosen: int, rejected: int) -> PreferencePair:
        """Return one of the nine comparisons, by the indices of the styles."""
        name = f"{self.id}-{chosen}{rejected}"
        return PreferencePair(name, self.messages, self.chosen[chosen], self.rejected[rejected], self.missed)


def _random(use: str, seed: int, split: str) -> Random:
    if split not in SPLITS:
        raise UsageError(f"no split '{split}' in the world of checks; there are {SPLITS}")
    return Random(f"checks {use} {split} {seed}")


def split_of(prompt: str) -> str:
    """Return the only split that may contain this prompt, by its checksum; a quarter are for testing."""
    return SPLITS[zlib.crc32(prompt.encode()) % 4 == 0]


def _prompt(rng: Random, split: str) -> str:
    while split_of(prompt := draw_prompt(rng)[1]) != split:
        pass
    return prompt


def draw_prompt(rng: Random) -> tuple[list[str], str]:
    """Draw a prompt of any split: its demands in order, and its text."""
    demands = rng.sample([*CHECKS], rng.randint(FEWEST, MOST))
    asked = rng.choice(QUESTIONS).format(rng.choice(TOPICS))
    return demands, " ".join([asked, *(rng.choice(CHECKS[name].demands) for name in demands)])


def _styled(rng: Random, text: Text) -> tuple[str, ...]:
    padding = rng.sample(PADDING, 3)
    return tuple(render(text, style, padding) for style in STYLES)


def items(n: int, seed: int, split: str = "train") -> list[Item]:
    """Generate prompts with a chosen response and a rejected one that fails one demand."""
    rng, made = _random("items", seed, split), []
    for index in range(n):
        prompt = _prompt(rng, split)
        demands = demanded(prompt)
        missed = rng.choice(demands)
        chosen, rejected = _answer(rng, demands), _answer(rng, demands, missed)
        styled = (_styled(rng, chosen), _styled(rng, rejected))
        made.append(Item(f"checks-{split}-{seed}-{index}", prompt, *styled, missed))
    return made


def pairs(n: int, seed: int, split: str = "train") -> list[PreferencePair]:
    """Return one comparison of each of n items, in random styles; the missed check is the subset."""
    rng = _random("styles", seed, split)
    return [item.pair(rng.randrange(3), rng.randrange(3)) for item in items(n, seed, split)]


def null_pairs(n: int, seed: int, split: str = "test") -> list[PreferencePair]:
    """Return pairs of different responses that are both good, of which a random one is called chosen.

    A method that picks "chosen" significantly more or less than half the time has access to the label.
    """
    rng, made = _random("nulls", seed, split), []
    while len(made) < n:
        prompt = _prompt(rng, split)
        two = [render(_answer(rng, demanded(prompt)), rng.choice(STYLES)) for _ in range(2)]
        if two[0] != two[1]:
            rng.shuffle(two)
            made.append(
                PreferencePair(f"null-{split}-{seed}-{len(made)}", user_turn(prompt), *two, wins={OVERALL: 0.5})
            )
    return made
