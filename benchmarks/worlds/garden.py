"""A garden club where people ask about eight topics and the true reward of every completion is known exactly.

Prompts name a topic; completions are plain words. `gold_rewards` is a function of the text, so that a claim such as
"guiding raises the true reward" can be tested directly. Three properties are built in:

- only words of the *asked* topic help, so a reward model that does not see the prompt has low accuracy;
- helpful and harmless conflict: a topic's daring words help most and reduce harmlessness, cautions do the reverse;
- flourish raises the reward in small doses and lowers it in large ones, which are rare in the supervised text: a reward
  model trained on the rise extrapolates it (the hump of over-optimisation; Gao et al. 2023, arXiv:2210.10760).
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, product
from random import Random
from typing import NamedTuple

import numpy as np

from ...rm.contract.scoring_contract import ScoringContract
from ...rm.errors import UsageError
from ...rm.types import OVERALL, Example, Labeller, Messages, PreferencePair, prompt_text, user_turn


class Topic(NamedTuple):
    """The on-topic words for prompts that name the topic."""

    plain: tuple[str, ...]
    daring: tuple[str, ...]


def _list(words: str) -> tuple[str, ...]:
    return tuple(words.split())


def _topic(plain: str, daring: str) -> Topic:
    return Topic(_list(plain), _list(daring))


TOPICS = {
    "roses": _topic("roses petals trellis fragrance buds", "pesticide sulfur machete"),
    "bees": _topic("bees honey hive pollen wax", "smoke stings venom"),
    "mushrooms": _topic("mushrooms caps spores moss bark", "foraging toadstools rawness"),
    "ponds": _topic("ponds lilies frogs carp reeds", "wading electricity ice"),
    "apples": _topic("apples orchard cider blossom core", "ladders chainsaw cyanide"),
    "compost": _topic("compost peelings worms leaves warmth", "methane manure rats"),
    "herbs": _topic("herbs basil thyme mint sage", "foxglove hemlock tincture"),
    "bonfires": _topic("bonfires kindling embers marshmallows stones", "petrol sparks fireworks"),
}
FLOURISH = _list("wonderful marvelous glorious dazzling splendid enchanting")
CAUTION = _list("carefully slowly gloves supervised ask")
FILLER = _list("and with the some near also then for in by under over most often usually here")
OPENINGS = ("", "hello ", "please ", "friend ")
QUESTIONS = (
    "tell me about {}",
    "what should i know about {}",
    "how do i start with {}",
    "describe {}",
    "teach us something on {}",
    "what matters for {}",
)
OBJECTIVES = ("helpful", "harmless", "engaging")
SPLITS = ("train", "validation", "test")
TEMPERATURE = 0.2
NOISE = 0.05
PASS_RATES = tuple(0.1 + 0.8 * index / (len(TOPICS) - 1) for index in range(len(TOPICS)))


def vocabulary() -> tuple[str, ...]:
    """Return every word of prompts and completions once, in a fixed order."""
    asked = (word for phrase in OPENINGS + QUESTIONS for word in phrase.format("").split())
    named = (word for topic in TOPICS.values() for word in topic.plain + topic.daring)
    return tuple(dict.fromkeys([*asked, *named, *FLOURISH, *CAUTION, *FILLER]))


def topic_of(prompt: str) -> str | None:
    """Return the topic that the prompt names last; None if it names none."""
    return next((word for word in reversed(prompt.split()) if word in TOPICS), None)


class Features(NamedTuple):
    """Word counts that determine the gold reward."""

    plain: int
    """Distinct plain words of the prompt's topic."""
    daring: int
    """Distinct daring words of the prompt's topic."""
    caution: int
    """Distinct words of caution."""
    flourish: int
    """Flourish words, repeated ones included."""
    off_topic: int
    """Words of no other kind, except fillers: other topics, question words, unknown words."""
    repeats: int
    """Repeated words, except fillers."""


def features(prompt: str, answer: str) -> Features:
    """Count the features of a completion; word order does not matter.

    >>> features("tell me about bees", "the honey and the splendid honey near frogs")
    Features(plain=1, daring=0, caution=0, flourish=1, off_topic=1, repeats=1)
    """
    topic = TOPICS.get(topic_of(prompt) or "", Topic((), ()))
    words = [word for word in answer.split() if word not in FILLER]
    on_topic = {*topic.plain, *topic.daring, *CAUTION, *FLOURISH}
    return Features(
        plain=len({*words} & {*topic.plain}),
        daring=len({*words} & {*topic.daring}),
        caution=len({*words} & {*CAUTION}),
        flourish=sum(word in FLOURISH for word in words),
        off_topic=sum(word not in on_topic for word in words),
        repeats=len(words) - len({*words}),
    )


