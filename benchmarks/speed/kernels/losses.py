"""Policy loss, scan and attention over packed sequences, and row-modulated LoRA, compared with peers."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....kernels import discounted_scan as scan
from ....kernels import lora_film as lora
from ....kernels import policy_loss as policy
from ....kernels import r2m_attention as feedback
from .timing import (
    COMPILING,
    CUDA_ONLY,
    Bench,
    Case,
    Trial,
    Variant,
    compiled,
    doubled,
    implementations,
    kernel_backend,
    largest_error,
    nbytes,
    no_error,
)

PPO = ((0.0, 1.2), (0.8, float("inf")), "ratio", "token")
UNROLLED = "its loop would be unrolled"


# ---- packed sequences ----


def sequences(bench: Bench) -> Iterator[Case]:
    """Yield the cases of table C."""
    length = bench.size.length
    for tokens in bench.size.packed:
        lengths = [length] * (tokens // length)
        yield Case("C", f"policy_loss and gradient, {tokens} tokens", bench.timed(partial(losses, bench, lengths)))
        yield Case("C", f"discounted_scan, {tokens} tokens", bench.timed(partial(scans, bench, lengths)))
    for backward in (False, True):
        title = f"r2m_attention, {bench.size.states[0]} rows of {length}{', with gradients' * backward}"
        yield Case("C", title, bench.timed(partial(attention, bench, backward)))


def losses(bench: Bench, lengths: list[int]) -> Trial:
    """Return the trial of the PPO loss with a k3 KL estimate, and its gradient."""
    case = {"lengths": lengths, "rule": PPO, "beta": 0.1, "kl": "k3"}
    given = policy.example(case, torch.float32, bench.device)

    def run(given: Mapping[str, Any], op: Callable[..., Any] = policy.policy_loss) -> tuple[Tensor, Tensor]:
        leaf = given["logprob"].detach().requires_grad_()
        total = op(**{**given, "logprob": leaf}).total
        return total.detach(), torch.autograd.grad(total, leaf)[0]

    with kernel_backend("eager"):
        true = run(doubled(given))
    variants = implementations(lambda: partial(run, given), bench, graph=True)
    compiled_step = Variant(partial(run, given, compiled(policy.policy_loss)), "eager", patience=COMPILING)
    variants["torch.compile"] = compiled_step if bench.cuda else CUDA_ONLY
    tokens = sum(lengths)
    least = nbytes(*given.values(), given["logprob"])
    return Trial(variants, partial(largest_error, true=true), least, elements=tokens, of="token")


def scans(bench: Bench, lengths: list[int]) -> Trial:
    """Return the trial of the discounted scan, as used by GAE."""
    given = scan.example({"lengths": lengths, "discount": 0.95}, torch.float32, bench.device)
    true = scan.discounted_scan(**doubled(given))
    variants = implementations(lambda: partial(scan.discounted_scan, **given), bench, graph=True)
    variants["torch.compile"] = UNROLLED if bench.cuda else CUDA_ONLY
    return Trial(
        variants, partial(largest_error, true=true), 2 * nbytes(given["x"]), elements=len(given["x"]), of="token"
    )


def attention(bench: Bench, backward: bool) -> Trial:
    """Return the trial of R2M's attention, one query per row, forward alone or with gradients."""
    rows, D, P, d = bench.size.states
    case = {"lengths": [bench.size.length] * rows, "D": D, "P": P, "d": d}
    given = feedback.example(case, torch.bfloat16, bench.device)
    learned = ["query", "W_q", "W_k", "W_v", "W_o"]

    def run(given: Mapping[str, Any], op: Callable[..., Tensor] = feedback.r2m_attention) -> tuple[Tensor, ...]:
        if not backward:
            return (op(**given),)
        leaves = {name: given[name].detach().requires_grad_() for name in learned}
        return torch.autograd.grad(op(**{**given, **leaves}).sum(), list(leaves.values()))

    with kernel_backend("reference"):
        true = run(doubled(given))
    variants = implementations(lambda: partial(run, given), bench, graph=not backward)
    compiled_step = Variant(partial(run, given, compiled(padded)), patience=COMPILING)
    variants["torch.compile, padded"] = compiled_step if bench.cuda else CUDA_ONLY
    return Trial(
        variants, partial(largest_error, true=true), nbytes(given["states"]), elements=len(given["states"]), of="token"
    )


def padded(query: Tensor, states: Tensor, bounds: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor) -> Tensor:
    """Compute R2M's attention for rows of equal length with batched products."""
    h = states.view(len(query), -1, states.shape[1])
    u = (query @ W_q @ W_k.T / W_q.shape[1] ** 0.5)[:, :, None]
    a = (h @ u).float().softmax(1).to(h.dtype)
    return (a.mT @ h).squeeze(1) @ W_v @ W_o


# ---- lora_film ----


def adapters(bench: Bench) -> Iterator[Case]:
    """Yield the cases of table lora."""
    for pairs in bench.size.pairs:
        yield Case("lora", f"N={2 * pairs}, one position", bench.timed(partial(adapted, bench, pairs)))


def adapted(bench: Bench, pairs: int) -> Trial:
    """Return the trial of one decoded token for base rows and as many adapted rows."""
    wide = bench.size.layer
    case = {"N": 2 * pairs, "L": 1, "m": wide, "n": wide, "r": 8, "start": pairs, "kind": "scale"}
    given = lora.example(case, torch.bfloat16, bench.device)
    true = lora.reference(**doubled(given))
    weight = torch.randn(wide, wide, device=bench.device, dtype=torch.bfloat16)
    bare = partial(torch.nn.functional.linear, given["x"], weight)
    variants = {"the layer": Variant(bare, graph=True, counted=True, error=no_error, bytes=nbytes(weight))}

    def fresh() -> Callable[[], Tensor]:
        return partial(lora.lora_film, **{**given, "y": given["y"].clone()})

    variants |= implementations(fresh, bench, graph=True)
    if bench.cuda:
        variants["eager"] = Variant(fresh(), "eager", graph=True, counted=True)
    changed = given["y"][pairs:]
    least = nbytes(given["A"], given["B"], given["x"][pairs:], changed, changed)
    return Trial(variants, partial(largest_error, true=true), least, elements=changed.numel(), of="output")
