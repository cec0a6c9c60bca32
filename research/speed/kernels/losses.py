"""Policy loss, scan and attention over packed sequences, and row-modulated LoRA, compared with peers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ....kernels import discounted_scan as scan
from ....kernels import lora_film as lora
from ....kernels import policy_loss as policy
from ....kernels import r2m_attention as feedback
from ....tests.stand_ins.kernel_cases import discounted_scan, lora_film, policy_loss, r2m_attention
from .timing import Bench, Case, Trial, Variant, doubled, error_to, from_package, implementations, nbytes, no_error

PPO = ((0.0, 1.2), (0.8, float("inf")), "ratio", "token")


# ---- packed sequences ----


def sequences(bench: Bench) -> Iterator[Case]:
    """Yield the cases of table C."""
    length = bench.size.length
    for tokens in bench.size.packed:
        lengths = [length] * (tokens // length)
        yield Case("C", f"policy_loss and gradient, {tokens} tokens", partial(losses, bench, lengths))
        yield Case("C", f"discounted_scan, {tokens} tokens", partial(scans, bench, lengths))
    for backward in (False, True):
        title = f"r2m_attention, {bench.size.states[0]} rows of {length}{', with gradients' * backward}"
        yield Case("C", title, partial(attention, bench, backward))


def losses(bench: Bench, lengths: list[int]) -> Trial:
    """Return the trial of the PPO loss with a k3 KL estimate, and its gradient."""
    case = {"lengths": lengths, "rule": PPO, "beta": 0.1, "kl": "k3"}
    given = policy_loss.example(case, torch.float32, bench.device)

    def run(given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        leaf = given["logprob"].detach().requires_grad_()
        total = policy.policy_loss(**{**given, "logprob": leaf}).total
        return total.detach(), torch.autograd.grad(total, leaf)[0]

    variants = implementations(lambda: partial(run, given), bench, graph=True)
    least = nbytes(*given.values(), given["logprob"])
    error = error_to(lambda: run(doubled(given)), "eager")
    return Trial(variants, error, least, elements=sum(lengths), of="token")


def scans(bench: Bench, lengths: list[int]) -> Trial:
    """Return the trial of the discounted scan, as used by GAE."""
    given = discounted_scan.example({"lengths": lengths, "discount": 0.95}, torch.float32, bench.device)
    variants = implementations(lambda: partial(scan.discounted_scan, **given), bench, graph=True)
    error = error_to(lambda: scan.discounted_scan(**doubled(given)))
    return Trial(variants, error, 2 * nbytes(given["x"]), elements=len(given["x"]), of="token")


def attention(bench: Bench, backward: bool) -> Trial:
    """Return the trial of R2M's attention, one query per row, forward alone or with gradients."""
    rows, D, P, d = bench.size.states
    case = {"lengths": [bench.size.length] * rows, "D": D, "P": P, "d": d}
    given = r2m_attention.example(case, torch.bfloat16, bench.device)
    learned = ["query", "W_q", "W_k", "W_v", "W_o"]

    def run(given: Mapping[str, Any]) -> tuple[Tensor, ...]:
        if not backward:
            return (feedback.r2m_attention(**given),)
        leaves = {name: given[name].detach().requires_grad_() for name in learned}
        return torch.autograd.grad(feedback.r2m_attention(**{**given, **leaves}).sum(), list(leaves.values()))

    variants = implementations(lambda: partial(run, given), bench, graph=not backward)
    error = error_to(lambda: run(doubled(given)), "reference")
    return Trial(variants, error, nbytes(given["states"]), elements=len(given["states"]), of="token")


# ---- lora_film ----


def adapters(bench: Bench) -> Iterator[Case]:
    """Yield the cases of table lora."""
    for pairs in bench.size.pairs:
        yield Case("lora", f"N={2 * pairs}, one position", partial(adapted, bench, pairs))
        yield Case("lora", f"N={2 * pairs}, one position, q, k and v", partial(three_adapted, bench, pairs))


