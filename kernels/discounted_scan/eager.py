"""The discounted scan in PyTorch: all sequences at once."""

from torch import Tensor

from ..dispatch import wide


def eager(x: Tensor, bounds: Tensor, discount: float) -> Tensor:
    """Compute `discounted_scan` for all sequences at once, token by token from the end of each sequence."""
    y, ends, lengths = x.to(wide(x.dtype)).clone(), bounds[1:], bounds.diff()
    for back in range(1, int(lengths.max()) if len(lengths) else 0):
        position = ends[lengths > back] - 1 - back
        y[position] += discount * y[position + 1]
    return y
