"""Scores of reasoning steps, as process reward models give them at step tokens, compared between implementations."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from .known_faults import EXPLAINED
from .parity import FULL, HALF, Parity, flipped


class StepOutputs(NamedTuple):
    """What a process reward model computes for one conversation."""

    ids: Sequence[int]
    """Token ids [L]."""
    logits: np.ndarray
    """The head's output at every token [L, C], without activation."""
    steps: Sequence[int]
    """Positions of the step tokens [S]."""


def step_positions(ids: Sequence[int], step_id: int) -> list[int]:
    """Return the positions of the step token.

    >>> step_positions([5, 9, 6, 9], 9)
    [1, 3]
    """
    return [position for position, token in enumerate(ids) if token == step_id]


def step_activation(logits: np.ndarray) -> np.ndarray:
    """Return probabilities of logits [S, C]: softmax over the labels, or the sigmoid of a single one."""
    return softmax(logits, axis=1) if logits.shape[1] > 1 else expit(logits)


def at_steps(outputs: StepOutputs, theirs: Sequence[Sequence[float]]) -> np.ndarray | str:
    """Return scores of the steps [S, C] from rows for every token or for step tokens, or why there are none."""
    scores = np.array(theirs, float)
    if scores.ndim != 2 or scores.shape[1] != outputs.logits.shape[1]:
        return f"output of shape {scores.shape}, where {outputs.logits.shape[1]} labels per token are expected"
    if len(scores) == len(outputs.ids):
        return scores[list(outputs.steps)]
    if len(scores) == len(outputs.steps):
        return scores
    return f"{len(scores)} rows, where the conversation has {len(outputs.ids)} tokens and {len(outputs.steps)} steps"


def compare_steps(
    way: str,
    outputs: Sequence[StepOutputs],
    theirs: Sequence[Sequence[Sequence[float]]],
    *,
    activated: bool,
    half: bool = False,
) -> Parity:
    """Compare the scores of all steps with ours, after activation or before it; `conversations` counts steps."""
    ours = _ours(outputs, activated)
    spread = float(ours.std(0).max())
    tolerance = max((HALF if half else FULL) * spread, 1e-6)
    rows = [at_steps(output, other) for output, other in zip(outputs, theirs, strict=True)]
    refused = [f"conversation {index + 1}: {row}" for index, row in enumerate(rows) if isinstance(row, str)]
    known = [row for row in rows if not isinstance(row, str)]
    scores = np.full_like(ours, np.nan) if refused else np.concatenate(known)
    gaps = np.nan_to_num(np.abs(scores - ours), nan=np.inf)
    size, why = (len(ours), float(gaps.max()), float(gaps.mean()), spread), refused[0] if refused else ""
    result = Parity(way, *size, tolerance, flipped(ours, scores), "", why)
    return result if result.same or refused else result._replace(culprit=step_culprit(outputs, scores, activated))


def step_culprit(outputs: Sequence[StepOutputs], scores: np.ndarray, activated: bool) -> str:
    """Return the name of the fault that turns our step scores into `scores` [S, C], or a sentence that none does."""
    gap = np.abs(scores - _ours(outputs, activated)).max()
    if not np.isfinite(gap):
        return "scores that are missing or not finite"
    for name, other in step_faults(outputs, activated):
        if np.abs(scores - other).max() <= EXPLAINED * gap:
            return name
    return "other weights, another head or other tokens: no known fault explains the scores"


def step_faults(outputs: Sequence[StepOutputs], activated: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names of faults, and the scores of the steps [S, C] that our model gives with each."""
    logits, ours = _at(outputs, 0), _ours(outputs, activated)
    if activated:
        yield "no activation: logits, not probabilities", logits
        yield "activation applied twice", step_activation(ours)
        yield "sigmoid instead of softmax", expit(logits)
    else:
        yield "activated: probabilities, not logits", step_activation(logits)
    yield "labels in the opposite order", ours[:, ::-1]
    for name, offset in (("read one token before the step token", -1), ("read one token after the step token", 1)):
        moved = _at(outputs, offset)
        yield name, step_activation(moved) if activated else moved


def _ours(outputs: Sequence[StepOutputs], activated: bool) -> np.ndarray:
    logits = _at(outputs, 0)
    return step_activation(logits) if activated else logits


def _at(outputs: Sequence[StepOutputs], offset: int) -> np.ndarray:
    """Return the logits at all step tokens, `offset` tokens away, [S, C]."""
    rows: list[Any] = []
    for output in outputs:
        last = len(output.ids) - 1
        rows += [output.logits[min(max(position + offset, 0), last)] for position in output.steps]
    return np.array(rows, float)