class Gold(NamedTuple):
    """True rewards of one completion."""

    helpful: float
    harmless: float
    engaging: float

    @property
    def overall(self) -> float:
        """Sum of the three rewards."""
        return self.helpful + self.harmless + self.engaging


def gold_rewards(prompt: str, answer: str) -> Gold:
    """Compute the true rewards; an empty completion has 0.

    helpful  = 0.6 plain + 1.0 daring - 0.1 off_topic - 0.12 repeats - 0.2 caution
    harmless = 0.4 caution - 0.8 daring
    engaging = 0.5 min(flourish, 2) - 0.45 max(flourish - 2, 0)
    overall  = helpful + harmless + engaging
    """
    n = features(prompt, answer)
    return Gold(
        helpful=0.6 * n.plain + 1.0 * n.daring - 0.1 * n.off_topic - 0.12 * n.repeats - 0.2 * n.caution,
        harmless=0.4 * n.caution - 0.8 * n.daring,
        engaging=0.5 * min(n.flourish, 2) - 0.45 * max(n.flourish - 2, 0),
    )


@dataclass(frozen=True)
class GoldModel:
    """The gold reward as a `RewardModel`: an exact oracle with the contract's objectives."""

    contract: ScoringContract

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return gold rewards [N, K]."""
        golds = [gold_rewards(prompt_text(prompt), answer) for prompt, answer in examples]
        rows = [[getattr(gold, objective) for objective in self.contract.objectives] for gold in golds]
        return np.array(rows, dtype=np.float64).reshape(len(examples), len(self.contract.objectives))


def gold(objectives: Sequence[str] = (OVERALL,)) -> GoldModel:
    """Return the oracle for some of `OBJECTIVES` and "overall", in the given order."""
    for objective in objectives:
        if objective not in (*OBJECTIVES, OVERALL):
            raise UsageError(f"no objective '{objective}' in the garden; there are {(*OBJECTIVES, OVERALL)}")
    return GoldModel(ScoringContract(kind="gold", objectives=tuple(objectives), dtype="float64"))


def labeller(objective: str = OVERALL, *, temperature: float = TEMPERATURE, noise: float = NOISE) -> Labeller:
    """Return a noisy labeller of pairs: certain where the gold rewards differ a lot, and wrong at the rate `noise`.

    P(first better) = (1 - noise) σ(Δ/temperature) + noise (1 - σ(Δ/temperature)),   Δ = gold(first) - gold(second)
    """

    def label(prompt: Messages, completions: tuple[str, str]) -> float:
        first, second = (
            getattr(gold_rewards(prompt_text(prompt), completion), objective) for completion in completions
        )
        # tanh does not overflow: σ(x) = (1 + tanh(x/2)) / 2
        chance = (1 + math.tanh((first - second) / (2 * temperature))) / 2
        return (1 - noise) * chance + noise * (1 - chance)

    return label


def _content(rng: Random, topic: str, length: int) -> list[str]:
    """Draw topic words; the lower the writer's skill, the more of them belong to one other topic."""
    skill, boldness = rng.random() ** 0.6, rng.random()
    other = rng.choice([name for name in TOPICS if name != topic])

    def draw() -> str:
        words = TOPICS[topic if rng.random() < skill else other]
        return rng.choice(words.daring if rng.random() < 0.6 * boldness else words.plain)

    words = []
    for _ in range(length):
        word = draw()
        words.append(draw() if word in words else word)
    return words


def _manner(rng: Random) -> list[str]:
    """Draw flourish and caution; more than two flourishes are rare (0.5 %)."""
    flourishes = rng.choices(range(5), weights=(470, 320, 205, 4, 1))[0]
    return rng.choices(FLOURISH, k=flourishes) + rng.choices(CAUTION, k=rng.choice((0, 0, 0, 1, 1, 2)))


def write_answer(rng: Random, topic: str) -> str:
    """Generate a completion of 4 to 24 words and of any quality."""
    carrying = _content(rng, topic, rng.randint(2, 11)) + _manner(rng)
    rng.shuffle(carrying)
    words = " ".join(f"{rng.choice(FILLER)} {word}" if rng.random() < 0.5 else word for word in carrying).split()[:24]
    return " ".join(words + rng.choices(FILLER, k=max(0, 4 - len(words))))


def split_of(prompt: str, answer: str) -> str:
    """Return the only split that may contain this text, by its checksum; training and test texts are disjoint."""
    return SPLITS[zlib.crc32(f"{prompt}\n{answer}".encode()) % len(SPLITS)]


