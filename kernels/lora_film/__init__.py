"""A low-rank adapter whose rank-r features every row scales, mixes or shifts in its own way."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..dispatch import way, wide

CASES = [
    {"N": 1, "L": 1, "m": 1, "n": 1, "r": 1, "start": 0, "kind": "scale"},
    {"N": 2, "L": 1, "m": 129, "n": 17, "r": 4, "start": 1, "kind": "scale"},
    {"N": 5, "L": 17, "m": 17, "n": 129, "r": 8, "start": 2, "kind": "scale", "rows": 1},
    {"N": 3, "L": 1, "m": 33, "n": 64, "r": 8, "start": 1, "kind": "core"},
    {"N": 4, "L": 17, "m": 64, "n": 33, "r": 3, "start": 0, "kind": "core"},
    {"N": 3, "L": 2, "m": 17, "n": 17, "r": 8, "start": 1, "kind": "core", "rows": 1},
    {"N": 2, "L": 3, "m": 17, "n": 17, "r": 2, "start": 0, "kind": "plain"},
    {"N": 2, "L": 1, "m": 17, "n": 17, "r": 2, "start": 2, "kind": "plain"},
]


def modulate(
    u: Float[Tensor, "N L r"],
    scale: Float[Tensor, "#N r"] | None = None,
    core: Float[Tensor, "#N r r"] | None = None,
    shift: Float[Tensor, "#N r"] | None = None,
) -> Float[Tensor, "N L r"]:
    """u -> M u + δ for every row's features: M = diag(scale) or core, or the identity where both are None."""
    if scale is not None:
        u = u * scale[:, None]
    elif core is not None:
        u = u @ core.mT
    return u if shift is None else u + shift[:, None]


def reference(
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
    """The definition; nothing is overwritten, and autograd follows it to every argument."""
    scale, core, shift = (None if tensor is None else tensor.to(x.dtype) for tensor in (scale, core, shift))
    added = modulate(x[start:] @ A.T, scale, core, shift) @ B.T
    return torch.cat([y[:start], y[start:] + factor * added])


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
    y's own memory; keep a clone of y if it is wanted later. On a CPU that sum is taken in float32 for bfloat16 too.
    Fastest where y is contiguous and A, B, scale, core and shift come in float32 on a CPU, elsewhere in x's dtype.
    """
    _check(y, scale, core, shift, start)
    chosen, film = way(x), {"scale": scale, "core": core, "shift": shift, "factor": factor, "start": start}
    if chosen == "reference" or not y.is_contiguous() or _autograd_or_autocast(y, x, A, B, scale, core, shift):
        return reference(y, x, A, B, **film)
    if chosen == "triton":
        from .triton import fused, serves

        if serves(y, x, A, B, core):
            return fused(y, x, A, B, **film)
    if start < len(y):
        _add_in_place(y[start:], x[start:], A, B, scale, core, shift, factor)
    return y


def _autograd_or_autocast(*tensors: Tensor | None) -> bool:
    """Whether PyTorch wants to see the operations: to differentiate them or to choose their precision."""
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        return True
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def _add_in_place(y: Tensor, x: Tensor, A: Tensor, B: Tensor, scale: Any, core: Any, shift: Any, factor: float) -> None:
    """As few small operations as there can be: this runs for every adapted layer of every decoded token."""
    dtype = wide(x.dtype) if x.is_cpu else x.dtype  # a CPU's small bfloat16 products cost ten times float32's
    u, B = _features(x, _as(A, dtype), scale, core, shift), _as(B, dtype)
    flat = y.view(-1, y.shape[2])
    if y.dtype == dtype:
        flat.addmm_(u, B.t(), alpha=factor)
    else:
        flat.add_(torch.mm(u, B.t()), alpha=factor)


def low_rank(
    x: Float[Tensor, "N L m"],
    A: Float[Tensor, "r m"],
    B: Float[Tensor, "n r"],
    *,
    scale: Float[Tensor, "#N r"] | None = None,
    core: Float[Tensor, "#N r r"] | None = None,
    shift: Float[Tensor, "#N r"] | None = None,
) -> Float[Tensor, "N L n"]:
    """B (M A x + δ) in A's precision: what `lora_film` adds to y, for who adds it elsewhere."""
    return torch.mm(_features(x, A, scale, core, shift), B.t()).view(*x.shape[:2], -1)


def _features(x: Float[Tensor, "N L m"], A: Tensor, scale: Any, core: Any, shift: Any) -> Float[Tensor, "NL r"]:
    """M A x + δ on flat rows, in A's precision."""
    return _modulated(torch.mm(_as(x.reshape(-1, x.shape[2]), A.dtype), A.t()), x.shape[1], scale, core, shift)


def _as(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`tensor.to(dtype)`, which costs a microsecond even where there is nothing to do."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _modulated(u: Float[Tensor, "NL r"], length: int, scale: Any, core: Any, shift: Any) -> Float[Tensor, "NL r"]:
    """`modulate` on flat rows."""
    if scale is None and core is None and shift is None:
        return u
    scale, core, shift = (tensor if tensor is None else _as(tensor, u.dtype) for tensor in (scale, core, shift))
    if core is None and length == 1:
        if scale is None:
            return u.add_(shift)
        return u.mul_(scale) if shift is None else torch.addcmul(shift, u, scale)
    rank = u.shape[1]
    return modulate(u.view(-1, length, rank), scale, core, shift).view(-1, rank)


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


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones."""
    generator = torch.Generator().manual_seed(0)
    N, L, m, n, r, start = (case[letter] for letter in ("N", "L", "m", "n", "r", "start"))
    rows = case.get("rows", N - start)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype=dtype, device=device)

    film: dict[str, Any] = {"scale": draw(rows, r), "shift": draw(rows, r)} if case["kind"] == "scale" else {}
    film = {"core": draw(rows, r, r)} if case["kind"] == "core" else film
    return {"y": draw(N, L, n), "x": draw(N, L, m), "A": draw(r, m), "B": draw(n, r), "factor": 0.5, **film} | {
        "start": start
    }
