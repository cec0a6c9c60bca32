"""Base and guide logits -> a token for every row, and how likely it was."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .. import philox
from ..dispatch import way, wide

CELL = 1024  # tokens that share one Gumbel variable
CELLS, TOKENS = 1, 3  # streams of random numbers
LEADING = 1024  # logits that are looked at first for a truncation's threshold
LOWEST = -1e30  # stands for -inf where 0 * -inf would be NaN
CASES = [
    {"N": 1, "G": 0, "V": 1},
    {"N": 3, "G": 1, "V": 17},
    {"N": 17, "G": 2, "V": 129, "truncated": True},
    {"N": 4, "G": 3, "V": 1025, "masked": True},
    {"N": 5, "G": 1, "V": 3000, "masked": True, "truncated": True},
    {"N": 3, "G": 1, "V": 2048, "greedy": True},
]


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


@torch.no_grad()
def reference(
    base: Float[Tensor, "N V"],
    guides: Float[Tensor, "N G V"],
    weights: Float[Tensor, "N G"],
    *,
    temperature: Float[Tensor, " N"] | None,
    seed: Int[Tensor, " N"],
    position: Int[Tensor, " N"],
    top_k: Int[Tensor, " N"] | None = None,
    top_p: Float[Tensor, " N"] | None = None,
    min_p: Float[Tensor, " N"] | None = None,
) -> Sampled:
    """The definition: distributions written out, logits sorted, a Gumbel variable for every token."""
    dtype, vocabulary = wide(base.dtype), base.shape[1]
    z, w = base.to(dtype), weights.to(dtype)[:, :, None]
    u = z + (w * torch.where(w == 0, 0, guides.to(dtype))).sum(1)
    u = u.masked_fill(z.isneginf() | (guides.isneginf() & (w != 0)).any(1), -torch.inf)
    logp, logp_base = u.log_softmax(1), z.log_softmax(1)
    p = logp.exp()
    entropy = -torch.where(p > 0, p * logp, 0).sum(1)
    kl = torch.where(p > 0, p * (logp - logp_base), 0).sum(1)

    best = u.argmax(1)
    t = torch.zeros_like(z[:, 0]) if temperature is None else temperature.to(dtype)
    x = u / torch.where(t == 0, 1, t)[:, None]
    x = x - x.amax(1, keepdim=True)
    limits = _truncation(top_k, top_p, min_p, base)
    tau, _ = threshold(x.sort(descending=True).values, x, limits)
    x = x.masked_fill(x < tau[:, None], -torch.inf)
    tokens = torch.arange(vocabulary, device=base.device)
    noise = philox.gumbel(philox.words(seed[:, None], tokens, position[:, None], TOKENS)[0])
    drawn = torch.where(limits.on(vocabulary), (x + noise).argmax(1), draw_by_cell(_in_cells(x).exp(), seed, position))
    token = torch.where(t == 0, best, drawn.clamp_max(vocabulary - 1))
    sampled = torch.where(t == 0, 0, _at(x.log_softmax(1), token))
    return Sampled(token, sampled, _at(logp, token), _at(logp_base, token), entropy, kl)


@torch.no_grad()
def guided_sampler(
    base: Float[Tensor, "N V"],
    guides: Float[Tensor, "N G V"],
    weights: Float[Tensor, "N G"],
    *,
    temperature: Float[Tensor, " N"] | None,
    seed: Int[Tensor, " N"],
    position: Int[Tensor, " N"],
    top_k: Int[Tensor, " N"] | None = None,
    top_p: Float[Tensor, " N"] | None = None,
    min_p: Float[Tensor, " N"] | None = None,
) -> Sampled:
    """A token for every row from softmax(u / T), truncated, where G guides tilt the base.

    u = z_0 + Σ_g w_g z_g                                      GenARM, Xu et al. 2025, arXiv:2410.08193, eq. 8
    keep x = u / T where x >= max(τ_k, τ_p, max x + log min_p),
    τ_k the k-th largest x, τ_p the largest τ with mass{x >= τ} >= p mass{x >= τ_k}: top-k, then top-p, then min-p

    Logits need no normalising: a constant per row and model cancels. Every parameter belongs to a row. Temperature 0 is
    greedy, the lowest id among equals; `None` is 0 for all rows and the cheapest. G may be 0. Tokens that tie with a
    threshold are kept. A guide of weight 0 is not read; a token that is -inf in a model that is read stays -inf, for
    negative weights too. The parameters are not checked against their ranges, which would wait for the device: T >= 0,
    top_k >= 0, top_p and min_p in [0, 1]. A row without any finite logit gets some token and NaN for `guided`,
    `entropy` and `kl`.

    The token is a function of the row alone and of (seed, position): the same in any batch, at any place in it.
    How noise and place belong together is the RNG contract of kernels/README.md.
    """
    _check(base, guides, weights)
    options = {"temperature": temperature, "seed": seed, "position": position}
    options |= {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    match way(base):
        case "reference":
            return reference(base, guides, weights, **options)
        case "triton":
            from .triton import fused

            return fused(base, guides, weights, **options)
    dtype = wide(base.dtype)
    base = base.to(dtype)
    z = shifted(base)
    x = shifted(mixed(base, guides, weights.to(dtype))) if guides.shape[1] else z
    token = x.flatten(1).argmax(1)
    logprob = torch.zeros_like(x[:, 0, 0])
    if temperature is not None and not _known(temperature == 0):
        limits = None if top_k is top_p is min_p is None else _truncation(top_k, top_p, min_p, base)
        drawn, drawn_logprob = _draw(x, temperature.to(dtype), seed, position, limits, base.shape[1])
        token = torch.where(temperature == 0, token, drawn)
        logprob = torch.where(temperature == 0, logprob, drawn_logprob)
    return Sampled(token, logprob, *_facts(x, z, token))


# ---- logits in cells ----


def mixed(
    base: Float[Tensor, "N V"], guides: Float[Tensor, "N G V"], weights: Float[Tensor, "N G"]
) -> Float[Tensor, "N V"]:
    """u = z_0 + Σ_g w_g z_g, in base's dtype.

    Product and sum are two steps on purpose: a fused one rounds differently in a vector's tail, and with it the token
    would depend on the row's place.
    """
    u, positive = base, _known(weights > 0)
    for guide, weight in zip(guides.unbind(1), weights.split(1, dim=1), strict=True):
        guide = guide.to(base.dtype)
        tilted = (guide * weight).add_(u)
        # with a positive weight every guide is read, and -inf stays -inf by itself
        u = tilted if positive else torch.where(weight == 0, u, tilted.masked_fill_(guide == -torch.inf, -torch.inf))
    return u


def shifted(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N C 1024"]:
    """Logits minus their row's largest, in cells of 1024; the last is filled up with -inf."""
    cells = _in_cells(logits)
    top = cells.amax((1, 2), keepdim=True)
    return cells - top.masked_fill_(top == -torch.inf, 0)