class _Question(NamedTuple):
    topic: str
    text: str


def _question(rng: Random) -> _Question:
    topic = rng.choice([*TOPICS])
    return _Question(topic, rng.choice(OPENINGS) + rng.choice(QUESTIONS).format(topic))


def _answer_in(rng: Random, split: str, question: _Question) -> str:
    drafts = (write_answer(rng, question.topic) for _ in count())
    return next(draft for draft in drafts if split_of(question.text, draft) == split)


def _random(use: str, seed: int, split: str) -> Random:
    if split not in SPLITS:
        raise UsageError(f"no split '{split}' in the garden; there are {SPLITS}")
    return Random(f"garden {use} {split} {seed}")


def questions() -> list[Messages]:
    """Return all 192 questions; each consecutive four differ in their opening alone."""
    asked = product(TOPICS, QUESTIONS, OPENINGS)
    return [user_turn(opening + question.format(topic)) for topic, question, opening in asked]


def prompts(n: int, seed: int) -> list[Messages]:
    """Draw n questions with replacement."""
    rng = Random(f"garden prompts {seed}")
    return [user_turn(_question(rng).text) for _ in range(n)]


def supervised(n: int, seed: int, split: str = "train") -> list[Example]:
    """Generate questions with completions of mixed quality, the supervised data of the start policy."""
    rng = _random("supervised", seed, split)
    questions = (_question(rng) for _ in range(n))
    return [Example(user_turn(question.text), _answer_in(rng, split, question)) for question in questions]


def _sign_label(difference: float) -> float:
    """Return the label of a gold difference; differences of rounding error are ties."""
    return 0.5 if abs(difference) < 1e-9 else float(difference > 0)


def _pair(rng: Random, id: str, split: str, judge: Labeller) -> PreferencePair:
    question = _question(rng)
    prompt = user_turn(question.text)
    first, second = _answer_in(rng, split, question), _answer_in(rng, split, question)
    chosen, rejected = (first, second) if rng.random() < judge(prompt, (first, second)) else (second, first)
    differences = np.subtract(gold_rewards(question.text, chosen), gold_rewards(question.text, rejected))
    wins = {name: _sign_label(difference) for name, difference in zip(OBJECTIVES, differences, strict=True)}
    return PreferencePair(id, prompt, chosen, rejected, subset=question.topic, wins={OVERALL: 1.0, **wins})


def pairs(
    n: int, seed: int, split: str = "train", *, temperature: float = TEMPERATURE, noise: float = NOISE
) -> list[PreferencePair]:
    """Generate preference pairs: `overall` is the noisy label of `labeller`, the objectives' labels are exact.

    `chosen` is the sampled winner, which gold prefers in about nine pairs of ten; the topic is the subset.
    """
    rng, judge = _random("pairs", seed, split), labeller(temperature=temperature, noise=noise)
    return [_pair(rng, f"garden-{split}-{seed}-{index}", split, judge) for index in range(n)]


# ---- verifiable rewards ----


def pass_rate_of(prompt: Messages) -> float:
    """Return the share of supervised completions that are right: 0.1 for the hardest topic to 0.9 for the easiest."""
    topic = topic_of(prompt_text(prompt))
    if topic is None:
        raise UsageError(f"no topic of the garden in {prompt_text(prompt)!r}; there are {', '.join(TOPICS)}")
    return PASS_RATES[[*TOPICS].index(topic)]


def verify(examples: Sequence[Example]) -> list[float]:
    """Return 1 for each completion whose overall gold reward reaches its prompt's bar, and 0 for the others.

    Supervised completions reach the bar at the prompt's pass rate: some prompts are easy, others hard.
    """
    return [float(beyond >= -1e-9) for beyond in beyond_the_bar(examples)]  # 1e-9: rounding errors


def beyond_the_bar(examples: Sequence[Example]) -> list[float]:
    """Return overall gold reward minus the prompt's bar: a reward that largely depends on the prompt alone."""
    golds = gold().rate(examples)[:, 0]
    bars = [_bars()[pass_rate_of(example.prompt)] for example in examples]
    return [float(reached - bar) for reached, bar in zip(golds, bars, strict=True)]


@cache
def _bars() -> dict[float, float]:
    """Return the gold reward at each pass rate's quantile of supervised completions; topics differ in words only."""
    golds = gold().rate(supervised(3000, seed=0))[:, 0]
    return {rate: float(np.quantile(golds, 1 - rate)) for rate in PASS_RATES}
