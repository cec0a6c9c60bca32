"""Guided sampler in PyTorch, in cells of 1024 logits; most truncation thresholds need only the largest logits."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .. import philox
from ..dispatch import wide

CELL = 1024  # tokens that share one Gumbel variable

CELLS, TOKENS = 1, 3  # streams of random numbers


class Sampled(NamedTuple):
    """Sampled token of every row, and its log-probabilities, entropy and KL divergence in nats."""

    token: Int[Tensor, " N"]
    logprob: Float[Tensor, " N"]
    """Log-probability of the token under the sampling distribution, after temperature and truncation.

    0 for greedy rows.
    """
    guided: Float[Tensor, " N"]
    """Log-probability of the token under p = softmax(u) of the guided logits u, at temperature 1 without truncation."""
    base: Float[Tensor, " N"]
    """Log-probability of the token under softmax(z_0) of the base logits z_0."""
    entropy: Float[Tensor, " N"]
    """Entropy of p."""
    kl: Float[Tensor, " N"]
    """KL divergence KL(p || softmax(z_0))."""


class Truncation(NamedTuple):
    """Top-k, top-p and min-p of every row.

    A limit has no effect at top_k = 0 or >= V (vocabulary size), top_p = 1, min_p = 0.
    """

    top_k: Int[Tensor, " N"]
    top_p: Float[Tensor, " N"]
    min_p: Float[Tensor, " N"]

    def on(self, vocabulary: int) -> Bool[Tensor, " N"]:
        """Return a mask of the rows that set top-k, top-p or min-p, even where the limit removes no token."""
        return self.by_rank(vocabulary) | (self.top_p < 1) | (self.min_p > 0)

    def by_rank(self, vocabulary: int) -> Bool[Tensor, " N"]:
        """Return a mask of the rows that set top-k."""
        return (self.top_k > 0) & (self.top_k < vocabulary)


def draw_by_cell(
    mass: Float[Tensor, "N C 1024"], seed: Int[Tensor, " N"], position: Int[Tensor, " N"]
) -> Int[Tensor, " N"]:
    """Sample a token with probability mass / Σ mass: a cell by Gumbel-max, and a token in the cell by inversion.

    Masses are unnormalised, the largest about 1. Random numbers come from Philox stream 1, index = cell: word 0
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
    """Return the candidate of largest x + Gumbel variable (Philox stream 3, index = token); 0 without candidates."""
    row, token = candidates.nonzero(as_tuple=True)
    noise = philox.gumbel(philox.words(seed[row], token, position[row], TOKENS)[0])
    score = torch.full_like(x, -torch.inf, dtype=torch.float64)
    score[row, token] = noise + x[row, token]
    return score.argmax(1)


def truncation(top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None, base: Tensor) -> Truncation:
    """Return the truncation of all rows. An argument of None sets no limit."""
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

    x are the logits u / T minus their maximum. `leading` are the K largest x in descending order; K is at least the
    largest top_k below V. Masses e^x are summed in float64.
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


LEADING = 1024  # logits that are looked at first for a truncation's threshold

LOWEST = -1e30  # stands for -inf where 0 * -inf would be NaN


def eager(
    base: Float[Tensor, "N V"], guides: Float[Tensor, "N G V"], weights: Float[Tensor, "N G"], *,
    temperature: Float[Tensor, " N"] | None, seed: Int[Tensor, " N"], position: Int[Tensor, " N"],
    top_k: Int[Tensor, " N"] | None = None, top_p: Float[Tensor, " N"] | None = None,
    min_p: Float[Tensor, " N"] | None = None,
) -> Sampled:  # fmt: skip
    """Compute `guided_sampler`; rows without truncation need one Gumbel variable per cell of 1024 tokens."""
    dtype = wide(base.dtype)
    base = base.to(dtype)
    z = shifted(base)
    x = shifted(mixed(base, guides, weights.to(dtype))) if guides.shape[1] else z
    token = x.flatten(1).argmax(1)
    logprob = torch.zeros_like(x[:, 0, 0])
    if temperature is not None and not _all_true(temperature == 0):
        limits = None if top_k is top_p is min_p is None else truncation(top_k, top_p, min_p, base)
        sample, sample_logprob = _sample(x, temperature.to(dtype), seed, position, limits, base.shape[1])
        token = torch.where(temperature == 0, token, sample)
        logprob = torch.where(temperature == 0, logprob, sample_logprob)
    return Sampled(token, logprob, *_facts(x, z, token))


