"""Guided sampling compared with torch.compile and Hugging Face: time, error, and frequency of tail tokens."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ....kernels.guided_sampler import Truncation, guided_sampler, mixed, threshold
from .timing import (
    COMPILING,
    CUDA_ONLY,
    Bench,
    Case,
    Row,
    Size,
    Trial,
    Variant,
    compiled,
    from_package,
    implementations,
    kernel_backend,
    nbytes,
    no_error,
    record_failure,
)

TEMPERATURE = 0.8
WARPS = (1, 2, 4)  # that the first pass over the logits is also timed with
CUTS: dict[str, dict[str, Any]] = {
    "nothing cut": {},
    "top-p 0.9": {"top_p": 0.9},
    "top-k 50, min-p 0.05": {"top_k": 50, "min_p": 0.05},
}


def sampling(bench: Bench) -> Iterator[Case]:
    """Yield the cases of tables A and A2."""
    size = bench.size
    for guides, (cut, limits), rows in product(size.guides, CUTS.items(), size.rows):
        make = partial(sampler, bench, rows, guides, limits)
        yield Case("A", f"N={rows}, {guides} guides, {cut}", make)
        if guides == size.guides[0] and rows == size.rows[0] and "top_p" in limits:
            yield Case("A", f"N={rows}, {guides} guides, {cut}, flat logits", partial(make, flat=True))
        if guides == size.guides[0] and cut == "nothing cut" and rows == size.rows[-1]:
            yield Case("A2", "the tail", partial(one_draw, bench), partial(tail, bench))


def sampler(bench: Bench, rows: int, guides: int, limits: Mapping[str, Any], flat: bool = False) -> Trial:
    """Return the trial of `guided_sampler`, torch.compile and Hugging Face's logits processors."""
    given = logits(bench, rows, guides, flat)
    limit = {name: torch.full((rows,), value, device=bench.device) for name, value in limits.items()}
    row = torch.arange(rows, device=bench.device)
    options = {"temperature": torch.full((rows,), TEMPERATURE, device=bench.device), "seed": row, "position": 7 * row}
    variants = implementations(lambda: partial(guided_sampler, *given, **options, **limit), bench, graph=True)
    first = (guides, rows) == (bench.size.guides[0], bench.size.rows[0]) and not flat
    if bench.cuda and first:
        variants |= {
            f"triton, {warps} warps": Variant(
                partial(by_warps, warps, *given, **options, **limit), "triton", graph=True
            )
            for warps in WARPS
        }
    if not bench.cuda:
        variants["torch.compile"] = CUDA_ONLY
    elif not first or "top_k" in limits:
        variants["torch.compile"] = f"compiled for N={bench.size.rows[0]}, uncut and top-p, only"
    else:
        compiled_sampler = partial(compiled(straightforward), *given, TEMPERATURE, **limits)
        variants["torch.compile"] = Variant(compiled_sampler, patience=COMPILING)
    processed = Variant(partial(processors, *given, TEMPERATURE, **limits), counted=True)
    variants["Hugging Face"] = from_package("transformers", processed, bench)
    true = cache(lambda: log_distribution(*(tensor[:8] for tensor in given), TEMPERATURE, **limits))
    return Trial(
        variants,
        lambda sampled: logprob_error(true(), sampled),
        nbytes(*given),
        elements=given[0].numel(),
        of="logit",
    )


def by_warps(warps: int, *given: Tensor, **options: Tensor) -> tuple[Tensor, ...]:
    """Sample by the kernels, with a number of warps in place of the chosen one."""
    from ....kernels.guided_sampler.triton import fused  # Triton may be absent

    return fused(*given, warps=warps, **options)


