"""Prompts, samples of policies, and proxies in the garden: reward models that are more or less accurate."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from transformers import PreTrainedModel

from ...benchmarks.garden import NOISE, gold, labeller, pairs, questions
from ...benchmarks.garden.models import tokenizer
from ...policy.decoding.engines import SeparateModels, decoding_model
from ...policy.decoding.guided import decode
from ...policy.decoding.requests import Request
from ...rm.kinds.scalar.model import ScalarRewardModel, scalar_from_config
from ...rm.kinds.scalar.training import ScalarTask, encode_pairs
from ...rm.losses.bradley_terry import bradley_terry
from ...rm.types import OVERALL, Example, Messages, PreferencePair, RewardModel
from ...tests.stand_ins.small_training import Fit, fit

LONGEST = 32
BATCH_SIZE = 512


def split_prompts() -> tuple[list[Messages], list[Messages]]:
    """Return the training prompts (three openings of every question) and the unseen prompts (the fourth)."""
    prompts = questions()
    return [prompt for index, prompt in enumerate(prompts) if index % 4], prompts[::4]


def unseen_prompts(number: int) -> list[Messages]:
    """Return that number of unseen prompts; they are repeated in turn."""
    unseen = split_prompts()[1]
    return [unseen[index % len(unseen)] for index in range(number)]


def sample(policy: Any, prompts: Sequence[Messages], seed: int) -> list[Example]:
    """Sample one completion of every prompt, at temperature 1, of at most 32 tokens; prompts may repeat."""
    requests = [
        Request(prompt, seed=seed * 1_000_000 + index, max_new_tokens=LONGEST) for index, prompt in enumerate(prompts)
    ]
    engine = SeparateModels(decoding_model(policy, tokenizer()))
    completions = decode(engine, requests, batch_size=BATCH_SIZE, progress=False)
    return [Example(prompt, completion.text) for prompt, completion in zip(prompts, completions, strict=True)]


@dataclass(frozen=True)
class Teaching:
    """Training data and schedule of a proxy: garden pairs of the seed's training split."""

    pairs: int
    steps: int
    learning_rate: float
    votes: Literal["one", "many"] = "one"
    """Labels are one noisy vote (see `garden.labeller`), or the vote share at temperature 1 without label noise."""
    batch: int = 32
    noise: float = NOISE
    """Share of the votes that are flipped; with 0.5 labels are random."""


def proxy(start: PreTrainedModel, teaching: Teaching, seed: int) -> ScalarRewardModel:
    """Train a Bradley-Terry reward model with the start policy's trunk and a new head; all weights are trained.

    Excessive flourish is so rare in its training pairs that its reward keeps rising where gold falls.
    """
    model = untaught(start, seed)
    taught = pairs(teaching.pairs, seed, noise=teaching.noise)
    if teaching.votes == "many":
        taught = [_voted(pair) for pair in taught]
    rows = encode_pairs(model.encoder, taught, OVERALL).rows
    fit(model, ScalarTask(bradley_terry()), rows, Fit(teaching.steps, teaching.learning_rate, teaching.batch, seed))
    return model


def untaught(start: PreTrainedModel, seed: int) -> ScalarRewardModel:
    """Return a proxy before training: the start policy's trunk with a new head."""
    model = scalar_from_config(deepcopy(start.config), tokenizer(), seed=seed)
    model.model.base_model.load_state_dict(start.base_model.state_dict())
    return model


def _voted(pair: PreferencePair) -> PreferencePair:
    share = labeller(temperature=1.0, noise=0.0)(pair.prompt, pair.texts)
    return replace(pair, wins={OVERALL: share})


def gold_accuracy(model: RewardModel, first: Sequence[Example], second: Sequence[Example]) -> float:
    """Return the share of response pairs ordered as by gold; gold's ties are left out, the model's are errors."""
    truth, model_gaps = (model_.rate(first)[:, 0] - model_.rate(second)[:, 0] for model_ in (gold(), model))
    return order_accuracy(model_gaps, truth)


def order_accuracy(gaps: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of reward differences [M] with the sign of the true ones; true ties are left out.

    >>> order_accuracy(np.array([1.0, 2.0, 0.0, 3.0]), np.array([1.0, -1.0, 1.0, 0.0])).__round__(3)
    0.333
    """
    decided = abs(truth) > 1e-9  # differences of rounding error are ties
    return float(np.mean((gaps * truth > 0)[decided]))
