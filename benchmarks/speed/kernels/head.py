"""Log-probabilities under an output head, compared with other libraries: values, loss and PPO's ratio."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ....kernels.linear_logprob import linear_logprob, linear_loss, reference
from ..head import Batch, made_at_once, truth
from .timing import (
    BUDGET,
    COMPILING,
    CUDA_ONLY,
    Bench,
    Case,
    Row,
    Trial,
    Variant,
    compiled,
    from_package,
    implementations,
    kernel_backend,
    no_error,
    record_failure,
)

LARGE = 2048  # rows


class WithoutEntropy(Batch):
    """A batch whose loss has no entropy term, for libraries without a differentiable entropy."""

    def loss(self, logprob: Tensor, entropy: Any = None, rows: slice = slice(None)) -> Tensor:
        """Return the loss of each row."""
        return -self.advantage[rows] * logprob / len(self.advantage)


def output_head(bench: Bench) -> Iterator[Case]:
    """Yield the cases of tables B2, B1 and B3."""
    for index, tokens in enumerate(bench.size.tokens):
        inputs_of_case = cache(partial(inputs, bench, tokens))
        title = "N={}, D={}, V={}".format(tokens, *bench.size.head)
        true = cache(
            lambda batch_class, inputs_of_case=inputs_of_case: [
                gradient.float().cpu() for gradient in truth(batch_class(*inputs_of_case()))
            ]
        )
        for frozen in (False, True):
            of_head = f"{title}, {'frozen' if frozen else 'trained'} head"
            yield Case("B2", of_head, partial(training, bench, inputs_of_case, true, frozen))
        yield Case("B1", title, partial(scoring, bench, inputs_of_case))
        if not index:
            yield Case("B3", title, partial(scoring, bench, inputs_of_case), partial(ratios, bench, inputs_of_case))


def inputs(bench: Bench, tokens: int) -> Batch:
    """Generate a random bfloat16 batch with logits of standard deviation 3 and one advantage per sequence."""
    width, vocabulary = bench.size.head
    length = min(bench.size.length, tokens)
    options = bench.random()
    hidden = torch.randn(tokens, width, dtype=torch.bfloat16, **options)
    weight = torch.randn(vocabulary, width, dtype=torch.bfloat16, **options).mul_(3 / width**0.5)
    target = torch.randint(vocabulary, (tokens,), **options)
    advantage = torch.randn(tokens // length, **options).repeat_interleave(length)
    return Batch(hidden.requires_grad_(), weight.requires_grad_(), target, advantage)


def by_logits(given: Batch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute log-probability and entropy from all bfloat16 logits, in `dtype`."""
    logp = (given.hidden @ given.weight.T).to(dtype).log_softmax(1)
    return logp.gather(1, given.target[:, None]).squeeze(1), -(logp.exp() * logp).sum(1)


def trl_on_logits(given: Batch) -> tuple[Tensor, Tensor]:
    """Compute log-probability and entropy from all bfloat16 logits, by TRL's two functions."""
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    z = given.hidden @ given.weight.T
    return selective_log_softmax(z, given.target), entropy_from_logits(z)


def trl_chunked(given: Batch) -> tuple[Tensor, Tensor]:
    """Compute log-probability and entropy by TRL's chunked function."""
    from trl.kernels import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE as size

    arguments = (given.hidden, given.weight, None, given.target, 1.0, size, None, 1.0, ("entropy",))
    return ChunkedLogProbFunction.apply(*arguments)[:2]


def cut_cross_entropy(given: Batch) -> tuple[Tensor, None]:
    """Compute log-probabilities, without entropy, by cut cross-entropy."""
    from cut_cross_entropy import linear_cross_entropy

    return -linear_cross_entropy(given.hidden, given.weight, given.target, reduction="none"), None


