"""Log-probabilities under an output head beside their peers: scores, a loss with its gradients, and PPO's ratio."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ....kernels.linear_logprob import linear_logprob, linear_loss, reference
from ..head import Batch, made_at_once, truth
from .timing import BUDGET, COMPILING, Bench, Case, Row, Trial, Variant, asked, attempt, doors, from_package, nothing

LARGE = 2048  # rows


class WithoutEntropy(Batch):
    """The same for peers that have no entropy to differentiate."""

    def loss(self, logprob: Tensor, entropy: Any = None, rows: slice = slice(None)) -> Tensor:
        """Of each row."""
        return -self.advantage[rows] * logprob / len(self.advantage)


def output_head(bench: Bench) -> Iterator[Case]:
    """Tables B1, B2 and B3."""
    for index, tokens in enumerate(bench.size.tokens):
        given = cache(partial(inputs, bench, tokens))
        title = "N={}, D={}, V={}".format(tokens, *bench.size.head)
        yield Case("B1", title, bench.timed(partial(scoring, bench, given)))
        if not index:
            yield Case("B3", title, partial(ratios, bench, given))
        true = cache(lambda of, given=given: [one.float() for one in truth(of(*given()))])
        for frozen in (False, True):
            of_head = f"{title}, {'frozen' if frozen else 'trained'} head"
            yield Case("B2", of_head, bench.timed(partial(training, bench, given, true, frozen)))


def inputs(bench: Bench, tokens: int) -> Batch:
    """Random ones in bfloat16, logits of standard deviation 3; an advantage for every sequence."""
    width, vocabulary = bench.size.head
    length = min(bench.size.length, tokens)
    generator = torch.Generator(bench.device).manual_seed(0)
    options = {"generator": generator, "device": bench.device}
    hidden = torch.randn(tokens, width, dtype=torch.bfloat16, **options)
    weight = torch.randn(vocabulary, width, dtype=torch.bfloat16, **options).mul_(3 / width**0.5)
    target = torch.randint(vocabulary, (tokens,), **options)
    advantage = torch.randn(tokens // length, **options).repeat_interleave(length)
    return Batch(hidden.requires_grad_(), weight.requires_grad_(), target, advantage)


def by_logits(given: Batch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """All bfloat16 logits, the rest in `dtype`."""
    logp = (given.hidden @ given.weight.T).to(dtype).log_softmax(1)
    return logp.gather(1, given.target[:, None]).squeeze(1), -(logp.exp() * logp).sum(1)


def trl_on_logits(given: Batch) -> tuple[Tensor, Tensor]:
    """All bfloat16 logits, through TRL's two functions."""
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    z = given.hidden @ given.weight.T
    return selective_log_softmax(z, given.target), entropy_from_logits(z)


def trl_chunked(given: Batch) -> tuple[Tensor, Tensor]:
    """TRL's chunked log-probabilities."""
    from trl.kernels import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE as size

    arguments = (given.hidden, given.weight, None, given.target, 1.0, size, None, 1.0, ("entropy",))
    return ChunkedLogProbFunction.apply(*arguments)[:2]


def cut_cross_entropy(given: Batch) -> tuple[Tensor, None]:
    """Log-probabilities alone."""
    from cut_cross_entropy import linear_cross_entropy

    return -linear_cross_entropy(given.hidden, given.weight, given.target, reduction="none"), None


def liger(given: Batch) -> Tensor:
    """The loss by Liger's chunked GRPO, a sequence at a time: π over itself held fixed has the gradient of log π."""
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    advantage = given.advantage.unique_consecutive()
    shape = len(advantage), len(given.target) // len(advantage)
    run = LigerFusedLinearGRPOLoss(beta=0.0, use_ref_model=False, compiled=given.hidden.is_cuda)
    ones = torch.ones(shape, device=given.target.device)
    return run(given.hidden.view(*shape, -1), given.weight, given.target.view(shape), ones, advantage)[0]


SCORES: dict[str, tuple[str, Callable[[Batch], tuple[Tensor, Tensor | None]]]] = {
    "bfloat16 logits": ("torch", partial(by_logits, dtype=torch.bfloat16)),
    "float32 from bfloat16 logits": ("torch", partial(by_logits, dtype=torch.float32)),
    "TRL on logits": ("trl", trl_on_logits),
    "TRL chunked": ("trl", trl_chunked),
    "cut cross-entropy": ("cut_cross_entropy", cut_cross_entropy),
}
"""Package and function of the peers that give log-probabilities."""


def scores(given: Batch, bench: Bench) -> Row:
    """Ours and the peers'."""
    ways = doors(lambda: lambda: linear_logprob(*given[:3]), bench)
    for name, (package, score) in SCORES.items():
        ways[name] = from_package(package, Variant(partial(score, given), counted=package == "torch"), bench)
    return ways | {"Liger": "has a loss, no log-probabilities"}


@torch.no_grad()
def products(given: Batch, number: int) -> list[Tensor]:
    """The first few of: the logits, the gradient of the hidden states, the gradient of the head."""
    z = given.hidden @ given.weight.T
    further = [lambda: z @ given.weight, lambda: z.T @ given.hidden]
    return [z, *(one() for one in further[: number - 1])]


