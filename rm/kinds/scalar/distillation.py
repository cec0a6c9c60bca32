"""Comparison of a distilled reward model with its teacher on the same pairs: agreement, accuracy and speed."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ...losses._pair_losses import OTHER, finite_gaps
from ...types import PreferencePair, RewardModel

MOST_PAIRS = 1000
"""Maximum number of pairs that are compared."""


class TimedGaps(NamedTuple):
    """Reward gaps of a model on pairs, the CPU-seconds of computing them, and the hash of its scoring contract."""

    gaps: Float[np.ndarray, " B"]
    seconds: float
    contract: str


def timed_gaps(model: RewardModel, pairs: Sequence[PreferencePair], name: str) -> TimedGaps:
    """Compute the reward gaps of a model, chosen minus rejected, and the CPU-seconds that this takes."""
    started = time.process_time()
    rewards = model.rate([example for pair in pairs for example in pair.examples])[:, 0]
    seconds = time.process_time() - started
    return TimedGaps(finite_gaps(rewards, pairs, name), seconds, model.contract.hash())


def with_soft_labels(pairs: Sequence[PreferencePair], objective: str) -> list[PreferencePair]:
    """Return the pairs, with missing labels for the objective replaced by the teacher's σ(Δ)."""
    chances = [(pair, (1 + math.tanh(pair.gaps[OTHER] / 2)) / 2) for pair in pairs]
    return [pair if objective in pair.wins else replace(pair, wins={objective: chance}) for pair, chance in chances]


def compare(student: TimedGaps, teacher: TimedGaps, wins: Float[np.ndarray, " B"]) -> Mapping[str, Any]:
    """Return agreement, accuracies against the labels `wins`, and CPU-seconds for 1,000 pairs.

    Agreement is the share of pairs that both models order alike. Accuracies are None if no pair has a preference.
    """
    signs = np.sign(wins - 0.5)
    decided = np.nan_to_num(signs) != 0
    gaps_by_model = {"student": student, "teacher": teacher}
    return {
        "contract": teacher.contract,
        "pairs": len(wins),
        "agreement": float(np.mean(np.sign(student.gaps) == np.sign(teacher.gaps))),
        "accuracy": {
            name: float(np.mean((timed.gaps * signs > 0)[decided])) if decided.any() else None
            for name, timed in gaps_by_model.items()
        },
        "cpu_seconds_per_1000_pairs": {
            name: round(1000 * timed.seconds / len(wins), 3) for name, timed in gaps_by_model.items()
        },
    }
