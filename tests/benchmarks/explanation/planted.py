"""Small reward models with one known cause, and pairs of responses whose margin it decides."""

from collections.abc import Callable

import numpy as np
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.kinds.linear.model import LinearRewardModel, new_linear
from rewardlab.rm.kinds.scalar.model import ScalarRewardModel, scalar_from_config
from rewardlab.rm.kinds.scalar.training import ScalarTask, encode_pairs
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.types import PreferencePair, user_turn
from rewardlab.tests.stand_ins.small_training import Fit, fit

from tests.rm.spread_models import WORDS

MARKER = "kano"
OTHERS = [word for word in WORDS if word != MARKER]
Texts = tuple[str, str]
"""The better and the worse response."""


def sentence(random: np.random.Generator, marked: bool = False) -> str:
    """Three to five words, one of which may be the marker."""
    words = [*random.choice(OTHERS, int(random.integers(3, 6)))]
    if marked:
        words[int(random.integers(len(words)))] = MARKER
    return f"{' '.join(words)}."


def text(random: np.random.Generator, number: int, marked: int = -1) -> str:
    """Sentences, of which one may have the marker."""
    return " ".join(sentence(random, index == marked) for index in range(number))


def longer(random: np.random.Generator) -> Texts:
    """The longer response is better."""
    short, long = sorted(random.choice(range(1, 9), 2, replace=False))
    return text(random, long), text(random, short)


def earlier(random: np.random.Generator) -> Texts:
    """The response with the marker in its first sentence is better than the one with the marker in its last."""
    numbers = random.integers(3, 6, 2)
    return text(random, numbers[0], 0), text(random, numbers[1], numbers[1] - 1)


def marked(random: np.random.Generator) -> Texts:
    """The response with the marker is better, of whatever length."""
    numbers = random.integers(2, 6, 2)
    return text(random, numbers[0], int(random.integers(numbers[0]))), text(random, numbers[1])


def pairs(cause: Callable[[np.random.Generator], Texts], number: int, seed: int) -> list[PreferencePair]:
    """Preference pairs with the cause."""
    random = np.random.default_rng(seed)
    return [PreferencePair(str(index), user_turn("tell me"), *cause(random)) for index in range(number)]


def linear(cause: Callable[[np.random.Generator], Texts]) -> LinearRewardModel:
    """A linear reward model that is trained on the cause."""
    return new_linear().fit(pairs(cause, 200, seed=0))


def scalar(cause: Callable[[np.random.Generator], Texts]) -> ScalarRewardModel:
    """A small transformer that is trained on the cause."""
    tokenizer = small_tokenizer([" ".join(f"{word}." for word in WORDS), " ".join(WORDS)] * 5, 400)
    model = scalar_from_config(small_config(tokenizer, "llama"), tokenizer, max_length=512)
    rows = encode_pairs(model.encoder, pairs(cause, 512, seed=0), "overall").rows
    fit(model, ScalarTask(bradley_terry()), rows, Fit(steps=96, learning_rate=3e-3, batch=16, seed=0))
    return model
