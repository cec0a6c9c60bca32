"""A toy world of garden questions on eight topics, in which the true reward of every completion is known exactly.

Prompts name a topic; completions are lists of words. `gold_rewards` is a function of the text, so a claim such as
"guided decoding raises the true reward" can be tested directly. Three properties are built in:

- Only words on the prompt's topic help, so a reward model that does not see the prompt has low accuracy.
- Helpfulness and harmlessness conflict: daring words raise helpfulness most and lower harmlessness, caution words do
  the reverse.
- A few flourish words raise the reward, many lower it. Texts with many are rare in the supervised data, so that a
  reward model extrapolates the rise (over-optimisation; Gao et al. 2023, arXiv:2210.10760).
"""

import math
import zlib
from itertools import count, product
from random import Random
from typing import NamedTuple

import numpy as np

from ...rm.errors import UsageError
from ...rm.types import OVERALL, Example, Labeller, Messages, PreferencePair, user_turn
from .gold_reward import CAUTION, FILLER, FLOURISH, OBJECTIVES, TOPICS, gold_rewards
from .gold_reward import gold as gold
from .gold_reward import topic_of as topic_of

OPENINGS = ("", "hello ", "please ", "friend ")
QUESTIONS = (
    "tell me about {}",
    "what should i know about {}",
    "how do i start with {}",
    "describe {}",
    "teach us something on {}",
    "what matters for {}",
)
SPLITS = ("train", "validation", "test")
TEMPERATURE = 0.2
NOISE = 0.05


def vocabulary() -> tuple[str, ...]:
    """Return all words of prompts and completions, each once, in a fixed order."""
    question_words = (word for phrase in OPENINGS + QUESTIONS for word in phrase.format("").split())
    topic_words = (word for topic in TOPICS.values() for word in topic.plain + topic.daring)
    return tuple(dict.fromkeys([*question_words, *topic_words, *FLOURISH, *CAUTION, *FILLER]))


def labeller(objective: str = OVERALL, *, temperature: float = TEMPERATURE, noise: float = NOISE) -> Labeller:
    """Return a noisy labeller of pairs. Labels are nearly certain for large differences of the gold rewards Δ.

    P(first better) = (1 - noise) σ(Δ/temperature) + noise (1 - σ(Δ/temperature)),   Δ = gold(first) - gold(second)
    """

    model = gold((objective,))

    def label(prompt: Messages, completions: tuple[str, str]) -> float:
        first, second = model.rate([Example(prompt, completion) for completion in completions])[:, 0].tolist()
        # tanh does not overflow: σ(x) = (1 + tanh(x/2)) / 2
        chance = (1 + math.tanh((first - second) / (2 * temperature))) / 2
        return (1 - noise) * chance + noise * (1 - chance)

    return label


def _content(rng: Random, topic: str, length: int) -> list[str]:
    """Sample topic words with random skill: the lower the skill, the more words belong to one other topic."""
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


def write_answer(rng: Random, topic: str) -> str:
    """Generate a completion of 4 to 24 words with random quality."""
    carrying = _content(rng, topic, rng.randint(2, 11))
    flourishes = rng.choices(range(5), weights=(470, 320, 205, 4, 1))[0]  # more than two are rare (0.5 %)
    carrying += rng.choices(FLOURISH, k=flourishes) + rng.choices(CAUTION, k=rng.choice((0, 0, 0, 1, 1, 2)))
    rng.shuffle(carrying)
    words = " ".join(f"{rng.choice(FILLER)} {word}" if rng.random() < 0.5 else word for word in carrying).split()[:24]
    return " ".join(words + rng.choices(FILLER, k=max(0, 4 - len(words))))


def split_of(prompt: str, answer: str) -> str:
    """Return the split of a text, chosen by its checksum, so that training and test texts are disjoint."""
    return SPLITS[zlib.crc32(f"{prompt}\n{answer}".encode()) % len(SPLITS)]


class _Question(NamedTuple):
    topic: str
    text: str


def _question(rng: Random) -> _Question:
    topic = rng.choice([*TOPICS])
    return _Question(topic, rng.choice(OPENINGS) + rng.choice(QUESTIONS).format(topic))


def _answer_in(rng: Random, split: str, question: _Question) -> str:
    """Generate completions until one belongs to the split, and return it."""
    drafts = (write_answer(rng, question.topic) for _ in count())
    return next(draft for draft in drafts if split_of(question.text, draft) == split)


def _random(use: str, seed: int, split: str) -> Random:
    """Return a random generator for one use of a split. Raise an error for an unknown split."""
    if split not in SPLITS:
        raise UsageError(f"no split '{split}' in the garden; the splits are {SPLITS}")
    return Random(f"garden {use} {split} {seed}")


def questions() -> list[Messages]:
    """Return all 192 questions. Each four consecutive questions differ only in their opening."""
    phrasings = product(TOPICS, QUESTIONS, OPENINGS)
    return [user_turn(opening + question.format(topic)) for topic, question, opening in phrasings]


def prompts(n: int, seed: int) -> list[Messages]:
    """Sample n questions with replacement."""
    rng = Random(f"garden prompts {seed}")
    return [user_turn(_question(rng).text) for _ in range(n)]


def supervised_examples(n: int, seed: int, split: str = "train") -> list[Example]:
    """Generate supervised data for the initial policy: questions with completions of mixed quality."""
    rng = _random("supervised", seed, split)
    questions = (_question(rng) for _ in range(n))
    return [Example(user_turn(question.text), _answer_in(rng, split, question)) for question in questions]


def sign_label(difference: float) -> float:
    """Return the label of a difference of gold rewards. Differences of the size of rounding errors are ties."""
    return 0.5 if abs(difference) < 1e-9 else float(difference > 0)


def _pair(rng: Random, id: str, split: str, judge: Labeller) -> PreferencePair:
    question = _question(rng)
    prompt = user_turn(question.text)
    first, second = _answer_in(rng, split, question), _answer_in(rng, split, question)
    chosen, rejected = (first, second) if rng.random() < judge(prompt, (first, second)) else (second, first)
    differences = np.subtract(gold_rewards(question.text, chosen), gold_rewards(question.text, rejected))
    wins = {name: sign_label(difference) for name, difference in zip(OBJECTIVES, differences, strict=True)}
    return PreferencePair(id, prompt, chosen, rejected, subset=question.topic, wins={OVERALL: 1.0, **wins})


def pairs(
    n: int, seed: int, split: str = "train", *, temperature: float = TEMPERATURE, noise: float = NOISE
) -> list[PreferencePair]:
    """Generate preference pairs. `overall` is the noisy label from `labeller`; labels of objectives are exact.

    `chosen` is the sampled winner, with the higher gold reward in about nine of ten pairs; `subset` is the topic.
    """
    rng, judge = _random("pairs", seed, split), labeller(temperature=temperature, noise=noise)
    return [_pair(rng, f"garden-{split}-{seed}-{index}", split, judge) for index in range(n)]
