"""What R2M's feedback holds and multiplies: formulas, the same counted, and its attention in two forms."""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ....kernels.r2m_attention import absorbed, attend, example, reference
from ....policy.rewards.r2m import OnlineFeedback
from ....policy.types import Cycle


class Shape(NamedTuple):
    """A cycle's sizes, and the letters that they have in the formulas."""

    answers: int
    """N: prompts times answers to each."""
    positions: int
    """S: tokens of a prompt and its answer, padding included."""
    policy_width: int
    """P: of the policy's last hidden states."""
    width: int
    """D: of the reward token."""
    inner: int
    """d: of queries, keys and values."""
    objectives: int = 1
    """K."""

    @property
    def head(self) -> int:
        """2 d (P + D) + K D: numbers in W_q, W_k, W_v, W_o and a scoring head without bias."""
        return 2 * self.inner * (self.policy_width + self.width) + self.objectives * self.width


PAPER = Shape(answers=64 * 8, positions=1024, policy_width=4096, width=4096, inner=2048)
"""R2M's dialogue setting with models of 8 billion parameters: Huang et al. 2026, arXiv:2601.22664."""


# ---- bytes ----


def predicted_bytes(shape: Shape) -> dict[str, int]:
    """What R2M adds to a frozen reward model, by what it is of.

    states     2 N (S - 1) P     bfloat16: what predicts a token, as the reward reads it
    tokens     4 N (D + K)       reward tokens and rewards, float32
    head       4 (2 d (P + D) + K D)
    optimizer  8 (2 d (P + D) + K D) + 4 · 5     AdamW's two moments, and its count of steps for each of five tensors

    The states are those of the last pass, copied without their padding.
    """
    N, S, P, D, _, K = shape
    return {
        "states": 2 * N * (S - 1) * P,
        "tokens": 4 * N * (D + K),
        "head": 4 * shape.head,
        "optimizer": 8 * shape.head + 4 * 5,
    }


def held_bytes(source: OnlineFeedback, cycle: Cycle) -> dict[str, int]:
    """The same of a source that learns its head, has learnt before and has now rated the cycle's answers."""
    annotation = source._annotation(cycle)
    optimizer = source.optimizer.state.values() if source.optimizer else ()
    return {
        "states": bytes_of(source._lesson(cycle, annotation).states),
        "tokens": bytes_of([annotation.tokens, annotation.rewards]),
        "head": bytes_of(source.learning),
        "optimizer": bytes_of(one for state in optimizer for one in state.values()),
    }


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Of the memory behind them: of a view all that it keeps alive, what is shared once."""
    behind = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(behind.values())


# ---- multiply-adds ----


def absorbed_products(shape: Shape) -> int:
    """N (2 d (D + P) + 2 S P): multiply-adds of the attention's forward without keys and values; S states a row."""
    N, S, P, D, d, _ = shape
    return N * (2 * d * (D + P) + 2 * S * P)


def literal_products(shape: Shape) -> int:
    """N (2 d D + 2 S P d + 2 S d): the same with a key and a value for every state, R2M's eq. 3 as it stands."""
    N, S, P, D, d, _ = shape
    return N * (2 * d * D + 2 * S * P * d + 2 * S * d)


def counted_products(run: Callable[[], object]) -> int:
    """Multiply-adds of the matrix products that a call makes, by PyTorch's counter."""
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mv: _of_vector}) as counter:
        run()
    return counter.get_total_flops() // 2


def _of_vector(matrix: Any, vector: Any, *, out_shape: Any = None, **_: Any) -> int:
    """A matrix and a vector, which the counter leaves out by itself."""
    return 2 * matrix[0] * matrix[1]


# ---- the attention alone ----


def attention(shape: Shape, pairs: int) -> dict[str, Any]:
    """Both forms in float32: how far apart they are, their multiply-adds, and CPU-seconds in turns."""
    given = example(
        {"lengths": [shape.positions] * shape.answers, "D": shape.width, "P": shape.policy_width, "d": shape.inner},
        torch.float32,
    )
    leaves = {name: one.requires_grad_() for name, one in given.items() if name not in ("states", "bounds")}
    towards = torch.randn(given["query"].shape, generator=torch.Generator().manual_seed(0))
    forms: dict[str, Callable[..., Tensor]] = {"literal": reference, "absorbed": partial(absorbed, attend)}

    def both_ways(name: str) -> list[Tensor]:
        out = forms[name](**given)
        return [out.detach(), *torch.autograd.grad(out, [*leaves.values()], towards)]

    found = {name: both_ways(name) for name in forms}
    seconds = {name: [] for name in forms}
    for _ in range(pairs):
        for name in forms:
            seconds[name].append(seconds_of(partial(both_ways, name)))
    return {
        "shape": shape._asdict(),
        "difference": dict(zip(("output", *leaves), map(apart, *found.values()), strict=True)),
        "multiply-adds": products(shape, {name: partial(form, **given) for name, form in forms.items()}),
        "seconds": seconds,
    }


def apart(one: Tensor, other: Tensor) -> dict[str, float]:
    """The largest difference, and as a share of the largest number."""
    gap = (one - other).abs().max().item()
    return {"absolute": gap, "relative": gap / one.abs().max().item()}


def products(shape: Shape, forms: Mapping[str, Callable[[], object]]) -> dict[str, dict[str, int]]:
    """Multiply-adds of each form's forward, counted and by the formula, and what the formula says of the paper's."""
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
    """CPU-seconds of a call."""
    began = time.process_time()
    run()
    return time.process_time() - began