def liger(given: Batch) -> Tensor:
    """Compute the loss by Liger's chunked GRPO, sequence by sequence: π / detach(π) has the gradient of log π."""
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    advantage = given.advantage.unique_consecutive()
    shape = len(advantage), len(given.target) // len(advantage)
    run = LigerFusedLinearGRPOLoss(beta=0.0, use_ref_model=False, compiled=given.hidden.is_cuda)
    mask = torch.ones(shape, device=given.target.device)
    return run(given.hidden.view(*shape, -1), given.weight, given.target.view(shape), mask, advantage)[0]


SCORES: dict[str, tuple[str, Callable[[Batch], tuple[Tensor, Tensor | None]]]] = {
    "bfloat16 logits": ("torch", partial(by_logits, dtype=torch.bfloat16)),
    "float32 from bfloat16 logits": ("torch", partial(by_logits, dtype=torch.float32)),
    "TRL on logits": ("trl", trl_on_logits),
    "TRL chunked": ("trl", trl_chunked),
    "cut cross-entropy": ("cut_cross_entropy", cut_cross_entropy),
}
"""Package and function of other implementations of log-probabilities."""


def scores(given: Batch, bench: Bench) -> Row:
    """Return all variants of log-probabilities, ours and the other libraries'."""
    variants = implementations(lambda: lambda: linear_logprob(*given[:3]), bench)
    for name, (package, score) in SCORES.items():
        variants[name] = from_package(package, Variant(partial(score, given), counted=package == "torch"), bench)
    return variants | {"Liger": "has a loss, no log-probabilities"}


@torch.no_grad()
def products(given: Batch, number: int) -> list[Tensor]:
    """Compute the first `number` of: the logits, the gradient of the hidden states, the gradient of the head."""
    z = given.hidden @ given.weight.T
    further = [lambda: z @ given.weight, lambda: z.T @ given.hidden]
    return [z, *(compute() for compute in further[: number - 1])]


def scoring(bench: Bench, given: Callable[[], Batch]) -> Trial:
    """Return the trial of log-probabilities and entropy without gradients."""
    batch = Batch(*(tensor.detach() for tensor in given()))
    true_values = cache(lambda: true_scores(batch, min(512, len(batch.target))))
    variants = {"1 product": Variant(partial(products, batch, 1), error=no_error)} | scores(batch, bench)
    flops = 2 * batch.weight.numel() * len(batch.target)
    return Trial(
        variants,
        lambda computed: largest_score_error(true_values(), computed),
        flops=flops,
        elements=flops // batch.weight.shape[1] // 2,
        of="logit",
    )


def true_scores(given: Batch, rows: int) -> tuple[Tensor, Tensor]:
    """Compute log-probability and entropy of the first rows in float64."""
    weight = given.weight.double()
    parts = [reference(given.hidden[first : first + 128].double(), weight, given.target[first : first + 128])
             for first in range(0, rows, 128)]  # fmt: skip
    logprob, entropy = (torch.cat(some)[:rows] for some in zip(*parts, strict=True))
    return logprob, entropy


def largest_score_error(true_values: Sequence[Tensor], computed: Sequence[Tensor | None]) -> float:
    """Return the largest error of log-probability and entropy, in nats."""
    pairs = zip(computed, true_values, strict=True)
    return max(float((values[: len(true)].double() - true).abs().max()) for values, true in pairs if values is not None)


def training(bench: Bench, given: Callable[[], Batch], true: Callable[[type[Batch]], Any], frozen: bool) -> Trial:
    """Return the trial of forward and backward; at least 2 products with a frozen head, 3 with a trained head."""
    batch = Batch(*(tensor.detach() for tensor in given()))
    batch.hidden.requires_grad_()
    batch.weight.requires_grad_(not frozen)
    number = 2 if frozen else 3
    variants: Row = {f"{number} products": Variant(partial(products, batch, number), error=no_error)}
    variants |= implementations(
        lambda: stepped(batch, partial(loss_of, score=lambda inputs: linear_logprob(*inputs[:3]))), bench, "logprob"
    )
    variants |= implementations(lambda: stepped(batch, made_at_once), bench, "loss")
    variants |= implementations(lambda: stepped(batch, in_large_chunks), bench, f"loss by {LARGE} rows")
    variants |= peers(batch, bench, lambda gradients: largest_gradient_error(true(WithoutEntropy), gradients))
    elements = len(batch.target) * len(batch.weight)
    flops = 2 * number * elements * batch.weight.shape[1]
    return Trial(
        variants,
        lambda gradients: largest_gradient_error(true(Batch), gradients),
        flops=flops,
        elements=elements,
        of="logit",
    )


