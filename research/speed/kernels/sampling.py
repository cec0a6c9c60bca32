"""Guided sampling compared with torch.compile and Hugging Face: time and error."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ....kernels.guided_sampler import Truncation, guided_sampler, mixed, threshold
from .timing import COMPILING, CUDA_ONLY, Bench, Case, Trial, Variant, compiled, from_package, implementations, nbytes

TEMPERATURE = 0.8
CUTS: dict[str, dict[str, Any]] = {"nothing cut": {}, "top-p 0.9": {"top_p": 0.9}}


def sampling(bench: Bench) -> Iterator[Case]:
    """Yield the cases of table A."""
    for (cut, limits), rows in product(CUTS.items(), bench.size.rows):
        yield Case("A", f"N={rows}, {cut}", partial(sampler, bench, rows, limits))
    rows = max(bench.size.rows)
    yield Case("A", f"N={rows}, top-p 0.9, flat logits", partial(sampler, bench, rows, {"top_p": 0.9}, flat=True))


def sampler(bench: Bench, rows: int, limits: Mapping[str, Any], flat: bool = False) -> Trial:
    """Return the trial of `guided_sampler` with one guide, Hugging Face's logits processors and torch.compile."""
    given = logits(bench, rows, flat)
    limit = {name: torch.full((rows,), value, device=bench.device) for name, value in limits.items()}
    row = torch.arange(rows, device=bench.device)
    options = {"temperature": torch.full((rows,), TEMPERATURE, device=bench.device), "seed": row, "position": 7 * row}
    variants = implementations(lambda: partial(guided_sampler, *given, **options, **limit), bench, graph=True)
    processed = Variant(partial(processors, *given, TEMPERATURE, **limits), counted=True)
    variants["Hugging Face"] = from_package("transformers", processed, bench)
    compiled_sampler = partial(compiled(straightforward), *given, TEMPERATURE)
    if not bench.cuda:
        variants["torch.compile"] = CUDA_ONLY
    elif not limits and rows == max(bench.size.rows):
        variants["torch.compile"] = Variant(compiled_sampler, patience=COMPILING)
    true = cache(lambda: log_distribution(*(tensor[:8] for tensor in given), TEMPERATURE, **limits))
    return Trial(
        variants,
        lambda sampled: logprob_error(true(), sampled),
        nbytes(*given),
        elements=given[0].numel(),
        of="logit",
    )


def logits(bench: Bench, rows: int, flat: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Generate logits of base and one guide, and weights.

    The logits are normal, plus 18 - 3 log(rank) for a thousand tokens, as in a language model, unless `flat`.
    """
    options, vocabulary = bench.random(), bench.size.vocabulary
    z = torch.randn(rows, 2, vocabulary, dtype=torch.bfloat16, **options).mul_(3 if flat else 2)
    if not flat:
        tokens = torch.randint(vocabulary, (rows, 1, min(1000, vocabulary // 3)), **options)
        fall = 18 - 3 * torch.arange(1, tokens.shape[2] + 1, device=bench.device).log()
        above = z.gather(2, tokens.expand(-1, 2, -1)) + fall.to(z.dtype)
        z.scatter_(2, tokens.expand(-1, 2, -1), above)
    return z[:, 0].contiguous(), z[:, 1:].contiguous(), torch.ones(rows, 1, device=bench.device)


def straightforward(base: Tensor, guides: Tensor, weights: Tensor, temperature: float) -> tuple[Tensor, ...]:
    """Compute the outputs of `guided_sampler` without limits, for torch.compile: full rows, noise for every token."""
    z = base.float()
    u = z + (weights[:, :, None] * guides.float()).sum(1)
    logp, logp_base = u.log_softmax(1), z.log_softmax(1)
    sampled = (u / temperature).log_softmax(1)
    p, race = logp.exp(), torch.empty_like(sampled).exponential_()
    token = (sampled.exp() / race).argmax(1, keepdim=True)
    logprobs = (distribution.gather(1, token).squeeze(1) for distribution in (sampled, logp, logp_base))
    return token.squeeze(1), *logprobs, -(p * logp).sum(1), (p * (logp - logp_base)).sum(1)


def processors(
    base: Tensor, guides: Tensor, weights: Tensor, temperature: float, *, top_p: float = 1
) -> tuple[Tensor, Tensor]:
    """Sample a token and its log-probability by Hugging Face's processors, which remove some tied tokens."""
    from transformers.generation import logits_process as hf

    chain = hf.LogitsProcessorList([hf.TemperatureLogitsWarper(temperature)])
    chain += [hf.TopPLogitsWarper(top_p)] if top_p < 1 else []
    u = base.float()
    for number, guide in enumerate(guides.unbind(1)):
        u = u + weights[:, number, None] * guide.float()
    p = chain(None, u).softmax(1)
    token = torch.multinomial(p, 1)
    return token.squeeze(1), p.gather(1, token).squeeze(1).log()


def log_distribution(base: Tensor, guides: Tensor, weights: Tensor, temperature: float, *, top_p: float = 1) -> Tensor:
    """Return the log-probabilities to sample from, in float64.

    A removed token has the value that it would have if it were kept, as a tie with the threshold may go either way.
    """
    x = mixed(base.double(), guides, weights.double()) / temperature
    x = x - x.amax(1, keepdim=True)
    off = torch.zeros_like(x[:, 0])
    tau, _ = threshold(x.sort(1, descending=True).values, x, Truncation(off.long(), off + top_p, off))
    return x - x.masked_fill(x < tau[:, None], -torch.inf).logsumexp(1, keepdim=True)


def logprob_error(log_probabilities: Tensor, sampled: Sequence[Tensor]) -> float:
    """Return the largest error of the sampled tokens' log-probabilities in the first rows."""
    token, logprob = (tensor[: len(log_probabilities)] for tensor in sampled[:2])
    return float((log_probabilities.gather(1, token[:, None]).squeeze(1) - logprob).abs().max())