def mixed(
    base: Float[Tensor, "N V"], guides: Float[Tensor, "N G V"], weights: Float[Tensor, "N G"]
) -> Float[Tensor, "N V"]:
    """Return the guided logits u = z_0 + Σ_g w_g z_g in the base logits' dtype.

    Product and sum are separate: a fused operation would make the token depend on the row's index in the batch.
    """
    u, positive = base, _all_true(weights > 0)
    for guide, weight in zip(guides.unbind(1), weights.split(1, dim=1), strict=True):
        guide = guide.to(base.dtype)
        tilted = (guide * weight).add_(u)
        # with a positive weight every guide is read, and -inf stays -inf by itself
        u = tilted if positive else torch.where(weight == 0, u, tilted.masked_fill_(guide == -torch.inf, -torch.inf))
    return u


def shifted(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N C 1024"]:
    """Return the logits minus their row's maximum, in cells of 1024; the last cell is padded with -inf."""
    cells = in_cells(logits)
    top = cells.amax((1, 2), keepdim=True)
    return cells - top.masked_fill_(top == -torch.inf, 0)


def _facts(x: Float[Tensor, "N C 1024"], z: Float[Tensor, "N C 1024"], token: Int[Tensor, " N"]) -> tuple[Tensor, ...]:
    """Return log p(token), log base(token), H(p) and KL(p || base) from shifted logits x and z, p = softmax(x).

    H = log Σ e^x - E x,   KL = (E x - log Σ e^x) - (E z - log Σ e^z),   expectations under p
    """
    mass = x.exp()
    total = row_sums(mass)
    log_total = total.log()
    mean = row_sums(x.clamp(min=LOWEST).mul_(mass)) / total
    guided = at_token(x.flatten(1), token) - log_total
    entropy = (log_total - mean).clamp_(min=0)
    if z is x:
        return guided, guided, entropy, 0 * entropy
    log_total_base = row_sums(z.exp()).log()
    mean_base = row_sums(z.clamp(min=LOWEST).mul_(mass)) / total
    base = at_token(z.flatten(1), token) - log_total_base
    return guided, base, entropy, ((mean - log_total) - (mean_base - log_total_base)).clamp_(min=0)


def _all_true(mask: Bool[Tensor, "..."]) -> bool:
    """Return whether all values are true; False for tensors on a GPU, where the test would synchronise."""
    return mask.is_cpu and bool(mask.all())


def _sample(
    x: Float[Tensor, "N C 1024"], temperature: Float[Tensor, " N"], seed: Int[Tensor, " N"],
    position: Int[Tensor, " N"], limits: Truncation | None, vocabulary: int,
) -> tuple[Int[Tensor, " N"], Float[Tensor, " N"]]:  # fmt: skip
    x = x / torch.where(temperature == 0, 1, temperature)[:, None, None]
    mass = x.exp()
    if limits is None:
        token = draw_by_cell(mass, seed, position)
    else:
        tau, truncated = _threshold(x.flatten(1)[:, :vocabulary], limits), limits.on(vocabulary)
        mass = mass.masked_fill_(x < tau[:, None, None], 0)
        candidates = (mass > 0).flatten(1) & truncated[:, None]
        token = draw_by_token(x.flatten(1), candidates, seed, position)
        if not truncated.all():
            token = torch.where(truncated, token, draw_by_cell(mass, seed, position))
    token = token.clamp_max(vocabulary - 1)  # a row without any mass
    return token, at_token(x.flatten(1), token) - row_sums(mass).log()


def _threshold(x: Float[Tensor, "N V"], limits: Truncation) -> Float[Tensor, " N"]:
    """Return the threshold τ, from the largest logits if they determine it, else from all logits (synchronises)."""
    vocabulary = x.shape[1]
    width = max(1, int(torch.where(limits.by_rank(vocabulary), limits.top_k, 0).max()))
    if (limits.top_p < 1).any():
        width = min(vocabulary, max(width, LEADING))
    tau, suffices = threshold(x.topk(width, dim=1).values, x, limits)
    return tau if suffices.all() else threshold(x.sort(dim=1, descending=True).values, x, limits)[0]
