"""What a loss of whole answers is told of them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class WholeAnswers(NamedTuple):
    """Answers of one micro-batch, as a loss of whole answers sees them."""

    logprob: Float[Tensor, " N"]
    """Σ_t log π(y_t) over the answer's tokens, nats; the loss's gradient goes here."""
    old: Float[Tensor, " N"]
    """The same under the policy that wrote the answer."""
    advantage: Float[Tensor, " N"]
    """NaN: the answer has no loss."""
    group: Int[Tensor, " N"]
    """Answers to one prompt share a number; some of them may be in other micro-batches."""
    length: Int[Tensor, " N"]
    """Tokens."""
    place: Int[Tensor, " N"]
    """In its group, from 0."""
    size: int
    """Answers in a group."""
    updates: int = 0
    """Optimizer steps that were made since the answers were written."""
    base: Float[Tensor, " N"] | None = None
    """Σ_t log π(y_t) under the reference, where it is read."""


AnswerLoss = Callable[[WholeAnswers], Tensor]
"""-> [N], which the answers' weights are multiplied with."""


def whole_answers(
    logprob: Float[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
    weights: Float[Tensor, "N L"],
    inputs: Mapping[str, Tensor],
    size: int,
    updates: int,
) -> WholeAnswers:
    """Of a micro-batch of the trainer's; an answer that weighs nothing has no advantage."""
    said, old, base = (logprob * response).sum(1), inputs.get("old_per_token_logps"), inputs.get("base")
    return WholeAnswers(
        said,
        said.detach() if old is None else (old * response).sum(1),
        inputs["advantages"][:, 0].masked_fill(weights.sum(1) == 0, torch.nan),
        inputs["row"] // size,
        response.sum(1),
        inputs["row"] % size,
        size,
        updates,
        None if base is None else (base * response).sum(1),
    )


def own_answers(size: int, agents: int) -> int:
    """How many answers of a group, its first ones, are by the policy that learns; the others are its partners'.

    A group that the agents cannot share evenly is the learner's alone, as in an evaluation.

    >>> own_answers(8, 2), own_answers(1, 2)
    (4, 1)
    """
    return size if size % agents else size // agents
