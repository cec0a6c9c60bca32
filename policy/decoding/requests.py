"""Requests and results of guided decoding."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...rm.data.preference_vectors import Preference
from ...rm.errors import UsageError
from ...rm.types import Messages

Finish = Literal["eos", "stop", "length", "context"]
FACTS = ("base", "mixed", "sampled", "entropy", "kl")
"""Statistics of each token in a `DecodedCompletion`, in the order in which engines log them."""


@dataclass(frozen=True)
class Request:
    """A conversation to continue and its sampling parameters; invalid values raise `UsageError`."""

    prompt: Messages
    preference: Preference | None = None
    """Share of every objective of the guide, or None for a guide without preference."""
    weight: float = 1.0
    """Guidance weight w = 1/β; 0 is the base model alone, and negative weights move away from the guide."""
    temperature: float = 1.0
    """0 is greedy decoding."""
    top_k: int = 0
    """0 disables it, as do a `top_p` of 1 and a `min_p` of 0."""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    """The noise of token t depends only on (seed, t)."""
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    """The completion ends before the first of these strings."""
    ignore_eos: bool = False
    """Continue after an end-of-sequence token, for completions of equal length."""
    prefix: tuple[int, ...] = ()
    """Token ids at which the completion continues; they count as part of the prompt."""

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
                raise UsageError(f"{name} is {allowed}, got {getattr(self, name)!r}")


def mixing_logits(request: Request, share: float) -> Request:
    """Return the request at z = λ z_base + (1 - λ) z_guide: weight (1 - λ) / λ at temperature T / λ.

    λ = `share` > 0; above 1 it moves away from the guide. After WMSS 2026, arXiv:2602.08222, which mixes in training
    only. In the completion `sampled` is that of the mixture, `mixed` is base + weight x guide at temperature 1.
    """
    if not (share > 0 and math.isfinite(share)):
        raise UsageError(f"the base's share of the logits is a number above 0, got {share}")
    return replace(request, weight=(1 - share) / share, temperature=request.temperature / share)


@dataclass(frozen=True, eq=False)
class DecodedCompletion:
    """A completion with statistics of its T tokens; log-probabilities and entropies in nats."""

    text: str
    """Text without special tokens, and without the stop string and what follows it."""
    tokens: tuple[int, ...]
    """Includes the end-of-sequence token and the tokens of a stop string."""
    finished: Finish
    """`context`: prompt and completion fill the context of the base or of a guide."""
    prompt_tokens: int
    """Number of tokens of the base model's prompt."""
    base: np.ndarray
    """log π_base(token) [T]."""
    guides: Mapping[str, np.ndarray]
    """log π_guide(token) [T] by guide name; NaN where the guide had weight 0 and was not run."""
    mixed: np.ndarray
    """log π̃(token) [T] at temperature 1 and before truncation."""
    sampled: np.ndarray
    """Log-probability under the sampling distribution [T]; 0 for greedy decoding."""
    entropy: np.ndarray
    """H(π̃) at each token [T]."""
    kl: np.ndarray
    """KL(π̃ || π_base) at each token [T]."""
