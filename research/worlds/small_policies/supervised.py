"""Supervised training of the worlds' small policies on completions, by any loss of the logits, without padding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from ....policy.step.forward import CompletionBatch
from ....rm.backbones.tokenization import Encoder
from ....rm.types import Example
from .sampling import completion_rows, policy_encoder, prompt_ids
from .trunk import Layout, completion_logits, completion_readings, layout_of

TokenLosses = Callable[[Float[Tensor, "C V"], Layout], Float[Tensor, " C"]]
"""(logits, layout) -> losses of the tokens `layout.targets`."""
SIZE = 512
"""Completions that are read at a time where nothing is trained."""


@dataclass(frozen=True)
class SupervisedLoop:
    """Settings of `train_supervised`."""

    steps: int
    batch: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.01


def plain_losses(logits: Float[Tensor, "C V"], layout: Layout) -> Float[Tensor, " C"]:
    """Return the cross-entropy of every token in nats."""
    return cross_entropy(logits, layout.targets, reduction="none")


def train_supervised(
    policy: Any,
    rows: CompletionBatch,
    loop: SupervisedLoop,
    *,
    seed: int,
    losses: TokenLosses = plain_losses,
    probabilities: Float[Tensor, " N"] | None = None,
) -> list[float]:
    """Train the policy in place on the mean loss of completion tokens and return the loss of every step.

    Rows are drawn with replacement, by `probabilities` or uniformly. AdamW; the learning rate falls linearly to 0.
    """
    chances = torch.ones(len(rows.start)) if probabilities is None else probabilities
    generator, history = Generator().manual_seed(seed), []
    optimizer = torch.optim.AdamW(policy.parameters(), lr=loop.learning_rate, weight_decay=loop.weight_decay)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=loop.steps)
    for _ in range(loop.steps):
        indices = torch.multinomial(chances, loop.batch, replacement=True, generator=generator)
        layout = layout_of(_select(rows, indices))
        loss = losses(completion_logits(policy, layout), layout).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        history.append(loss.item())
    return history


def rows_of_examples(examples: Sequence[Example], encoder: Encoder | None = None) -> CompletionBatch:
    """Encode prompts and completions, which end with the end of text, as right-padded rows."""
    encoder = encoder or policy_encoder()
    words = encoder.tokenizer
    texts = words([example.text for example in examples], add_special_tokens=False).input_ids
    tokens = pad_sequence([torch.tensor([*ids, words.eos_token_id]) for ids in texts], batch_first=True)
    response = torch.arange(tokens.shape[1]) < torch.tensor([len(ids) + 1 for ids in texts])[:, None]
    return completion_rows(prompt_ids([example.prompt for example in examples], encoder), tokens, response)


@torch.no_grad()
def costs_and_entropies(policy: Any, rows: CompletionBatch) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return every completion's cost -mean_t log π(y_t) and the policy's mean entropy along it, in nats per token."""
    parts = [_select(rows, torch.arange(start, min(start + SIZE, len(rows.start)))) for start in _starts(rows)]
    readings = [(completion_readings(policy, part), part.response.sum(1)) for part in parts]
    return (
        torch.cat([-reading.logprob.sum(1) / tokens for reading, tokens in readings]),
        torch.cat([reading.entropy.sum(1) / tokens for reading, tokens in readings]),
    )


def nats_per_token(policy: Any, rows: CompletionBatch) -> float:
    """Return the cross-entropy of all completion tokens."""
    return float(np.average(costs_and_entropies(policy, rows)[0], weights=rows.response.sum(1)))


def _starts(rows: CompletionBatch) -> range:
    return range(0, len(rows.start), SIZE)


def _select(rows: CompletionBatch, index: Int[Tensor, " M"]) -> CompletionBatch:
    return CompletionBatch(*(column[index] for column in rows))