def peers(batch: Batch, bench: Bench, error: Callable[[Any], float]) -> dict[str, Variant | str]:
    """Return the other libraries' variants of loss and gradients; `error` is for those without entropy."""
    alone, variants = WithoutEntropy(*batch), {}
    for name, (package, score) in SCORES.items():
        if package == "cut_cross_entropy":
            variant = Variant(stepped(alone, partial(loss_of, score=score)), error=error)
        else:
            variant = Variant(stepped(batch, partial(loss_of, score=score)), counted=package == "torch")
        variants[name] = from_package(package, variant, bench)
    first = bench.size.tokens[0]
    if bench.cuda and len(batch.target) != first:
        skipped = f"compiled for N={first} only"
        return variants | {"torch.compile on logits": skipped, "Liger": skipped}
    on_logits = compiled(partial(by_logits, dtype=torch.float32))
    by_compiler = Variant(stepped(batch, partial(loss_of, score=on_logits)), patience=COMPILING)
    variants["torch.compile on logits"] = by_compiler if bench.cuda else CUDA_ONLY
    by_liger = Variant(stepped(alone, liger), error=error, patience=COMPILING * bench.cuda)
    return variants | {"Liger": from_package("liger_kernel", by_liger, bench)}


def loss_of(given: Batch, score: Callable[[Batch], Any]) -> Tensor:
    """Compute the loss from the log-probabilities and entropies of `score`."""
    return given.loss(*score(given)).sum()


def in_large_chunks(given: Batch) -> Tensor:
    """Compute the loss as `made_at_once` does, in larger chunks than its default."""
    return linear_loss(given.hidden, given.weight, given.target, given.loss, chunk=LARGE * len(given.weight)).total


def stepped(given: Batch, loss: Callable[[Any], Tensor]) -> Callable[[], tuple[Tensor | None, Tensor | None]]:
    """Return a function that runs the loss forward and backward and returns the gradients of hidden states and head."""

    def run() -> tuple[Tensor | None, Tensor | None]:
        # no gradient stays in the leaves, where it would be memory that is allocated before the next run
        leaves = [given.hidden, given.weight] if given.weight.requires_grad else [given.hidden]
        of_hidden, *of_weight = torch.autograd.grad(loss(given), leaves)
        return of_hidden, of_weight[0] if of_weight else None

    return run


def largest_gradient_error(true: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> float:
    """Return the largest relative error of the gradients, by norm."""
    pairs = zip(gradients, true, strict=True)
    return max(
        float((gradient.float() - true_gradient.to(gradient.device)).norm() / true_gradient.norm())
        for gradient, true_gradient in pairs
        if gradient is not None
    )


def ratios(bench: Bench, given: Callable[[], Batch], seconds: float, end: float) -> Iterator[list[Row]]:
    """Measure exp(new - old) - 1 with `new` by each variant and `old` the float64 log-probability of the same weights.

    If sampling and training use different programs, this error adds to the change of the policy.
    """
    batch = Batch(*(tensor.detach() for tensor in given()))
    true_logprob, _ = true_scores(batch, len(batch.target))
    rows: list[Row] = []
    for way, variant in scores(batch, bench).items():
        rows.append({"way": way})
        if isinstance(variant, str) or time.perf_counter() >= end:
            rows[-1]["not run"] = variant if isinstance(variant, str) else BUDGET
            continue
        with record_failure(rows[-1]), kernel_backend(variant.through):
            ratio = (variant.run()[0].double() - true_logprob).exp() - 1
            worst, most = ratio.abs().max(), ratio.abs().quantile(0.99)
            rows[-1] |= {"largest error": float(worst), "99 % below": float(most), "mean error": float(ratio.mean())}
        yield rows
    yield rows
