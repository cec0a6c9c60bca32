"""A low-rank adapter whose rank-r features every row scales, mixes or shifts in its own way."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..dispatch import way
from .eager import add_in_place
from .reference import modulate, reference

__all__ = ["WIDEST", "WIDEST_CORE", "lora_film", "modulate", "reference"]
WIDEST, WIDEST_CORE = 64, 32
"""Largest ranks that the kernels take without and with a core (up to 64 positions): more would spill registers."""


def lora_film(
    y: Float[Tensor, "N L n"],
    x: Float[Tensor, "N L m"],
    A: Float[Tensor, "r m"],
    B: Float[Tensor, "n r"],
    *,
    scale: Float[Tensor, "_ r"] | None = None,
    core: Float[Tensor, "_ r r"] | None = None,
    shift: Float[Tensor, "_ r"] | None = None,
    factor: float = 1.0,
    start: int = 0,
) -> Float[Tensor, "N L n"]:
    """What a frozen layer gave, plus its adapter for the rows from `start` on; **y may be overwritten**.

    y_i += s B (M_i A x_i + δ_i)   for i >= start,   s = factor
    M = diag(scale): MoSLoRA (UniARM, arXiv:2602.09538); M = core: PBLoRA (arXiv:2505.06274); neither: LoRA

    Rows before `start` come back bit for bit: the base model's rows of a shared batch. `scale`, `core` and `shift` have
    one row for each row from `start` on, or one that serves all. Where autograd needs no gradient the sum is formed in
    y's own memory; keep a clone of y if it is wanted later. On a CPU that sum is taken in float32 for bfloat16 too. The
    kernels take ranks up to 64, with a core up to 32, and up to 16 where there are more than 64 positions; larger ones
    go through PyTorch's products. Layers that read one x, such as q, k and v, are one call: their y beside each other,
    their A stacked, B and core block-diagonal.
    """
    _check(y, scale, core, shift, start)
    chosen, film = way(x), {"scale": scale, "core": core, "shift": shift, "factor": factor, "start": start}
    if chosen == "reference" or not y.is_contiguous() or _autograd_or_autocast(y, x, A, B, scale, core, shift):
        return reference(y, x, A, B, **film)
    if chosen == "triton":
        from .triton import fused, serves

        if serves(y, x, A, B, core, start):
            return fused(y, x, A, B, **film)
    if start < len(y):
        add_in_place(y[start:], x[start:], A, B, scale, core, shift, factor)
    return y


def _autograd_or_autocast(*tensors: Tensor | None) -> bool:
    """Whether PyTorch wants to see the operations: to differentiate them or to choose their precision."""
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        return True
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def _check(y: Tensor, scale: Tensor | None, core: Tensor | None, shift: Tensor | None, start: int) -> None:
    if scale is not None and core is not None:
        raise ValueError("lora_film: scale and core are both given; a row is modulated by one of them")
    if not 0 <= start <= len(y):
        raise ValueError(f"lora_film: start lies in [0, {len(y)}], the rows of y, got {start}")
    for modulation in (scale, core, shift):
        if modulation is not None and len(modulation) != 1 and len(modulation) != len(y) - start:
            raise ValueError(
                f"lora_film: scale, core and shift have 1 row or {len(y) - start}, one for each row from start={start} "
                f"on, got {len(modulation)}"
            )
