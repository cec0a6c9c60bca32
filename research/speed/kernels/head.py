"""Log-probabilities under a trained output head, compared with other libraries: values and loss."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....kernels.linear_logprob import linear_logprob, linear_loss, reference
from .timing import (
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
    no_error,
)

ENTROPY = 0.01  # c


class Batch(NamedTuple):
    """Inputs of every variant; hidden and weight require gradients."""

    hidden: Tensor
    weight: Tensor
    target: Tensor
    advantage: Tensor

    def loss(self, logprob: Tensor, entropy: Tensor, rows: slice = slice(None)) -> Tensor:
        """Return the loss of each row."""
        return -(self.advantage[rows] * logprob + ENTROPY * entropy) / len(self.advantage)


class WithoutEntropy(Batch):
    """A batch whose loss has no entropy term, for libraries without a differentiable entropy."""

    def loss(self, logprob: Tensor, entropy: Any = None, rows: slice = slice(None)) -> Tensor:
        """Return the loss of each row."""
        return -self.advantage[rows] * logprob / len(self.advantage)


def output_head(bench: Bench) -> Iterator[Case]:
    """Yield the cases of tables B2 and B1."""
    given = cache(partial(inputs, bench))
    title = "N={}, D={}, V={}".format(bench.size.tokens, *bench.size.head)
    # on the inputs' device: the truth of a large head is gigabytes
    true = cache(lambda batch_class: [gradient.float() for gradient in truth(batch_class(*given()))])
    yield Case("B2", f"{title}, trained head", partial(training, bench, given, true))
    yield Case("B1", title, partial(scoring, bench, given))


def inputs(bench: Bench) -> Batch:
    """Generate a random bfloat16 batch with logits of standard deviation 3 and one advantage per sequence."""
    tokens, (width, vocabulary) = bench.size.tokens, bench.size.head
    length = min(bench.size.length, tokens)
    options = bench.random()
    hidden = torch.randn(tokens, width, dtype=torch.bfloat16, **options)
    weight = torch.randn(vocabulary, width, dtype=torch.bfloat16, **options).mul_(3 / width**0.5)
    target = torch.randint(vocabulary, (tokens,), **options)
    advantage = torch.randn(tokens // length, **options).repeat_interleave(length)
    return Batch(hidden.requires_grad_(), weight.requires_grad_(), target, advantage)


def by_logits(given: Batch) -> tuple[Tensor, Tensor]:
    """Compute log-probability and entropy in float32 from all bfloat16 logits."""
    logp = (given.hidden @ given.weight.T).float().log_softmax(1)
    return logp.gather(1, given.target[:, None]).squeeze(1), -(logp.exp() * logp).sum(1)


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
    "float32 from bfloat16 logits": ("torch", by_logits),
    "TRL chunked": ("trl", trl_chunked),
    "cut cross-entropy": ("cut_cross_entropy", cut_cross_entropy),
}
"""Package and function of other implementations of log-probabilities."""


def ours(make: Callable[[], Callable[[], Any]], bench: Bench, name: str = "") -> Row:
    """Return the variants of our operation; of a large head on a GPU PyTorch's way is no choice."""
    variants = implementations(make, bench, name)
    return {way: variant for way, variant in variants.items() if not (bench.cuda and way.endswith("eager"))}


def scores(given: Batch, bench: Bench) -> Row:
    """Return all variants of log-probabilities, ours and the other libraries'."""
    variants = ours(lambda: lambda: linear_logprob(*given[:3]), bench)
    for name, (package, score) in SCORES.items():
        variants[name] = from_package(package, Variant(partial(score, given), counted=package == "torch"), bench)
    return variants


@torch.no_grad()
def three_products(given: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the logits, the gradient of the hidden states and the gradient of the head."""
    z = given.hidden @ given.weight.T
    return z, z @ given.weight, z.T @ given.hidden


def scoring(bench: Bench, given: Callable[[], Batch]) -> Trial:
    """Return the trial of log-probabilities and entropy without gradients."""
    batch = Batch(*(tensor.detach() for tensor in given()))
    true_values = cache(lambda: true_scores(batch, min(512, len(batch.target))))
    variants = {"1 product": Variant(lambda: batch.hidden @ batch.weight.T, error=no_error)} | scores(batch, bench)
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


def training(bench: Bench, given: Callable[[], Batch], true: Callable[[type[Batch]], Any]) -> Trial:
    """Return the trial of forward and backward, which are at least three products."""
    batch = Batch(*(tensor.detach() for tensor in given()))
    batch.hidden.requires_grad_()
    batch.weight.requires_grad_()
    variants: Row = {"3 products": Variant(partial(three_products, batch), error=no_error)}
    variants |= ours(lambda: stepped(batch, made_at_once), bench, "loss")
    by_logprob = partial(loss_of, score=lambda inputs: linear_logprob(*inputs[:3]))
    variants |= ours(lambda: stepped(batch, by_logprob), bench, "logprob")
    variants |= peers(batch, bench, lambda gradients: largest_gradient_error(true(WithoutEntropy), gradients))
    elements = len(batch.target) * len(batch.weight)
    flops = 6 * elements * batch.weight.shape[1]
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
    by_compiler = Variant(stepped(batch, partial(loss_of, score=compiled(by_logits))), patience=COMPILING)
    variants["torch.compile on logits"] = by_compiler if bench.cuda else CUDA_ONLY
    by_liger = Variant(stepped(alone, liger), error=error, patience=COMPILING * bench.cuda)
    return variants | {"Liger": from_package("liger_kernel", by_liger, bench)}


def loss_of(given: Batch, score: Callable[[Batch], Any]) -> Tensor:
    """Compute the loss from the log-probabilities and entropies of `score`."""
    return given.loss(*score(given)).sum()


def stepped(given: Batch, loss: Callable[[Any], Tensor]) -> Callable[[], Sequence[Tensor]]:
    """Return a function that runs the loss forward and backward and returns the gradients of hidden states and head."""
    # no gradient stays in the leaves, where it would be memory that is allocated before the next run
    return lambda: torch.autograd.grad(loss(given), [given.hidden, given.weight])


def largest_gradient_error(true: Sequence[Tensor], gradients: Sequence[Tensor]) -> float:
    """Return the largest relative error of the gradients, by norm."""
    pairs = zip(gradients, true, strict=True)
    return max(float((gradient.float() - exact).norm() / exact.norm()) for gradient, exact in pairs)


def made_at_once(inputs: Batch) -> Tensor:
    """Compute the loss by `linear_loss`."""
    return linear_loss(inputs.hidden, inputs.weight, inputs.target, inputs.loss).total


def truth(inputs: Batch, rows: int = 128) -> list[Tensor]:
    """Compute the float64 gradients of hidden and weight by autograd through the reference, `rows` rows at a time."""
    hidden, weight = (tensor.detach().double().requires_grad_() for tensor in (inputs.hidden, inputs.weight))
    for part in (slice(first, first + rows) for first in range(0, len(hidden), rows)):
        inputs.loss(*reference(hidden[part], weight, inputs.target[part]), part).sum().backward()
    assert hidden.grad is not None and weight.grad is not None
    return [hidden.grad, weight.grad]
