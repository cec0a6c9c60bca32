"""Out-of-memory errors in training: recognise them, and split a micro-batch into halves."""

from typing import Any

import torch
from accelerate.utils.memory import should_reduce_batch_size
from torch import Tensor


class Piece(dict[str, Any]):
    """A part of a prepared micro-batch; `share` is the weight of its mean loss in the micro-batch's mean."""

    share: float = 1.0


def halved(piece: Piece, rows: int) -> list[Piece]:
    """Split a micro-batch of two or more rows into halves.

    A tensor of R rows is cut once. One of 2R rows holds the first completions of all rows and then the second ones,
    which are cut alike. Anything else is shared by both halves. For R = 3 the shares of the mean are 2/3 and 1/3.
    """
    middle = (rows + 1) // 2

    def cut(value: Any, part: slice) -> Any:
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) not in (rows, 2 * rows):
            return value
        if len(value) == rows:
            return value[part]
        return torch.cat([tensor[part] for tensor in value.chunk(2)])

    halves = []
    for part, size in ((slice(None, middle), middle), (slice(middle, None), rows - middle)):
        half = Piece({name: cut(value, part) for name, value in piece.items()})
        half.share = piece.share * size / rows
        halves.append(half)
    return halves


def lacks_memory(error: Exception) -> bool:
    """Return whether an error means that device or host memory is exhausted."""
    return isinstance(error, torch.OutOfMemoryError) or should_reduce_batch_size(error)
