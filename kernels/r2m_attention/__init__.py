"""R2M's cross attention: the reward token of each row (one query) attends to the policy's hidden states of that row."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..dispatch import backend_of, check_bounds, full_precision
from .eager import absorbed, attend
from .reference import reference

__all__ = ["absorbed", "attend", "r2m_attention", "reference"]


def r2m_attention(
    query: Float[Tensor, "N D"],
    states: Float[Tensor, "T P"],
    bounds: Int[Tensor, " N+1"],
    W_q: Float[Tensor, "D d"],
    W_k: Float[Tensor, "P d"],
    W_v: Float[Tensor, "P d"],
    W_o: Float[Tensor, "d D"],
    *,
    mask: Bool[Tensor, " T"] | None = None,
) -> Float[Tensor, "N D"]:
    """Compute softmax(q kᵀ / √d) v W_o per row, with q = query W_q, k = states W_k, v = states W_v and head width d.

    R2M's sequence-to-token cross attention, arXiv:2601.22664, eq. 3. Row n reads states[bounds[n] : bounds[n + 1]];
    padded states [N, L, P] are `states.view(-1, P)` with bounds 0, L, 2L, ... and a mask. No key or value is ever
    formed: with one query per row and the states h, the result is (c W_v) W_o with u = W_k q / √d, a = softmax(h u) and
    c = aᵀ h, which takes 1 / d of the work. The README has the derivation.

    Differentiable with respect to query and the four matrices; states have no gradient, so that a reward does not
    change the policy. A row without unmasked states gives 0 and no gradient. Sums are computed in float32 (float64 for
    float64); the result has the query's dtype. `bounds` increases from 0 to T, which is not checked on a GPU.
    """
    _check(query, states, bounds, {"W_q": W_q, "W_k": W_k, "W_v": W_v, "W_o": W_o}, mask)
    with full_precision(query):
        match backend_of(query):
            case "reference":
                return reference(query, states, bounds, W_q, W_k, W_v, W_o, mask=mask)
            case "eager":
                return absorbed(attend, query, states, bounds, W_q, W_k, W_v, W_o, mask=mask)
            case "triton":
                from .triton import fused

                return fused(query, states, bounds, W_q, W_k, W_v, W_o, mask=mask)


def _check(query: Tensor, states: Tensor, bounds: Tensor, W: dict[str, Tensor], mask: Tensor | None) -> None:
    (D, d), P = W["W_q"].shape, states.shape[1]
    for (name, matrix), shape in zip(W.items(), ((query.shape[1], d), (P, d), (P, d), (d, D)), strict=True):
        if matrix.shape != shape:
            raise ValueError(
                f"r2m_attention: {name} has the shape {tuple(matrix.shape)}, but must have {tuple(shape)}: the "
                f"widths are {query.shape[1]} (query), {P} (states) and {d} (keys)"
            )
    if len(bounds) != len(query) + 1:
        raise ValueError(f"r2m_attention: {len(query)} queries need {len(query) + 1} bounds, got {len(bounds)}")
    if mask is not None and len(mask) != len(states):
        raise ValueError(f"r2m_attention: mask has {len(mask)} tokens, but states has {len(states)}")
    check_bounds("r2m_attention", bounds, len(states))
