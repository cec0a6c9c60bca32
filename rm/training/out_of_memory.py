"""Out-of-memory errors in training: recognise them, and split a micro-batch into halves."""

from typing import Any

import torch
from accelerate.utils.memory import should_reduce_batch_size
from torch import Tensor


class Piece(dict[str, Any]):
    """A part of a prepared micro-batch."""


def halved(piece: Piece, rows: int) -> list[Piece]:
    """Split a micro-batch of two or more rows into halves.

    A tensor of R rows is cut once. One of 2R rows holds the first completions of all rows and then the second ones,
    which are cut alike. Anything else is shared by both halves.
    """
    middle = (rows + 1) // 2

    def cut(value: Any, part: slice) -> Any:
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) not in (rows, 2 * rows):
            return value
        if len(value) == rows:
            return value[part]
        return torch.cat([tensor[part] for tensor in value.chunk(2)])

    return [
        Piece({name: cut(value, part) for name, value in piece.items()})
        for part in (slice(None, middle), slice(middle, None))
    ]


def lacks_memory(error: Exception) -> bool:
    """Return whether an error means that device or host memory is exhausted."""
    return isinstance(error, torch.OutOfMemoryError) or should_reduce_batch_size(error)
