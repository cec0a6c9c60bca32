"""Questions that demand checkable things, with answers of known quality in three styles.

A prompt demands two to four of the checks through phrases ("Cite a source."); a chosen answer satisfies all of them, a
rejected one breaks exactly one. What a prompt does not demand is there or missing by chance and means nothing, and so
does style: every answer is written concisely, padded, and padded in Markdown, as in RM-Bench (Liu et al. 2024,
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
"""How often a sentence that was not asked for is there."""
SENTENCES = 8
"""Of an answer, padding aside, unless its checks need more."""
TOPICS = ("roses", "bees", "ponds", "herbs", "apples", "compost", "lawns", "hedges", "tulips", "beans", "ferns", "moss")
QUESTIONS = ("How do I care for {}?", "What should I know about {}?", "Help me with {}.", "Teach me about {}.")
NEUTRAL = (
    "Water helps the roots.",
    "Give it some shade.",
    "Loose soil is best.",
    "Keep the bed tidy.",
    "Old leaves can stay.",
    "Morning light is kind.",
    "Check it now and again.",
    "Rain does the rest.",
    "A calm spot is good.",
    "Let the wind pass.",
    "Feed it in spring.",
    "Cut back what is dry.",
)
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
    """An answer before it has a style: a greeting or none, the sentences between, a closing question or none."""

    opening: str
    body: tuple[str, ...]
    closing: str


def write(rng: Random, passed: frozenset[str]) -> Text:
    """A text in which exactly the named checks find what they look for, filled up with sentences that mean nothing."""
    sentence_of = {name: rng.choice(CHECKS[name].sentences) for name in CHECKS if name in passed}
    opening, closing = sentence_of.pop("greeting", ""), sentence_of.pop("question", "")
    free = max(0, SENTENCES - len(sentence_of) - bool(opening) - bool(closing))
    body = [*sentence_of.values(), *rng.sample(NEUTRAL, free)]
    rng.shuffle(body)
    return Text(opening, tuple(body), closing)


def render(text: Text, style: str, padding: Sequence[str] = PADDING[:3]) -> str:
    """A text in one of `STYLES`, with three sentences of padding; no style changes what it satisfies."""
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
    """What an answer says beyond the checks that matter."""
    return frozenset(name for name in CHECKS if name not in fixed and rng.random() < BY_CHANCE)


def _answer(rng: Random, demands: Sequence[str], missed: str = "") -> Text:
    """A text that satisfies all demands but the missed one."""
    fixed = frozenset(name for name in demands if CHECKS[name].forbids == (name == missed))
    return write(rng, fixed | _by_chance(rng, demands))


# ---- items ----


class Item(NamedTuple):
    """A prompt with a chosen and a rejected answer in three styles each, and the check that the rejected one breaks."""

    id: str
    prompt: str
    chosen: tuple[str, ...]
    rejected: tuple[str, ...]
    missed: str

    @property
    def messages(self) -> Messages:
        """The prompt as a user's turn."""
        return user_turn(self.prompt)

    def case(self) -> Case:
        """Shaped as in RM-Bench: three right answers, then three wrong ones."""
        answers = (*self.chosen, *self.rejected)
        return Case(self.id, self.messages, answers, (0, 1, 2), self.missed, cluster=self.prompt, sets=(3, 3))

    def pair(self, chosen: int, rejected: int) -> PreferencePair:
        """One of the nine comparisons, by the places of the styles."""
        name = f"{self.id}-{chosen}{rejected}"
        return PreferencePair(name, self.messages, self.chosen[chosen], self.rejected[rejected], self.missed)


def _random(use: str, seed: int, split: str) -> Random:
    if split not in SPLITS:
        raise UsageError(f"no split '{split}' in the world of checks; there are {SPLITS}")
    return Random(f"checks {use} {split} {seed}")


def split_of(prompt: str) -> str:
    """The one split that may hold this prompt, by its checksum; a quarter are for testing."""
    return SPLITS[zlib.crc32(prompt.encode()) % 4 == 0]


def _prompt(rng: Random, split: str) -> str:
    while True:
        demands = rng.sample([*CHECKS], rng.randint(FEWEST, MOST))
        asked = rng.choice(QUESTIONS).format(rng.choice(TOPICS))
        prompt = " ".join([asked, *(rng.choice(CHECKS[name].demands) for name in demands)])
        if split_of(prompt) == split:
            return prompt


def _styled(rng: Random, text: Text) -> tuple[str, ...]:
    padding = rng.sample(PADDING, 3)
    return tuple(render(text, style, padding) for style in STYLES)


def items(n: int, seed: int, split: str = "train") -> list[Item]:
    """Prompts with answers of which the chosen is good and the rejected breaks one demand, drawn at random."""
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
    """One comparison of each of n items, in styles drawn at random; the missed check is the subset."""
    rng = _random("styles", seed, split)
    return [item.pair(rng.randrange(3), rng.randrange(3)) for item in items(n, seed, split)]


def null_pairs(n: int, seed: int, split: str = "test") -> list[PreferencePair]:
    """Pairs of different answers that are both good: which one is called chosen is a coin's choice.

    A method that says "chosen" more or less often than half the time has seen the label.
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
