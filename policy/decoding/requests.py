"""Requests and results of guided decoding."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...rm.data.preference_vectors import Preference
from ...rm.errors import UsageError
from ...rm.types import Messages

Finish = Literal["eos", "stop", "length", "context"]
FACTS = ("base", "mixed", "sampled", "entropy", "kl")
"""Names of the token statistics of a `DecodedCompletion`, in the order of the engines' columns."""


class Annealing(NamedTuple):
    """Multiply the temperature for token t of a completion by T_t = max(1 + τ_max - exp(t / d), τ_min); 1 for t < c.

    EAD 2025, arXiv:2510.05251: sample the first tokens at a higher T_t. d = `decay`, τ_max = `top`, τ_min = `floor`.
    """

    decay: float
    """d > 0, in tokens."""
    top: float = 1.2
    floor: float = 0.1
    start: int = 10
    """c: number of tokens before the annealing."""

    def factors(self, position: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """Return the temperature's factor T_t at token positions t.

        >>> [round(factor, 3) for factor in Annealing(25.0).factors(torch.tensor([0, 10, 80])).tolist()]
        [1.0, 0.708, 0.1]
        """
        annealed = (1 + self.top - (position / self.decay).exp()).clamp_min(self.floor)
        return torch.where(position >= self.start, annealed, 1.0)


@dataclass(frozen=True)
class Request:
    """A conversation to continue, with sampling parameters. Raise `UsageError` for invalid values."""

    prompt: Messages
    preference: Preference | None = None
    """Weight α of each objective of the guide (an autoregressive reward model). None for a guide without preference."""
    weight: float = 1.0
    """Guidance weight w (1/β in GenARM); 0 is the base model alone, negative weights move away from the guide."""
    temperature: float = 1.0
    """Sampling temperature. 0 is greedy decoding."""
    top_k: int = 0
    """Number of most likely tokens to sample from. 0 disables top-k; `top_p` = 1 and `min_p` = 0 set no limit."""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    """Random seed. The random numbers of token t depend only on (seed, t)."""
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    """Stop strings. The completion ends before the first occurrence of any of them."""
    ignore_eos: bool = False
    """Whether to continue after an end-of-sequence token, for completions of equal length."""
    prefix: tuple[int, ...] = ()
    """Token ids at the start of the completion. They count as part of the prompt."""
    annealing: Annealing | None = None
    """Schedule of the temperature within the completion; it must be the same for all requests of a batch."""

    def __post_init__(self):
        if not any(turn["content"].strip() for turn in self.prompt):
            raise UsageError(f"the prompt {list(self.prompt)} has no text; give at least one message with content")
        for name, holds, allowed in (
            ("weight", math.isfinite(self.weight), "a finite number"),
            ("temperature", math.isfinite(self.temperature) and self.temperature >= 0, "0 (greedy) or a number above"),
            ("top_k", self.top_k >= 0, "0 (off) or a number of tokens"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("min_p", 0 <= self.min_p <= 1, "in [0, 1]"),
            ("seed", 0 <= self.seed < 2**63, "a whole number from 0 to 2^63 - 1"),
            ("max_new_tokens", self.max_new_tokens >= 1, "1 or more"),
            ("prefix", all(isinstance(token, int) and token >= 0 for token in self.prefix), "a tuple of token ids"),
            ("stop", not isinstance(self.stop, str) and all(self.stop), "a tuple of strings that are not empty"),
        ):
            if not holds:
                raise UsageError(f"{name} must be {allowed}, got {vars(self)[name]!r}")


def mixing_logits(request: Request, share: float) -> Request:
    """Return a request that samples from the logits z = λ z_base + (1 - λ) z_guide.

    It has guidance weight (1 - λ) / λ at temperature T / λ, with λ = `share` > 0; λ > 1 moves away from the guide.
    After WMSS 2026, arXiv:2602.08222, which mixes logits in training only. In the completion, `sampled` refers to this
    mixture, and `mixed` to base + weight x guide at temperature 1.
    """
    if not (share > 0 and math.isfinite(share)):
        raise UsageError(f"the base's share of the logits must be a number above 0, got {share}")
    return replace(request, weight=(1 - share) / share, temperature=request.temperature / share)


@dataclass(frozen=True, eq=False)
class DecodedCompletion:
    """A completion with statistics of its T tokens; log-probabilities and entropies in nats."""

    text: str
    """Text without special tokens, and without the stop string and what follows it."""
    tokens: tuple[int, ...]
    """Token ids, including the end-of-sequence token and the tokens of a stop string."""
    finished: Finish
    """Why the completion ended. `context`: prompt and completion fill the context of the base model or of a guide."""
    prompt_tokens: int
    """Number of tokens of the base model's prompt."""
    base: np.ndarray
    """log π_base(token) [T] under the base model."""
    guides: Mapping[str, np.ndarray]
    """log π_guide(token) [T] by guide name; NaN where the guide had weight 0 and was not run."""
    mixed: np.ndarray
    """log π̃(token) [T] under the guided distribution π̃, at temperature 1 and before top-k, top-p or min-p."""
    sampled: np.ndarray
    """Log-probability under the sampling distribution [T]; 0 for greedy decoding."""
    entropy: np.ndarray
    """Entropy H(π̃) of the guided distribution at each token [T]."""
    kl: np.ndarray
    """KL(π̃ || π_base) of the guided distribution to the base model at each token [T]."""
