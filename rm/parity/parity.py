"""Parity checks: compare a reward model's scores with those of other backends and name the cause of a difference."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from peft import PeftModel

from ..backbones.loading import merged_copy
from ..backbones.tokenization import pad
from ..errors import DataError
from ..types import Example, LatentSteps, Message, ReadsTokens, RewardModel, ScoresSteps, ScoresTokens, user_turn
from .known_faults import BackendScores, culprit, device_of, edge_id, evaluate, first_token, wrong_shape

HALF = 2e-2
"""Largest allowed difference in half precision, in standard deviations of the scores."""
FULL = 1e-4
"""Largest allowed difference in single precision, in the same unit."""
BATCH_SIZE = 8
"""Conversations in a padded batch."""
NOT_ASCII = "四, čtyři, أربعة, e\u0301 🙂\u200d"
Backend = Callable[[Sequence[Example]], BackendScores]


class Parity(NamedTuple):
    """Comparison of one backend's scores with our model's; differences in units of the reward."""

    way: str
    conversations: int
    largest: float
    mean: float
    deviation: float
    """Standard deviation of our scores over the conversations, for the objective where it is largest."""
    tolerance: float
    flips: float
    """Share of pairs of conversations that are in the opposite order, in [0, 1]."""
    token: str
    """First token that differs from our model's; empty if all agree, or if the backend reports none."""
    culprit: str
    """Cause of a difference beyond the tolerance; empty if there is none."""
    report_only: bool = False
    """Whether the difference is reported without failing, for a backend that need not agree."""

    @property
    def same(self) -> bool:
        """Whether the largest difference is within the tolerance."""
        return self.largest <= self.tolerance

    @property
    def passed(self) -> bool:
        """Whether the scores are the same, or only reported."""
        return self.same or self.report_only


def parity(
    model: RewardModel,
    examples: Sequence[Example],
    backends: Mapping[str, Backend],
    *,
    half: Sequence[str] = (),
    report_only: Sequence[str] = (),
) -> Iterator[Parity]:
    """Compare each backend's scores with the model's own; the backends in `half` compute in half precision.

    Scores are the same if they differ by at most 1e-4 standard deviations of the model's scores over the conversations
    (2e-2 in half precision). A score that is missing or not finite counts as an infinite difference. Backends in
    `report_only` never fail.
    """
    ours = model.rate(examples)
    coarse = model.contract.dtype not in ("float32", "float64")
    for name, backend in backends.items():
        tolerance = max((HALF if coarse or name in half else FULL) * float(ours.std(0).max()), 1e-6)
        parity_result = compare_backend(model, examples, ours, name, backend(examples), tolerance)
        yield parity_result._replace(report_only=name in report_only)


def compare_backend(
    model: RewardModel, examples: Sequence[Example], ours: np.ndarray, way: str, theirs: BackendScores, tolerance: float
) -> Parity:
    """Compare one backend's scores with `ours` [N, K], and name the cause if they differ."""
    if theirs.scores.shape != ours.shape:
        theirs = BackendScores(np.full_like(ours, np.nan), theirs.tokens, wrong_shape(model, theirs, ours))
    gaps = np.nan_to_num(np.abs(theirs.scores - ours), nan=np.inf)
    size = (len(examples), float(gaps.max()), float(gaps.mean()), float(ours.std(0).max()))
    token = first_token(model, examples, theirs.tokens)
    result = Parity(way, *size, tolerance, flipped_share(ours, theirs.scores), token, "")
    return result if result.same else result._replace(culprit=culprit(model, examples, ours, theirs))