def _in_cells(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N C 1024"]:
    missing = -logits.shape[1] % CELL
    padded = torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing else logits
    return padded.unflatten(1, (-1, CELL))


def _total(cells: Float[Tensor, "N C 1024"]) -> Float[Tensor, " N"]:
    """The sum of each row. In two steps: a single long sum is split among threads when a row is alone, and rounds
    otherwise then."""
    return cells.sum(2).sum(1)


def _at(values: Float[Tensor, "N V"], token: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    return values.gather(1, token[:, None]).squeeze(1)


def _facts(x: Float[Tensor, "N C 1024"], z: Float[Tensor, "N C 1024"], token: Int[Tensor, " N"]) -> tuple[Tensor, ...]:
    """log p(token), log base(token), H(p), KL(p || base) from shifted logits, p = softmax(x).

    H = log Σ e^x - E x,   KL = (E x - log Σ e^x) - (E z - log Σ e^z),   expectations under p
    """
    mass = x.exp()
    total = _total(mass)
    log_total = total.log()
    mean = _total(x.clamp(min=LOWEST).mul_(mass)) / total
    guided = _at(x.flatten(1), token) - log_total
    entropy = (log_total - mean).clamp_(min=0)
    if z is x:
        return guided, guided, entropy, 0 * entropy
    log_total_base = _total(z.exp()).log()
    mean_base = _total(z.clamp(min=LOWEST).mul_(mass)) / total
    base = _at(z.flatten(1), token) - log_total_base
    return guided, base, entropy, ((mean - log_total) - (mean_base - log_total_base)).clamp_(min=0)


# ---- drawing ----


def _known(all_of: Bool[Tensor, "..."]) -> bool:
    """All true, as far as can be told without waiting for a device."""
    return all_of.is_cpu and bool(all_of.all())


def _draw(
    x: Float[Tensor, "N C 1024"],
    temperature: Float[Tensor, " N"],
    seed: Int[Tensor, " N"],
    position: Int[Tensor, " N"],
    limits: Truncation | None,
    vocabulary: int,
) -> tuple[Int[Tensor, " N"], Float[Tensor, " N"]]:
    """A token from softmax(x / T), truncated, and its log-probability there."""
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
    return token, _at(x.flatten(1), token) - _total(mass).log()


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
    """The kept token of the largest x + Gumbel; 0 where a row keeps none.

    Stream 3, index = token: which other tokens are kept does not matter to a token's noise.
    """
    row, token = candidates.nonzero(as_tuple=True)
    noise = philox.gumbel(philox.words(seed[row], token, position[row], TOKENS)[0])
    score = torch.full_like(x, -torch.inf, dtype=torch.float64)
    score[row, token] = noise + x[row, token]
    return score.argmax(1)


# ---- truncation ----


def _truncation(top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None, base: Tensor) -> Truncation:
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
    tau_k = _at(leading, last).masked_fill(~by_rank, -torch.inf)
    mass = x.exp().masked_fill_(x < tau_k[:, None], 0).sum(1, dtype=torch.float64)
    reached = leading.double().exp().cumsum(1)
    first = (reached < (limits.top_p * mass)[:, None]).sum(1)
    tau_p = _at(leading, first.clamp_max(width - 1)).masked_fill(~by_mass, -torch.inf)
    tau = torch.maximum(torch.maximum(tau_k, tau_p), limits.min_p.log().to(x.dtype))
    return tau, by_rank | ~by_mass | (first < width) | (width == vocabulary)


def _threshold(x: Float[Tensor, "N V"], limits: Truncation) -> Float[Tensor, " N"]:
    """τ from the largest logits alone where they suffice, as they nearly always do; reads from the device."""
    vocabulary = x.shape[1]
    width = max(1, int(torch.where(limits.by_rank(vocabulary), limits.top_k, 0).max()))
    if (limits.top_p < 1).any():
        width = min(vocabulary, max(width, LEADING))
    tau, known = threshold(x.topk(width, dim=1).values, x, limits)
    return tau if known.all() else threshold(x.sort(dim=1, descending=True).values, x, limits)[0]


# ---- the door's own ----


def _check(base: Tensor, guides: Tensor, weights: Tensor) -> None:
    rows, vocabulary = base.shape
    if guides.shape[::2] != (rows, vocabulary) or weights.shape != guides.shape[:2]:
        raise ValueError(
            f"guided_sampler: base {tuple(base.shape)} is [N, V], so guides are [{rows}, G, {vocabulary}] and weights "
            f"[{rows}, G], got {tuple(guides.shape)} and {tuple(weights.shape)}; without guides pass G = 0"
        )


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones; rows differ in temperature and limits, one is greedy."""
    generator = torch.Generator().manual_seed(0)
    N, G, V = case["N"], case["G"], case["V"]

    def draw(*shape: int) -> Tensor:
        return 3 * torch.randn(shape, generator=generator, dtype=torch.float64)

    base, guides, row = draw(N, V), draw(N, G, V), torch.arange(N)
    weights = torch.tensor([1.0, -0.5, 0.0]).repeat(N, 1)[:, :G]
    if "masked" in case:
        base[:, ::7] = guides[:, 0, 1::5] = -torch.inf
    logits = {"base": base.to(dtype), "guides": guides.to(dtype), "weights": weights}
    cycle = {
        "temperature": torch.tensor([1.0, 0.7, 1.5, 0.0])[row % 4] * ("greedy" not in case),
        "seed": 2**40 + row // 2,
        "position": 7 * row,
    }
    limits = {
        "top_k": torch.tensor([0, 5, 40])[row % 3],
        "top_p": torch.tensor([1.0, 0.9])[row % 2],
        "min_p": torch.tensor([0.05, 0.0, 0.0, 0.01, 0.0])[row % 5],
    }
    arguments = logits | cycle | (limits if "truncated" in case else {})
    return {name: tensor.to(device) for name, tensor in arguments.items()}
