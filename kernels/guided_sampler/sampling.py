"""How a token is drawn: random numbers by cell and by token, and the threshold of a truncation."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .. import philox

CELL = 1024  # tokens that share one Gumbel variable

CELLS, TOKENS = 1, 3  # streams of random numbers


class Sampled(NamedTuple):
    """A token for every row; log-probabilities of that token, entropy and divergence in nats."""

    token: Int[Tensor, " N"]
    logprob: Float[Tensor, " N"]
    """Under what was sampled from, temperature and truncation applied; 0 for a greedy row, which is a point mass."""
    guided: Float[Tensor, " N"]
    """Under p = softmax(u), temperature 1, nothing truncated."""
    base: Float[Tensor, " N"]
    """Under softmax(z_0)."""
    entropy: Float[Tensor, " N"]
    """H(p)."""
    kl: Float[Tensor, " N"]
    """KL(p || softmax(z_0))."""


class Truncation(NamedTuple):
    """Which tokens a row may draw, each limit off at top_k = 0 (or V and more), top_p = 1, min_p = 0."""

    top_k: Int[Tensor, " N"]
    top_p: Float[Tensor, " N"]
    min_p: Float[Tensor, " N"]

    def on(self, vocabulary: int) -> Bool[Tensor, " N"]:
        """The rows that are truncated at all, by what they ask for and not by what it does."""
        return self.by_rank(vocabulary) | (self.top_p < 1) | (self.min_p > 0)

    def by_rank(self, vocabulary: int) -> Bool[Tensor, " N"]:
        """The rows with a top-k."""
        return (self.top_k > 0) & (self.top_k < vocabulary)


def draw_by_cell(
    mass: Float[Tensor, "N C 1024"], seed: Int[Tensor, " N"], position: Int[Tensor, " N"]
) -> Int[Tensor, " N"]:
    """A token with probability mass / Σ mass: the cell of the largest log mass + Gumbel, then by inversion in it.

    Masses are unnormalised, the largest about 1. Stream 1, index = cell: word 0 is the cell's Gumbel, word 1 the
    uniform number for the inside.
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
    """The kept token of the largest x + Gumbel of stream 3, index = token; 0 where a row keeps none."""
    row, token = candidates.nonzero(as_tuple=True)
    noise = philox.gumbel(philox.words(seed[row], token, position[row], TOKENS)[0])
    score = torch.full_like(x, -torch.inf, dtype=torch.float64)
    score[row, token] = noise + x[row, token]
    return score.argmax(1)


def truncation(top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None, base: Tensor) -> Truncation:
    """Return the limits of all rows; one that is None is off."""
    off = torch.zeros(len(base), dtype=torch.float64, device=base.device)
    return Truncation(
        off.long() if top_k is None else top_k,
        off + 1 if top_p is None else top_p.double(),
        off if min_p is None else min_p.double(),
    )


def threshold(
    leading: Float[Tensor, "N K"], x: Float[Tensor, "N V"], limits: Truncation
) -> tuple[Float[Tensor, " N"], Bool[Tensor, " N"]]:
    """τ per row, -inf where nothing is cut, and whether the row's K largest x were enough to know it.

    `leading` are the K largest x in descending order, the first of them 0; K is at least every row's top_k below V.
    Masses e^x are summed in float64.
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
    """The sum of each row. In two steps: a lone row's long sum is split among threads and rounds otherwise."""
    return cells.sum(2).sum(1)


def at_token(values: Float[Tensor, "N V"], token: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return each row's value at its token."""
    return values.gather(1, token[:, None]).squeeze(1)
