"""Probability of a reference answer under the policy, with and without the reasoning of a completion."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ...rm.backbones.logprobs import completion_logprobs
from ...rm.backbones.tokenization import Encoder, pad
from ...rm.types import Messages

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
"""Opening and closing tags of the reasoning and of the answer."""

# ---- formulas ----


def mean_probability(logprobs: Float[Tensor, "N L"], reference: Bool[Tensor, "N L"]) -> Float[Tensor, " N"]:
    """Σ_t π(y*_t | x, z, y*_<t) / |y*| over the reference's tokens, in [0, 1]          RLPR: arXiv:2506.18254

    x is the prompt, z the reasoning and y* the reference. The mean is over probabilities instead of log-probabilities,
    so that a single unlikely token does not dominate. 0 if the reference is empty.
    """
    token_probability = torch.where(reference, logprobs.exp(), 0).sum(1)
    return token_probability / reference.sum(1).clamp_min(1)


def total_logprob(logprobs: Float[Tensor, "N L"], reference: Bool[Tensor, "N L"]) -> Float[Tensor, " N"]:
    """Compute Σ_t log π(y*_t | x, z, y*_<t) in nats for reference y*, prompt x and reasoning z."""
    return torch.where(reference, logprobs, 0).sum(1)


def mean_logprob(logprobs: Float[Tensor, "N L"], reference: Bool[Tensor, "N L"]) -> Float[Tensor, " N"]:
    """Compute the mean log-probability per token of the reference, in nats; 0 for an empty reference."""
    return total_logprob(logprobs, reference) / reference.sum(1).clamp_min(1)


def debiased(reasoned: Float[Tensor, " N"], alone: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """clip(p(y* | x, z) - p(y* | x), 0, 1): the gain due to the reasoning z            RLPR: arXiv:2506.18254

    >>> debiased(torch.tensor([0.75, 0.25]), torch.tensor([0.5, 0.5])).tolist()
    [0.25, 0.0]
    """
    return (reasoned - alone).clamp(0, 1)


# ---- completions as text ----


def reasoning_prefix(completion: str, tags: Sequence[str] = TAGS) -> str | None:
    """Return the text up to and including the opening tag of the answer; None unless that tag occurs exactly once.

    >>> reasoning_prefix("<think>2 + 2</think><answer>5</answer>")
    '<think>2 + 2</think><answer>'
    """
    opening = tags[-2]
    return completion[: completion.index(opening)] + opening if completion.count(opening) == 1 else None


def is_well_formed(completion: str, tags: Sequence[str] = TAGS) -> bool:
    """Return whether every tag occurs exactly once in the completion, in order.

    >>> is_well_formed("<think>2 + 2</think><answer>5</answer>"), is_well_formed("<think>2 + 2</think>5")
    (True, False)
    """
    starts = [completion.find(tag) for tag in tags]
    return all(completion.count(tag) == 1 for tag in tags) and starts == sorted(starts)


# ---- with a model ----


@torch.no_grad()
def reference_probabilities(
    model: Any,
    encoder: Encoder,
    prompts: Sequence[Messages],
    openings: Sequence[str],
    references: Sequence[str],
    *,
    together: int = 16,
    longest: int | None = None,
    formula: Callable[[Tensor, Tensor], Tensor] = mean_probability,
) -> Float[Tensor, " N"]:
    """Apply `formula` to the log-probabilities of each reference after a prompt and the opening of a completion.

    Opening and reference are tokenised separately, so that the reference has the same tokens after each opening.
    Dropout is off; `together` is the batch size. The result is NaN for a row of more than `longest` tokens.
    """
    rows = [_row(encoder, *part) for part in zip(prompts, openings, references, strict=True)]
    short = [index for index, (ids, _) in enumerate(rows) if longest is None or len(ids) <= longest]
    probabilities = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    device, training = next(model.parameters()).device, model.training
    model.eval()
    try:
        for start in range(0, len(short), together):
            indices = short[start : start + together]
            probabilities[indices] = _read(model, [rows[position] for position in indices], device, formula)
    finally:
        model.train(training)
    return probabilities


def _row(encoder: Encoder, prompt: Messages, opening: str, reference: str) -> tuple[list[int], int]:
    """Return the token ids of prompt, opening and reference, and the number of tokens before the reference."""
    before, behind = (encoder.tokenizer(text, add_special_tokens=False).input_ids for text in (opening, reference))
    start = [*encoder.encode_prompt(prompt), *before]
    return [*start, *behind], len(start)


def _read(
    model: Any, rows: Sequence[tuple[list[int], int]], device: Any, formula: Callable[[Tensor, Tensor], Tensor]
) -> Float[Tensor, " N"]:
    """Return the `formula` of every reference's log-probabilities, from one forward pass."""
    batch = pad([ids for ids, _ in rows])
    tokens, attention = batch.tokens.to(device), batch.attention.to(device)
    start = torch.tensor([length for _, length in rows], device=device)
    logprobs = completion_logprobs(model, tokens, attention, start)
    positions = torch.arange(tokens.shape[1], device=device)
    return formula(logprobs, attention & (positions >= start[:, None])).double().cpu()
