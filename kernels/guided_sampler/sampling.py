"""Sampling of a token: by cell of 1024 tokens or by token, and the threshold of top-k, top-p and min-p."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .. import philox

CELL = 1024  # tokens that share one Gumbel variable

CELLS, TOKENS = 1, 3  # streams of random numbers


class Sampled(NamedTuple):
    """Sampled token of every row, and its log-probabilities, entropy and KL divergence in nats."""

    token: Int[Tensor, " N"]
    logprob: Float[Tensor, " N"]
    """Log-probability of the token after temperature and truncation; 0 for greedy rows."""
    guided: Float[Tensor, " N"]
    """Log-probability of the token under p = softmax(u) of the guided logits u, at temperature 1 without truncation."""
    base: Float[Tensor, " N"]
    """Log-probability of the token under softmax(z_0) of the base logits z_0."""
    entropy: Float[Tensor, " N"]
    """Entropy of p."""
    kl: Float[Tensor, " N"]
    """KL divergence KL(p || softmax(z_0))."""


class Truncation(NamedTuple):
    """Top-k, top-p and min-p of every row; off at top_k = 0 or >= V (vocabulary size), top_p = 1, min_p = 0."""

    top_k: Int[Tensor, " N"]
    top_p: Float[Tensor, " N"]
    min_p: Float[Tensor, " N"]

    def on(self, vocabulary: int) -> Bool[Tensor, " N"]:
        """Return which rows have a limit that is not off, also if it removes no token."""
        return self.by_rank(vocabulary) | (self.top_p < 1) | (self.min_p > 0)

    def by_rank(self, vocabulary: int) -> Bool[Tensor, " N"]:
        """Return which rows have a top-k limit."""
        return (self.top_k > 0) & (self.top_k < vocabulary)


def draw_by_cell(
    mass: Float[Tensor, "N C 1024"], seed: Int[Tensor, " N"], position: Int[Tensor, " N"]
) -> Int[Tensor, " N"]:
    """Sample a token with probability mass / Σ mass: a cell by Gumbel-max, and a token in the cell by inversion.

    Masses are unnormalised, the largest about 1. Random numbers are of Philox stream 1 with the cell as index: word 0
    gives the cell's Gumbel variable, word 1 the uniform number for the inversion.
    """
    cells = torch.arange(mass.shape[1], device=mass.device)
    word = philox.words(seed[:, None], cells, position[:, None], CELLS)
    cell = (mass.sum(2).double().log() + philox.gumbel(word[0])).argmax(1, keepdim=True)
    inside = mass.take_along_dim(cell[:, :, None], 1).squeeze(1).cumsum(1, dtype=torch.float64)
    target = philox.uniform(word[1].gather(1, cell)) * inside[:, -1:]
    return (cell * CELL + torch.searchsorted(inside, target, right=True)).squeeze(1)


def draw_by_token(
    x: Float[Tensor, "N V"], candidates: Bool[Tensor, "N V"], seed: Int[Tensor, " N"], position: Int[Tensor, " N"]
) -> Int[Tensor, " N"]:
    """Return the candidate token with the largest x + Gumbel (Philox stream 3, index = token); 0 without candidates."""
    row, token = candidates.nonzero(as_tuple=True)
    noise = philox.gumbel(philox.words(seed[row], token, position[row], TOKENS)[0])
    score = torch.full_like(x, -torch.inf, dtype=torch.float64)
    score[row, token] = noise + x[row, token]
    return score.argmax(1)


def truncation(top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None, base: Tensor) -> Truncation:
    """Return the limits of all rows. A limit of None is off."""
    off = torch.zeros(len(base), dtype=torch.float64, device=base.device)
    return Truncation(
        off.long() if top_k is None else top_k,
        off + 1 if top_p is None else top_p.double(),
        off if min_p is None else min_p.double(),
    )


def threshold(
    leading: Float[Tensor, "N K"], x: Float[Tensor, "N V"], limits: Truncation
) -> tuple[Float[Tensor, " N"], Bool[Tensor, " N"]]:
    """Return the threshold τ of every row (-inf without truncation), and whether the K largest x determine it.

    x = u / T - max; `leading` are the K largest x, descending, K >= every top_k below V. Masses are in float64.
    """
    width, vocabulary = leading.shape[1], x.shape[1]
    by_rank, by_mass = limits.by_rank(vocabulary), limits.top_p < 1
    last = torch.where(by_rank, limits.top_k, 1) - 1
    tau_k = at_token(leading, last).masked_fill(~by_rank, -torch.inf)
    mass = x.exp().masked_fill_(x < tau_k[:, None], 0).sum(1, dtype=torch.float64)
    reached = leading.double().exp().cumsum(1)
    first = (reached < (limits.top_p * mass)[:, None]).sum(1)
    tau_p = at_token(leading, first.clamp_max(width - 1)).masked_fill(~by_mass, -torch.inf)
    tau = torch.maximum(torch.maximum(tau_k, tau_p), limits.min_p.log().to(x.dtype))
    return tau, by_rank | ~by_mass | (first < width) | (width == vocabulary)


def in_cells(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N C 1024"]:
    """Return the logits in cells of 1024 tokens; the last cell is padded with -inf."""
    missing = -logits.shape[1] % CELL
    padded = torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing else logits
    return padded.unflatten(1, (-1, CELL))


def row_sums(cells: Float[Tensor, "N C 1024"]) -> Float[Tensor, " N"]:
    """Return the sum of each row, in two steps, so that the rounding is the same for a single row and for a batch."""
    return cells.sum(2).sum(1)


def at_token(values: Float[Tensor, "N V"], token: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return each row's value at its token."""
    return values.gather(1, token[:, None]).squeeze(1)