def flipped_share(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the share of pairs of rows, over all objectives, that are in the opposite order; ties never count.

    >>> flipped_share(np.array([[1.0], [2.0], [3.0]]), np.array([[1.0], [3.0], [2.0]]))
    0.33...
    """
    first, second = np.triu_indices(len(ours), 1)
    if not len(first):
        return 0.0
    return float(((ours[first] - ours[second]) * (theirs[first] - theirs[second]) < 0).mean())


def own_variants(model: Any, seed: int = 0) -> dict[str, Backend]:
    """Return variants that must not change a score: batch size 1, shuffled, padded, merged, without KV cache."""
    variants: dict[str, Backend] = {
        "alone": lambda examples: BackendScores(np.concatenate([model.rate([example]) for example in examples])),
        "shuffled": lambda examples: BackendScores(_shuffled_scores(model, examples, seed)),
    }
    if not _has_tokens(model):
        return variants
    for side in ("left", "right"):
        variants[f"padded on the {side}"] = lambda some, side=side: BackendScores(_padded_scores(model, some, side))
    variants["pad is EOS"] = lambda some: BackendScores(_padded_scores(model, some, "right", edge_id(model, 1) or 0))
    if isinstance(model, LatentSteps):
        variants["without a cache"] = lambda examples: BackendScores(model.rate_without_cache(examples))
    if isinstance(model.model, PeftModel):
        merged = partial(with_weights, model)
        variants["adapter merged"] = lambda examples: BackendScores(
            _padded_scores(merged(merged_copy(model.model)), examples, "right")
        )
    return variants


def other_precision(model: Any) -> dict[str, Backend]:
    """Return a backend in bfloat16, or in float32 if the contract is in half precision; empty without a tokenizer."""
    if not _has_tokens(model):
        return {}
    dtype = torch.bfloat16 if model.contract.dtype in ("float32", "float64") else torch.float32
    name = str(dtype).removeprefix("torch.")

    def score(examples: Sequence[Example]) -> BackendScores:
        other = with_weights(model, copy.deepcopy(model.model).to(dtype))
        return BackendScores(_padded_scores(other, examples, "right"), because=f"{name} itself")

    return {name: score}


def _has_tokens(model: Any) -> bool:
    return isinstance(model, ScoresTokens | ScoresSteps)


def _shuffled_scores(model: RewardModel, examples: Sequence[Example], seed: int) -> np.ndarray:
    order = np.random.default_rng(seed).permutation(len(examples))
    rewards = np.empty((len(examples), len(model.contract.objectives)))
    for some in np.array_split(order, max(1, len(order) // 3)):
        rewards[some] = model.rate([examples[index] for index in some])
    return rewards


def with_weights(model: Any, weights: torch.nn.Module) -> Any:
    """Return a shallow copy of the reward model with another network."""
    other = copy.copy(model)
    other.model = weights
    return other


def _padded_scores(model: Any, examples: Sequence[Example], side: str, filler: int = 0) -> np.ndarray:
    rows = [encoded.ids for encoded in model.encoder.encode_all(examples)]
    rewards = []
    for start in range(0, len(rows), BATCH_SIZE):
        tokens, attention = (tensor.to(device_of(model)) for tensor in pad(rows[start : start + BATCH_SIZE], filler))
        if side == "left":
            # rotate each row so that its padding moves from the right to the left
            moves = (~attention).sum(1)
            positions = (torch.arange(tokens.shape[1], device=tokens.device) - moves[:, None]) % tokens.shape[1]
            tokens, attention = tokens.gather(1, positions), attention.gather(1, positions)
        if isinstance(model, ScoresSteps):
            rewards.append(model.padded_rewards(examples[start : start + BATCH_SIZE], tokens, attention))
        else:
            rewards.append(evaluate(model, lambda t=tokens, a=attention: model.score(t, a)))
    return np.concatenate(rewards)


def edge_cases(model: Any, examples: Sequence[Example]) -> list[Example]:
    """Create conversations of types that the examples lack: short, long, not ASCII, with several turns."""
    question = user_turn("What is two and two?")
    turns = (*question, Message(role="assistant", content="Four."), *user_turn("And once more two?"))
    kinds: list[tuple[Callable[[Example], bool], Callable[[], Example]]] = [
        (lambda example: len(example.text) <= 3, lambda: Example(user_turn("Hi"), "a")),
        (lambda example: len(example.prompt) > 2, lambda: Example(turns, "Six.")),
        (lambda example: not example.text.isascii(), lambda: Example(question, NOT_ASCII)),
        (lambda example: _too_long(model, example), lambda: _long_example(model, question)),
    ]
    missing = [make() for is_kind, make in kinds if not any(map(is_kind, examples))]
    return [example for example in missing if _has_finite_rewards(model, example)]


def _too_long(model: Any, example: Example) -> bool:
    """Return whether truncation removes tokens; also True if the model never truncates."""
    limit = model.contract.max_length
    return limit is None or not isinstance(model, ReadsTokens) or model.encoder.encode(example).length > limit


def _long_example(model: Any, prompt: tuple[Message, ...]) -> Example:
    words = 8
    while not _too_long(model, candidate := Example(prompt, " ".join(f"word{index}" for index in range(words)))):
        words *= 2
    return candidate


def _has_finite_rewards(model: Any, example: Example) -> bool:
    try:
        return bool(np.isfinite(model.rate([example])).all())
    except DataError:
        return False