def adapted(bench: Bench, pairs: int) -> Trial:
    """Return the trial of one decoded token for base rows and as many adapted rows."""
    wide = bench.size.layer
    case = {"N": 2 * pairs, "L": 1, "m": wide, "n": wide, "r": 8, "start": pairs, "kind": "scale"}
    given = lora_film.example(case, torch.bfloat16, bench.device)
    weight = torch.randn(wide, wide, device=bench.device, dtype=torch.bfloat16)
    bare = partial(torch.nn.functional.linear, given["x"], weight)
    variants = {"the layer": Variant(bare, graph=True, counted=True, error=no_error, bytes=nbytes(weight))}

    def fresh() -> Callable[[], Tensor]:
        return partial(lora.lora_film, **{**given, "y": given["y"].clone()})

    def with_the_layer() -> Tensor:
        return lora.lora_film(**{**given, "y": bare()})

    variants |= implementations(fresh, bench, graph=True)
    if bench.cuda:
        variants["with the layer, triton"] = Variant(with_the_layer, "triton", graph=True, error=no_error)
        variants["eager"] = Variant(fresh(), "eager", graph=True, counted=True)
    unmodulated = Variant(partial(by_peft(weight, given), given["x"]), error=no_error)
    variants["with the layer, PEFT, unmodulated"] = from_package("peft", unmodulated, bench)
    changed = given["y"][pairs:]
    least = nbytes(given["A"], given["B"], given["x"][pairs:], changed, changed)
    error = error_to(lambda: lora.reference(**doubled(given)))
    return Trial(variants, error, least, elements=changed.numel(), of="output")


def by_peft(weight: Tensor, given: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
    """Return PEFT's forward of the layer with the same factors, the first rows of a batch through the layer alone."""

    @cache
    def layer() -> Any:
        from peft import LoraConfig, inject_adapter_in_model

        rank, inputs = given["A"].shape
        bare = torch.nn.Sequential(torch.nn.Linear(inputs, len(weight), False, weight.device, weight.dtype))
        settings = LoraConfig(r=rank, lora_alpha=given["factor"] * rank, target_modules=["0"])
        inject_adapter_in_model(settings, bare)  # in place
        adapted = bare[0]
        state = {"base_layer": weight, "lora_A.default": given["A"], "lora_B.default": given["B"]}
        adapted.load_state_dict({f"{name}.weight": tensor for name, tensor in state.items()})
        return adapted.eval().requires_grad_(False)

    names = ["__base__"] * given["start"] + ["default"] * (len(given["x"]) - given["start"])
    return lambda x: layer()(x, adapter_names=names)


def three_adapted(bench: Bench, pairs: int) -> Trial:
    """Return the trial of three layers with one input: each with a call of its own, and all with one."""
    wide = bench.size.layer
    case = {"N": 2 * pairs, "L": 1, "m": wide, "n": wide, "r": 8, "start": pairs, "kind": "scale"}
    shared = lora_film.example(case, torch.bfloat16, bench.device)
    given = [shared | {"A": shared["A"].roll(number, 1)} for number in range(3)]
    together = shared | {
        "A": torch.cat([layer["A"] for layer in given]),
        "B": torch.block_diag(*[shared["B"]] * 3),
        **{name: shared[name].repeat(1, 3) for name in ("scale", "shift")},
    }
    outputs, changed = shared["y"].repeat(1, 1, 3), shared["y"][pairs:]

    def at_once() -> Callable[[], Sequence[Tensor]]:
        y = outputs.clone()
        return lambda: lora.lora_film(**together | {"y": y}).split(wide, 2)

    def each() -> Callable[[], Sequence[Tensor]]:
        layers = [layer | {"y": layer["y"].clone()} for layer in given]
        return lambda: [lora.lora_film(**layer) for layer in layers]

    variants = implementations(at_once, bench, "one call", graph=True)
    variants |= implementations(each, bench, "a call each", graph=True)
    least = nbytes(shared["x"][pairs:], together["A"], *[shared["B"], changed, changed] * 3)
    error = error_to(lambda: [lora.reference(**doubled(layer)) for layer in given])
    return Trial(variants, error, least, elements=3 * changed.numel(), of="output")