def logits(bench: Bench, rows: int, guides: int, flat: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Generate logits of base and guides, and weights.

    The logits are normal, plus 18 - 3 log(rank) for a thousand tokens, as in a language model, unless `flat`.
    """
    options = bench.random()
    number, vocabulary = guides + 1, bench.size.vocabulary
    z = torch.randn(rows, number, vocabulary, dtype=torch.bfloat16, **options).mul_(3 if flat else 2)
    if not flat:
        tokens = torch.randint(vocabulary, (rows, 1, min(1000, vocabulary // 3)), **options)
        fall = 18 - 3 * torch.arange(1, tokens.shape[2] + 1, device=bench.device).log()
        above = z.gather(2, tokens.expand(-1, number, -1)) + fall.to(z.dtype)
        z.scatter_(2, tokens.expand(-1, number, -1), above)
    weights = torch.tensor([1.0, 0.5, -0.5], device=bench.device)[:guides].repeat(rows, 1)
    return z[:, 0].contiguous(), z[:, 1:].contiguous(), weights


def straightforward(
    base: Tensor, guides: Tensor, weights: Tensor, temperature: float, *, top_k: int = 0, top_p: float = 1,
    min_p: float = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Compute the outputs of `guided_sampler` in plain PyTorch, for torch.compile: full rows, noise for every token."""
    z = base.float()
    u = z + (weights[:, :, None] * guides.float()).sum(1)
    logp, logp_base = u.log_softmax(1), z.log_softmax(1)
    x = u / temperature
    if top_k:
        x = x.masked_fill(x < x.topk(top_k, dim=1).values[:, -1:], -torch.inf)
    if top_p < 1:
        ordered = x.sort(1, descending=True).values
        p = ordered.softmax(1)
        x = x.masked_fill(
            x < ordered.masked_fill(p.cumsum(1) - p >= top_p, torch.inf).amin(1, keepdim=True), -torch.inf
        )
    if min_p:
        x = x.masked_fill(x < x.amax(1, keepdim=True) + math.log(min_p), -torch.inf)
    sampled = x.log_softmax(1)
    p, race = logp.exp(), torch.empty_like(sampled).exponential_()
    token = (sampled.exp() / race).argmax(1, keepdim=True)
    logprobs = (distribution.gather(1, token).squeeze(1) for distribution in (sampled, logp, logp_base))
    return token.squeeze(1), *logprobs, -(p * logp).sum(1), (p * (logp - logp_base)).sum(1)


def processors(
    base: Tensor, guides: Tensor, weights: Tensor, temperature: float, *, top_k: int = 0, top_p: float = 1,
    min_p: float = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Sample a token and its log-probability by Hugging Face's processors, which remove some tied tokens."""
    from transformers.generation import logits_process as hf

    chain = hf.LogitsProcessorList([hf.TemperatureLogitsWarper(temperature)])
    chain += [hf.TopKLogitsWarper(top_k)] if top_k else []
    chain += [hf.TopPLogitsWarper(top_p)] if top_p < 1 else []
    chain += [hf.MinPLogitsWarper(min_p)] if min_p else []
    u = base.float()
    for number, guide in enumerate(guides.unbind(1)):
        u = u + weights[:, number, None] * guide.float()
    p = chain(None, u).softmax(1)
    token = torch.multinomial(p, 1)
    return token.squeeze(1), p.gather(1, token).squeeze(1).log()


def log_distribution(
    base: Tensor, guides: Tensor, weights: Tensor, temperature: float, *, top_k: int = 0, top_p: float = 1,
    min_p: float = 0,
) -> Tensor:  # fmt: skip
    """Return the log-probabilities to sample from, in float64.

    A removed token has the value that it would have if it were kept, as a tie with the threshold may go either way.
    """
    u = mixed(base.double(), guides, weights.double()) if guides.shape[1] else base.double()
    x = u / temperature
    x = x - x.amax(1, keepdim=True)
    limits = Truncation(*(torch.full_like(x[:, 0], limit).to(kind) for limit, kind in
                          ((top_k, torch.int64), (top_p, x.dtype), (min_p, x.dtype))))  # fmt: skip
    tau, _ = threshold(x.sort(1, descending=True).values, x, limits)
    return x - x.masked_fill(x < tau[:, None], -torch.inf).logsumexp(1, keepdim=True)


def logprob_error(log_probabilities: Tensor, sampled: Sequence[Tensor]) -> float:
    """Return the largest error of the sampled tokens' log-probabilities in the first rows."""
    token, logprob = (tensor[: len(log_probabilities)] for tensor in sampled[:2])
    return float((log_probabilities.gather(1, token[:, None]).squeeze(1) - logprob).abs().max())


def one_draw(bench: Bench) -> Trial:
    """Return the trial of one call of `tail`, as it is compiled; only its kernels matter."""
    rows = bench.size.drawn[0]
    z = torch.empty(1, bench.size.vocabulary, device=bench.device).expand(rows, -1)
    return Trial(implementations(lambda: partial(draw, z, torch.arange(rows, device=bench.device)), bench), no_error)


def draw(z: Tensor, position: Tensor) -> Tensor:
    """Draw a token for every row with the temperature 1, without guides."""
    blank = torch.empty(len(z), 0, z.shape[1], device=z.device)
    temperature, seed = torch.ones(len(z), device=z.device), torch.zeros(len(z), dtype=torch.int64, device=z.device)
    options = {"temperature": temperature, "seed": seed, "position": position}
    return guided_sampler(z, blank, blank[:, :, 0], **options).token


def tail(bench: Bench, seconds: float, end: float) -> Iterator[list[Row]]:
    """Count the tail's tokens in many draws from one distribution with float32 logits."""
    size, begin = bench.size, time.perf_counter()
    probability = torch.tensor([p for p, number in size.tails for _ in range(number)], dtype=torch.float64)
    likely = torch.full((16,), float(1 - probability.sum()) / 16, dtype=torch.float64)
    z = torch.full((1, size.vocabulary), -torch.inf, device=bench.device)
    z[0, : 16 + len(probability)] = torch.cat([likely, probability]).log().to(z)
    at_once = {"triton": size.drawn[0], "eager": size.drawn[1], "multinomial": size.drawn[1]}
    rows: list[Row] = []
    for turn, (variant, number) in enumerate(at_once.items(), 1):
        row: Row = {"way": variant} | ({"not run": CUDA_ONLY} if variant == "triton" and not bench.cuda else {})
        if "not run" not in row:
            with record_failure(row), kernel_backend(None if variant == "multinomial" else variant):
                rows += tokens_of(z, variant, number, size, min(end, begin + turn * seconds / len(at_once)))
        rows += [row] if len(row) > 1 else []
        yield rows


def tokens_of(z: Tensor, variant: str, number: int, size: Size, until: float) -> list[Row]:
    """Return a row for each tail probability: its share of the draws divided by the true share."""
    many = z.expand(number, -1)
    counts = torch.zeros(z.shape[1], dtype=torch.int64, device=z.device)
    draws = 0
    while draws < size.draws and (time.perf_counter() < until or not draws):
        if variant == "multinomial":
            token = torch.multinomial(many.softmax(1), 1).squeeze(1)
        else:
            token = draw(many, torch.arange(draws, draws + number, device=z.device))
        counts += torch.bincount(token, minlength=len(counts))
        draws += number
    rows, first = [], 16
    for p, tokens in size.tails:
        share, mass = float(counts[first : first + tokens].sum()) / draws, p * tokens
        facts = {"draws": draws, "share by truth": share / mass, "standard error": ((1 - mass) / mass / draws) ** 0.5}
        rows.append({"case": f"{tokens} tokens of p = {p:g}", "way": variant} | facts)
        first += tokens
    return rows
