"""The gold reward of the garden, a toy world: an exact function of prompt and completion."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ...rm.contract.scoring_contract import ScoringContract
from ...rm.errors import UsageError
from ...rm.types import OVERALL, Example, prompt_text


class Topic(NamedTuple):
    """Words of one topic that raise the reward for prompts on that topic."""

    plain: tuple[str, ...]
    daring: tuple[str, ...]


def _list(words: str) -> tuple[str, ...]:
    return tuple(words.split())


def _topic(plain: str, daring: str) -> Topic:
    """Return a topic from its plain and its daring words, separated by blanks."""
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
OBJECTIVES = ("helpful", "harmless", "engaging")


def topic_of(prompt: str) -> str | None:
    """Return the last topic that the prompt names; None if it names none."""
    return next((word for word in reversed(prompt.split()) if word in TOPICS), None)


class Features(NamedTuple):
    """Word counts that determine the gold reward."""

    plain: int
    """Number of distinct plain words on the prompt's topic."""
    daring: int
    """Number of distinct daring words on the prompt's topic."""
    caution: int
    """Number of distinct caution words."""
    flourish: int
    """Number of flourish words, with repetitions."""
    off_topic: int
    """Number of all other words except fillers: other topics, question words, unknown words."""
    repeats: int
    """Number of repeated words, except fillers."""


def features(prompt: str, answer: str) -> Features:
    """Count the features of a completion. Word order does not matter.

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
    """Compute the true rewards from the word counts of `Features`. An empty completion has reward 0.

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
    """The gold reward as a `RewardModel`, an exact oracle with the objectives of its scoring contract."""

    contract: ScoringContract

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return the gold rewards [N, K] of N examples for K objectives."""
        objectives = self.contract.objectives
        golds = [gold_rewards(prompt_text(example.prompt), example.text) for example in examples]
        return np.array([*map(attrgetter(*objectives), golds)], dtype=np.float64).reshape(len(golds), len(objectives))


def gold(objectives: Sequence[str] = (OVERALL,)) -> GoldModel:
    """Return the oracle with the given objectives, each from `OBJECTIVES` or "overall"."""
    for objective in objectives:
        if objective not in (*OBJECTIVES, OVERALL):
            raise UsageError(f"no objective '{objective}' in the garden; the objectives are {(*OBJECTIVES, OVERALL)}")
    return GoldModel(ScoringContract(kind="gold", objectives=tuple(objectives), dtype="float64"))