def scoring(bench: Bench, given: Callable[[], Batch]) -> Trial:
    """Without gradients."""
    batch = Batch(*(one.detach() for one in given()))
    sure = true_scores(batch, min(512, len(batch.target)))
    ways = {"1 product": Variant(partial(products, batch, 1), error=nothing)} | scores(batch, bench)
    flops = 2 * batch.weight.numel() * len(batch.target)
    return Trial(
        ways, partial(furthest_score, sure), flops=flops, elements=flops // batch.weight.shape[1] // 2, of="logit"
    )


def true_scores(given: Batch, rows: int) -> tuple[Tensor, Tensor]:
    """Of the first rows, in float64."""
    weight = given.weight.double()
    parts = [reference(given.hidden[first : first + 128].double(), weight, given.target[first : first + 128])
             for first in range(0, rows, 128)]  # fmt: skip
    logprob, entropy = (torch.cat(some)[:rows] for some in zip(*parts, strict=True))
    return logprob, entropy


def furthest_score(sure: Sequence[Tensor], found: Sequence[Tensor | None]) -> float:
    """The largest error in nats, of log-probability and entropy."""
    pairs = zip(found, sure, strict=True)
    return max(float((one[: len(true)].double() - true).abs().max()) for one, true in pairs if one is not None)


def training(bench: Bench, given: Callable[[], Batch], true: Callable[[type[Batch]], Any], frozen: bool) -> Trial:
    """Forward and backward; 2 products are the least with a frozen head, 3 with one that learns."""
    batch = Batch(*(one.detach() for one in given()))
    batch.hidden.requires_grad_()
    batch.weight.requires_grad_(not frozen)
    number = 2 if frozen else 3
    ways: Row = {f"{number} products": Variant(partial(products, batch, number), error=nothing)}
    ways |= doors(lambda: stepped(batch, partial(loss_of, score=lambda of: linear_logprob(*of[:3]))), bench, "logprob")
    ways |= doors(lambda: stepped(batch, made_at_once), bench, "loss")
    ways |= doors(lambda: stepped(batch, in_large_chunks), bench, f"loss by {LARGE} rows")
    ways |= peers(batch, bench, lambda found: furthest_gradient(true(WithoutEntropy), found))
    elements = len(batch.target) * len(batch.weight)
    flops = 2 * number * elements * batch.weight.shape[1]
    return Trial(ways, partial(furthest_gradient, true(Batch)), flops=flops, elements=elements, of="logit")


def peers(batch: Batch, bench: Bench, error: Callable[[Any], float]) -> dict[str, Variant | str]:
    """Of the loss and its gradients; `error` is that of peers without an entropy."""
    alone, ways = WithoutEntropy(*batch), {}
    for name, (package, score) in SCORES.items():
        if package == "cut_cross_entropy":
            variant = Variant(stepped(alone, partial(loss_of, score=score)), error=error)
        else:
            variant = Variant(stepped(batch, partial(loss_of, score=score)), counted=package == "torch")
        ways[name] = from_package(package, variant, bench)
    by_liger = Variant(stepped(alone, liger), error=error, patience=COMPILING * bench.cuda)
    return ways | {"Liger": from_package("liger_kernel", by_liger, bench)}


def loss_of(given: Batch, score: Callable[[Batch], Any]) -> Tensor:
    """From all rows' log-probabilities and entropies."""
    return given.loss(*score(given)).sum()


def in_large_chunks(given: Batch) -> Tensor:
    """`made_at_once`, holding more logits than it does by itself: larger products."""
    return linear_loss(given.hidden, given.weight, given.target, given.loss, chunk=LARGE * len(given.weight)).total


def stepped(given: Batch, loss: Callable[[Any], Tensor]) -> Callable[[], tuple[Tensor | None, Tensor | None]]:
    """The loss forward and backward; the gradients of hidden states and head."""

    def run() -> tuple[Tensor | None, Tensor | None]:
        given.hidden.grad = given.weight.grad = None
        loss(given).backward()
        return given.hidden.grad, given.weight.grad

    return run


def furthest_gradient(true: Sequence[Tensor], found: Sequence[Tensor | None]) -> float:
    """The largest error by norm, relative to the truth's."""
    pairs = zip(found, true, strict=True)
    return max(float((one.float() - sure).norm() / sure.norm()) for one, sure in pairs if one is not None)


def ratios(bench: Bench, given: Callable[[], Batch], seconds: float, end: float) -> list[Row]:
    """exp(new - old) with `new` by each way and `old` the float64 log-probability under the same weights.

    Where one program samples and another trains, this error is on top of whatever the step did to the policy.
    """
    batch = Batch(*(one.detach() for one in given()))
    sure, _ = true_scores(batch, len(batch.target))
    rows: list[Row] = []
    for way, variant in scores(batch, bench).items():
        rows.append({"way": way})
        if isinstance(variant, str) or time.perf_counter() >= end:
            rows[-1]["not run"] = variant if isinstance(variant, str) else BUDGET
            continue
        with attempt(rows[-1]), asked(variant.through):
            ratio = (variant.run()[0].double() - sure).exp() - 1
            worst, most = ratio.abs().max(), ratio.abs().quantile(0.99)
            rows[-1] |= {"largest error": float(worst), "99 % below": float(most), "mean error": float(ratio.mean())}
    return rows
