"""Reference implementation of a modulated low-rank adapter."""

import torch
from jaxtyping import Float
from torch import Tensor


def modulate(
    u: Float[Tensor, "N L r"], scale: Float[Tensor, "#N r"] | None = None, core: Float[Tensor, "#N r r"] | None = None,
    shift: Float[Tensor, "#N r"] | None = None,
) -> Float[Tensor, "N L r"]:  # fmt: skip
    """Return M u + δ for every row's features u: M = diag(scale), `core` or the identity; δ is `shift`."""
    if scale is not None:
        u = u * scale[:, None]
    elif core is not None:
        u = u @ core.mT
    return u if shift is None else u + shift[:, None]


def reference(
    y: Float[Tensor, "N L n"], x: Float[Tensor, "N L m"], A: Float[Tensor, "r m"], B: Float[Tensor, "n r"], *,
    scale: Float[Tensor, "_ r"] | None = None, core: Float[Tensor, "_ r r"] | None = None,
    shift: Float[Tensor, "_ r"] | None = None, factor: float = 1.0, start: int = 0,
) -> Float[Tensor, "N L n"]:  # fmt: skip
    """Compute `lora_film` in plain PyTorch, out of place and differentiable with respect to every argument."""
    scale, core, shift = (None if tensor is None else tensor.to(x.dtype) for tensor in (scale, core, shift))
    added = modulate(x[start:] @ A.T, scale, core, shift) @ B.T
    return torch.cat([y[:start], y[start:] + factor * added])
