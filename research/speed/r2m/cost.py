"""Bytes and multiply-adds of R2M's feedback, by formula and counted, and its attention in two forms."""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ....kernels.r2m_attention import absorbed, attend, reference
from ....policy.rewards.r2m_online_updates import OnlineR2M
from ....policy.types import Cycle
from ....tests.stand_ins.kernel_cases.r2m_attention import example


class Shape(NamedTuple):
    """Sizes of a cycle, with their letters in the formulas."""

    answers: int
    """N: prompts times completions of each."""
    positions: int
    """S: tokens of a prompt and its completion, padding included."""
    policy_width: int
    """P: of the policy's last hidden states."""
    width: int
    """D: of the reward token."""
    inner: int
    """d: of queries, keys and values."""
    objectives: int = 1
    """K: number of objectives."""

    @property
    def head(self) -> int:
        """2 d (P + D) + K D: numbers in W_q, W_k, W_v, W_o and a scoring head without bias."""
        return 2 * self.inner * (self.policy_width + self.width) + self.objectives * self.width


PAPER = Shape(answers=64 * 8, positions=1024, policy_width=4096, width=4096, inner=2048)
"""R2M's dialogue setting with models of 8 billion parameters: Huang et al. 2026, arXiv:2601.22664."""


# ---- bytes ----


def predicted_bytes(shape: Shape) -> dict[str, int]:
    """Compute the bytes that R2M adds to a frozen reward model, by component.

    states     2 N (S - 1) P     bfloat16: the states that predict a token, read by the reward model
    tokens     4 N (D + K)       reward tokens and rewards, float32
    head       4 (2 d (P + D) + K D)
    optimizer  8 (2 d (P + D) + K D) + 4 · 5     AdamW's two moments, and a step count for each of five tensors

    The states are those of the last pass, without padding.
    """
    N, S, P, D, _, K = shape
    return {
        "states": 2 * N * (S - 1) * P,
        "tokens": 4 * N * (D + K),
        "head": 4 * shape.head,
        "optimizer": 8 * shape.head + 4 * 5,
    }


def held_bytes(source: OnlineR2M, cycle: Cycle) -> dict[str, int]:
    """Count the bytes of a source that trains its head, after an update and after rating the cycle's completions."""
    annotation = source._annotation(cycle)
    optimizer = source.optimizer.state.values() if source.optimizer else ()
    return {
        "states": bytes_of(source._update_batch(cycle, annotation).states),
        "tokens": bytes_of([annotation.tokens, annotation.rewards]),
        "head": bytes_of(source.learning),
        "optimizer": bytes_of(tensor for state in optimizer for tensor in state.values()),
    }


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Sum the bytes of the tensors' storages: a view counts its whole storage, a shared storage counts once."""
    behind = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(behind.values())


# ---- multiply-adds ----


def absorbed_products(shape: Shape) -> int:
    """N (2 d (D + P) + 2 S P): multiply-adds of the attention's forward without keys and values; S states a row."""
    N, S, P, D, d, _ = shape
    return N * (2 * d * (D + P) + 2 * S * P)


def literal_products(shape: Shape) -> int:
    """N (2 d D + 2 S P d + 2 S d): multiply-adds with a key and a value for every state, R2M's eq. 3 as published."""
    N, S, P, D, d, _ = shape
    return N * (2 * d * D + 2 * S * P * d + 2 * S * d)


def counted_products(run: Callable[[], object]) -> int:
    """Count the multiply-adds of a call's matrix products with PyTorch's counter."""
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mv: _of_vector}) as counter:
        run()
    return counter.get_total_flops() // 2


def _of_vector(matrix: Any, vector: Any, *, out_shape: Any = None, **_: Any) -> int:
    """Count the FLOPs of a matrix-vector product, which PyTorch's counter omits."""
    return 2 * matrix[0] * matrix[1]


# ---- attention benchmark ----


def attention(shape: Shape, pairs: int) -> dict[str, Any]:
    """Measure both forms in float32: their difference, multiply-adds, and CPU-seconds, alternating."""
    given = example(
        {"lengths": [shape.positions] * shape.answers, "D": shape.width, "P": shape.policy_width, "d": shape.inner},
        torch.float32,
    )
    leaves = {name: tensor.requires_grad_() for name, tensor in given.items() if name not in ("states", "bounds")}
    towards = torch.randn(given["query"].shape, generator=torch.Generator().manual_seed(0))
    forms: dict[str, Callable[..., Tensor]] = {"literal": reference, "absorbed": partial(absorbed, attend)}

    def forward_and_backward(name: str) -> list[Tensor]:
        out = forms[name](**given)
        return [out.detach(), *torch.autograd.grad(out, [*leaves.values()], towards)]

    outputs = {name: forward_and_backward(name) for name in forms}
    seconds = {name: [] for name in forms}
    for _ in range(pairs):
        for name in forms:
            seconds[name].append(seconds_of(partial(forward_and_backward, name)))
    return {
        "shape": shape._asdict(),
        "difference": dict(zip(("output", *leaves), map(largest_difference, *outputs.values()), strict=True)),
        "multiply-adds": products(shape, {name: partial(form, **given) for name, form in forms.items()}),
        "seconds": seconds,
    }


def largest_difference(expected: Tensor, actual: Tensor) -> dict[str, float]:
    """Return the largest difference, absolute and relative to the largest expected value."""
    gap = (expected - actual).abs().max().item()
    return {"absolute": gap, "relative": gap / expected.abs().max().item()}


def products(shape: Shape, forms: Mapping[str, Callable[[], object]]) -> dict[str, dict[str, int]]:
    """Count the multiply-adds of each form's forward, and compute them by formula for this and for the paper's size."""
    formulas = {"literal": literal_products, "absorbed": absorbed_products}
    return {
        name: {
            "counted": counted_products(form),
            "formula": formulas[name](shape),
            "of an answer at the paper's size": formulas[name](PAPER._replace(answers=1)),
        }
        for name, form in forms.items()
    }


def seconds_of(run: Callable[[], object]) -> float:
    """Return the CPU-seconds of a call."""
    began = time.process_time()
    run()
    return time.process_time() - began
