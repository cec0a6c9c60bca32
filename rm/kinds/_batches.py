"""Batches of token rows of similar length, and the computation of a result for every distinct row."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import nn
from tqdm import tqdm

from ..backbones.tokenization import Batch, pad

CPU_TOKENS = 2048
Row = tuple[int, ...]
Result = TypeVar("Result")


def compute_distinct(
    model: nn.Module,
    rows: Sequence[Row],
    compute: Callable[[list[Row]], Iterable[tuple[Sequence[Row], Iterable[Result]]]],
) -> list[Result]:
    """Return a result for every row, in evaluation mode and without gradients; equal rows are computed once.

    `compute` takes the distinct rows, in the order of their first occurrence, and yields groups of them with results.
    """
    distinct, results = [*dict.fromkeys(rows)], {}
    model.eval()
    with torch.inference_mode(), tqdm(total=len(distinct), desc="scoring", disable=None, delay=1) as progress:
        for some, values in compute(distinct):
            results |= zip(some, values, strict=True)
            progress.update(len(some))
    return [results[row] for row in rows]


def padded_batches(
    rows: Sequence[Row], device: torch.device, batch_tokens: int = 16_384
) -> Iterator[tuple[list[Row], Batch]]:
    """Yield rows of similar length with their padded batch on the device; at most 2,048 tokens at once on a CPU."""
    for indices in batches_of([*map(len, rows)], computed_at_once(device, batch_tokens)):
        some = [rows[index] for index in indices]
        yield some, Batch(*(tensor.to(device) for tensor in pad(some)))


def computed_at_once(device: torch.device, batch_tokens: int) -> int:
    """Return the maximum number of tokens per forward pass; on a CPU at most 2,048, which fit its caches."""
    return min(batch_tokens, CPU_TOKENS) if device.type == "cpu" else batch_tokens


def batches_of(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Group row indices into batches of similar length: at most `batch_tokens` padded tokens, or a single row."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batches and (len(batches[-1]) + 1) * lengths[index] <= batch_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
