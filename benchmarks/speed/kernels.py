"""Time, memory and error of every kernel beside its peers: `python -m rewardlab.benchmarks.speed.kernels`.

    A     guided_sample, by rows, guides and truncation
    A2    how often tokens of the tail are drawn
    B1    log-probabilities and entropy from hidden states
    B2    a loss made of them, forward and backward, with a frozen and with a trained head
    B3    the PPO ratio of weights that have not moved
    C     policy_loss, discounted_scan, feedback_attention
    lora  lora_film beside the bare layer

All inputs are random. The ways to the same numbers take turns in one process; on a GPU its second-level cache is
overwritten before every run, and CUDA events take the time. Beside a time stand its error against float64, and how
near it is to what a bare copy and a bare bfloat16 product of the same process take for the least bytes and FLOPs. On a
CPU all sizes are tiny; bytes and errors mean something there, times little. Exit code 5: something of a table failed.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...kernels.choose import VARIABLE
from ...kernels.ops import discounted_scan as scan
from ...kernels.ops import feedback_attention as feedback
from ...kernels.ops import lora_film as lora
from ...kernels.ops import policy_loss as policy
from ...kernels.ops.guided_sample import Truncation, guided_sample, mixed, threshold
from ...kernels.ops.linear_logprob import linear_logprob, linear_loss, reference
from .head import Batch, Traffic, made_at_once, peak_of, truth

WARM_UP, REPEATS, MOST = 3, 10, 100  # runs that are not timed; rounds at least, where the budget allows, and at most
FLUSHED = 2**28  # bytes written between runs: more than any second-level cache holds
COMPILING = 60.0  # seconds that have to be left for torch.compile
TEMPERATURE = 0.8
LARGE = 2048  # rows
CUTS: dict[str, dict[str, Any]] = {
    "nothing cut": {},
    "top-p 0.9": {"top_p": 0.9},
    "top-k 50, min-p 0.05": {"top_k": 50, "min_p": 0.05},
}
PPO = ((0.0, 1.2), (0.8, float("inf")), "ratio", "token")
PEERS = ("triton", "trl", "transformers", "liger_kernel", "cut_cross_entropy")
LOADED = ("transformers.generation.logits_process", "trl.trainer.utils")  # before the budget begins to run
WITHOUT_CPU = ("cut_cross_entropy",)
BUDGET, CUDA_ONLY, MISSING, UNROLLED = "budget", "CUDA only", "not installed", "its loop would be unrolled"
TITLES = {
    "A": "A. Guided sampling, bfloat16 logits",
    "A2": "A2. How often tokens of the tail are drawn, by their probability",
    "B1": "B1. Log-probabilities and entropy from hidden states, bfloat16",
    "B2": "B2. A loss of them, forward and backward; error of the gradients, by their norm",
    "B3": "B3. PPO ratio to the float64 log-probabilities of the same weights; 1 is right",
    "C": "C. Policy loss with gradient, scan, feedback attention",
    "lora": "Row-modulated LoRA, N rows of which the second half is adapted, beside the layer it belongs to",
}
COLUMNS = ("case", "way", "ms", "p10", "p90", "rounds", "graph ms", "of copy", "of product", "error", "peak MB")
REASONS = ("not run", "failed", "graph not run", "graph failed")
Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """What is measured; the most telling number of rows or guides first."""

    vocabulary: int = 128_256
    rows: tuple[int, ...] = (64, 1, 256, 8)
    guides: tuple[int, ...] = (1, 0, 2, 3)
    tails: tuple[tuple[float, int], ...] = ((1e-5, 1000), (1e-7, 10_000))
    """Probability and number of the tail's tokens."""
    draws: int = 4_194_304
    drawn: tuple[int, int] = (4096, 512)
    """Rows at a time: for kernels, for whoever writes rows of logits."""
    head: tuple[int, int] = (4096, 128_256)
    """Width and vocabulary."""
    tokens: tuple[int, ...] = (4096, 16_384)
    packed: tuple[int, ...] = (65_536, 1_048_576)
    length: int = 1024
    states: tuple[int, int, int, int] = (16, 4096, 4096, 128)
    """Rows, width of the reward model and of the policy, size of a key."""
    layer: int = 4096
    pairs: tuple[int, ...] = (8, 1, 32, 64)
    """Base rows, each with an adapted one."""
    copied: int = 2**30
    square: int = 8192
    """Bytes and side of the bare copy and product."""


TINY = Size(
    **{"vocabulary": 3000, "rows": (2,), "guides": (1, 0), "tails": ((1e-3, 50),), "draws": 4096, "drawn": (64, 64)},
    **{"head": (64, 1000), "tokens": (64,), "packed": (256,), "length": 32, "states": (2, 16, 64, 8), "layer": 64},
    **{"pairs": (2,), "copied": 2**22, "square": 256},
)


# ---- how it is measured ----


@dataclass(frozen=True)
class Variant:
    """One way to a case's numbers."""

    run: Callable[[], Any]
    through: str | None = None
    """REWARDLAB_KERNELS while it runs."""
    graph: bool = False
    """Whether a CUDA graph of it is timed as well."""
    counted: bool = False
    """Whether PyTorch sees all it reads and writes."""
    patience: float = 0
    """Seconds that have to be left to begin."""
    error: Callable[[Any], float | None] | None = None
    """Where the case's own does not fit."""
    bytes: int | None = None
    """Likewise the least that is moved."""


class Trial(NamedTuple):
    """The ways to the same numbers, or why there is none, and what they are held against."""

    variants: Mapping[str, Variant | str]
    error: Callable[[Any], float | None]
    """Of what a variant's run returns."""
    bytes: int = 0
    """At least read and written."""
    flops: float = 0
    elements: int = 1
    of: str = "element"


class Case(NamedTuple):
    """Some rows of a table; nothing is on the device before `rows(seconds to spend, end of all)`."""

    table: str
    title: str
    rows: Callable[[float, float], list[Row]]


class Bench:
    """A device with its ceilings."""

    def __init__(self, size: Size, device: str):
        self.size, self.device, self.cuda = size, device, device == "cuda"
        if self.cuda:
            self.flush = torch.empty(FLUSHED, dtype=torch.int8, device=device)
            self.events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.copied, self.multiplied = self._ceilings()

    def milliseconds(self, run: Callable[[], object]) -> float:
        """Of one run, from a cold cache on a GPU."""
        if not self.cuda:
            start = time.perf_counter()
            run()
            return 1000 * (time.perf_counter() - start)
        start, end = self.events
        self.flush.zero_()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    def _ceilings(self) -> tuple[float, float]:
        """Bytes per second of a copy, read and written; FLOP/s of a bfloat16 product."""
        side = self.size.square
        memory = torch.zeros(2, self.size.copied, dtype=torch.int8, device=self.device)
        left, right = torch.randn(2, side, side, device=self.device, dtype=torch.bfloat16)
        runs = [lambda: memory[0].copy_(memory[1]), lambda: left @ right]
        rounds = np.array([[self.milliseconds(run) for run in runs] for _ in range(WARM_UP + REPEATS)])
        copy, product_ = np.median(rounds[WARM_UP:], axis=0) / 1000
        return float(memory.nbytes / copy), float(2 * side**3 / product_)

    def timed(self, make: Callable[[], Trial]) -> Callable[[float, float], list[Row]]:
        """The rows of a case that is made when its turn comes."""
        return lambda seconds, end: timed(make(), self, time.perf_counter() + seconds, end)


@contextmanager
def asked(through: str | None) -> Iterator[None]:
    """REWARDLAB_KERNELS set, or not set."""
    before = os.environ.pop(VARIABLE, None)
    if through is not None:
        os.environ[VARIABLE] = through
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


@contextmanager
def attempt(row: Row) -> Iterator[None]:
    """What goes wrong ends its row and not the whole measurement."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        row["not run"] = "out of memory"
        torch.cuda.empty_cache()
    except Exception as problem:
        row["failed"] = f"{type(problem).__name__}: {problem}".splitlines()[0][:200]


def timed(trial: Trial, bench: Bench, until: float, end: float) -> list[Row]:
    """Every variant's row: each is run a few times first, then they take turns until `until`, at most until `end`."""
    rows: dict[str, Row] = {name: {"way": name} for name in trial.variants}
    turns: Turns = {}
    for name, variant in trial.variants.items():
        if isinstance(variant, str):
            rows[name]["not run"] = variant
        elif time.perf_counter() + variant.patience >= end:
            rows[name]["not run"] = BUDGET
        else:
            with attempt(rows[name]), asked(variant.through):
                rows[name] |= looked_at(variant, trial, bench)
                turns[name, "ms"] = variant.through, variant.run
            if variant.graph and bench.cuda and (name, "ms") in turns:
                with attempt(trouble := {}), asked(variant.through):
                    turns[name, "graph ms"] = None, replay(variant.run)
                rows[name] |= {f"graph {what}": why for what, why in trouble.items()}
    for (name, column), times in in_turn(turns, rows, bench, until, end).items():
        rows[name] |= spread(column, times)
    for name, variant in trial.variants.items():
        if "ms" in rows[name] and isinstance(variant, Variant):
            rows[name] |= fractions(variant, trial, bench, rows[name]["ms"] / 1000)
    return list(rows.values())


Turns = dict[tuple[str, str], tuple[str | None, Callable[[], object]]]
"""Row and column -> REWARDLAB_KERNELS and a run."""


def in_turn(turns: Turns, rows: Mapping[str, Row], bench: Bench, until: float, end: float) -> dict[Any, list[float]]:
    """Milliseconds of every round."""
    rounds: dict[Any, list[float]] = {key: [] for key in turns}
    for number in range(MOST):
        if number and time.perf_counter() >= (end if number < REPEATS else until):
            break
        for (name, column), (through, run) in turns.items():
            with attempt(rows[name]), asked(through):
                rounds[name, column].append(bench.milliseconds(run))
    return {key: times for key, times in rounds.items() if times}


def looked_at(variant: Variant, trial: Trial, bench: Bench) -> Row:
    """Error, bytes, and megabytes above what was there; all that runs before the first timed run."""
    facts: Row = {"error": (variant.error or trial.error)(variant.run())}
    for _ in range(WARM_UP - 1):
        variant.run()
    if variant.counted:
        with Traffic() as traffic:
            variant.run()
        facts[f"bytes per {trial.of}"] = traffic.bytes / trial.elements
    if bench.cuda:
        facts["peak MB"] = peak_of(variant.run, "cuda") / 1e6
    return {name: value for name, value in facts.items() if value is not None}


def replay(run: Callable[[], object]) -> Callable[[], None]:
    """The run as a CUDA graph."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def spread(column: str, times: Sequence[float]) -> Row:
    """The median; of a variant's own runs also p10, p90 and their number."""
    low, middle, high = np.percentile(times, [10, 50, 90]).tolist()
    return {column: middle} | ({"p10": low, "p90": high, "rounds": len(times)} if column == "ms" else {})


def fractions(variant: Variant, trial: Trial, bench: Bench, seconds: float) -> Row:
    """How near the least work in this time is to a bare copy's and a bare product's rate."""
    least = trial.bytes if variant.bytes is None else variant.bytes
    rates = {"of copy": least / bench.copied, "of product": trial.flops / bench.multiplied}
    return {name: ideal / seconds for name, ideal in rates.items() if ideal}


def doors(make: Callable[[], Callable[[], Any]], bench: Bench, name: str = "", **options: Any) -> Row:
    """Our operation by its kernels, by PyTorch, and on a CPU as it is defined."""
    prefix = f"{name}, " if name else ""
    triton = Variant(make(), "triton", **options) if bench.cuda else CUDA_ONLY
    ways = {"triton": triton, "eager": Variant(make(), "eager", counted=True)}
    ways |= {} if bench.cuda else {"reference": Variant(make(), "reference", counted=True)}
    return {prefix + way: variant for way, variant in ways.items()}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile` of it, anew for every case: one function is compiled for a few shapes only."""
    torch.compiler.reset()
    return torch.compile(function, dynamic=False)


def from_package(package: str, variant: Variant, bench: Bench) -> Variant | str:
    """A peer, where its package is installed and runs."""
    if find_spec(package) is None:
        return MISSING
    return variant if bench.cuda or package not in WITHOUT_CPU else CUDA_ONLY


def nbytes(*some: Any) -> int:
    """Of all tensors among them."""
    return sum(one.nbytes for one in some if isinstance(one, Tensor))


def doubled(arguments: Mapping[str, Any]) -> Row:
    """Arguments for the truth: floating point in float64."""
    return {
        name: one.detach().double() if isinstance(one, Tensor) and one.is_floating_point() else one
        for name, one in arguments.items()
    }


def furthest(found: Any, true: Any) -> float:
    """The largest error, by the truth's largest number, of a tensor or of several."""
    if isinstance(found, Tensor):
        return float((found.double() - true).abs().max() / true.abs().max())
    return max(furthest(*pair) for pair in zip(found, true, strict=True))


# ---- A: guided_sample ----


def sampling(bench: Bench) -> Iterator[Case]:
    """Tables A and A2."""
    size = bench.size
    for guides, (cut, limits), rows in product(size.guides, CUTS.items(), size.rows):
        make = partial(sampler, bench, rows, guides, limits)
        yield Case("A", f"N={rows}, {guides} guides, {cut}", bench.timed(make))
        if guides == size.guides[0] and rows == size.rows[0] and "top_p" in limits:
            yield Case("A", f"N={rows}, {guides} guides, {cut}, flat logits", bench.timed(partial(make, flat=True)))
        if guides == size.guides[0] and cut == "nothing cut" and rows == size.rows[-1]:
            yield Case("A2", "the tail", partial(tail, bench))


def sampler(bench: Bench, rows: int, guides: int, limits: Mapping[str, Any], flat: bool = False) -> Trial:
    """The door beside torch.compile and Hugging Face's logits processors."""
    given = logits(bench, rows, guides, flat)
    limit = {name: torch.full((rows,), value, device=bench.device) for name, value in limits.items()}
    row = torch.arange(rows, device=bench.device)
    options = {"temperature": torch.full((rows,), TEMPERATURE, device=bench.device), "seed": row, "position": 7 * row}
    ways = doors(lambda: partial(guided_sample, *given, **options, **limit), bench, graph=True)
    if not bench.cuda:
        ways["torch.compile"] = CUDA_ONLY
    elif guides != bench.size.guides[0]:
        ways["torch.compile"] = f"compiled for {bench.size.guides[0]} guides only"
    else:
        whole = partial(compiled(straightforward), *given, TEMPERATURE, **limits)
        ways["torch.compile"] = Variant(whole, patience=COMPILING)
    processed = Variant(partial(processors, *given, TEMPERATURE, **limits), counted=True)
    ways["Hugging Face"] = from_package("transformers", processed, bench)
    sure = log_distribution(*(one[:8] for one in given), TEMPERATURE, **limits)
    return Trial(ways, partial(said_wrong, sure), nbytes(*given), elements=given[0].numel(), of="logit")


def logits(bench: Bench, rows: int, guides: int, flat: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Base, guides and weights. A normal bulk, above which a thousand tokens fall off as a language model's do,
    18 - 3 log rank; or the bulk alone."""
    generator = torch.Generator(bench.device).manual_seed(0)
    options = {"generator": generator, "device": bench.device}
    number, vocabulary = guides + 1, bench.size.vocabulary
    z = torch.randn(rows, number, vocabulary, dtype=torch.bfloat16, **options).mul_(3 if flat else 2)
    if not flat:
        place = torch.randint(vocabulary, (rows, 1, min(1000, vocabulary // 3)), **options)
        fall = 18 - 3 * torch.arange(1, place.shape[2] + 1, device=bench.device).log()
        above = z.gather(2, place.expand(-1, number, -1)) + fall.to(z.dtype)
        z.scatter_(2, place.expand(-1, number, -1), above)
    weights = torch.tensor([1.0, 0.5, -0.5], device=bench.device)[:guides].repeat(rows, 1)
    return z[:, 0].contiguous(), z[:, 1:].contiguous(), weights


def straightforward(
    base: Tensor, guides: Tensor, weights: Tensor, temperature: float, *, top_k: int = 0, top_p: float = 1,
    min_p: float = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What the door returns, as one would write it for torch.compile: whole rows, noise for every token."""
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
    said = (one.gather(1, token).squeeze(1) for one in (sampled, logp, logp_base))
    return token.squeeze(1), *said, -(p * logp).sum(1), (p * (logp - logp_base)).sum(1)


def processors(
    base: Tensor, guides: Tensor, weights: Tensor, temperature: float, *, top_k: int = 0, top_p: float = 1,
    min_p: float = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Token and log-probability by Hugging Face's processors, which cut some of the tokens that tie."""
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
    """What is to be sampled from, in float64. A cut token keeps the number it would have as one more of those kept: a
    tie with the threshold may fall either way."""
    u = mixed(base.double(), guides, weights.double()) if guides.shape[1] else base.double()
    x = u / temperature
    x = x - x.amax(1, keepdim=True)
    limits = Truncation(*(torch.full_like(x[:, 0], one).to(kind) for one, kind in
                          ((top_k, torch.int64), (top_p, x.dtype), (min_p, x.dtype))))  # fmt: skip
    tau, _ = threshold(x.sort(1, descending=True).values, x, limits)
    return x - x.masked_fill(x < tau[:, None], -torch.inf).logsumexp(1, keepdim=True)


def said_wrong(sure: Tensor, sampled: Sequence[Tensor]) -> float:
    """How far the log-probabilities of the first rows' tokens are from the truth."""
    token, logprob = (one[: len(sure)] for one in sampled[:2])
    return float((sure.gather(1, token[:, None]).squeeze(1) - logprob).abs().max())


def tail(bench: Bench, seconds: float, end: float) -> list[Row]:
    """The tail's tokens are counted in many draws from one distribution in float32 logits."""
    size, begin = bench.size, time.perf_counter()
    probability = torch.tensor([p for p, number in size.tails for _ in range(number)], dtype=torch.float64)
    likely = torch.full((16,), float(1 - probability.sum()) / 16, dtype=torch.float64)
    z = torch.full((1, size.vocabulary), -torch.inf, device=bench.device)
    z[0, : 16 + len(probability)] = torch.cat([likely, probability]).log().to(z)
    at_once = {"triton": size.drawn[0], "eager": size.drawn[1], "multinomial": size.drawn[1]}
    rows: list[Row] = []
    for turn, (way, number) in enumerate(at_once.items(), 1):
        if way == "triton" and not bench.cuda:
            rows.append({"way": way, "not run": CUDA_ONLY})
            continue
        with attempt(row := {"way": way}), asked(None if way == "multinomial" else way):
            rows += tokens_of(z, way, number, size, min(end, begin + turn * seconds / len(at_once)))
        rows += [row] if len(row) > 1 else []
    return rows


def tokens_of(z: Tensor, way: str, number: int, size: Size, until: float) -> list[Row]:
    """A row for each probability of the tail: its share of the draws over what it should be."""
    many, blank = z.expand(number, -1), torch.empty(number, 0, z.shape[1], device=z.device)
    ones, seed = torch.ones(number, device=z.device), torch.zeros(number, dtype=torch.int64, device=z.device)
    counts = torch.zeros(z.shape[1], dtype=torch.int64, device=z.device)
    draws = 0
    while draws < size.draws and (time.perf_counter() < until or not draws):
        if way == "multinomial":
            token = torch.multinomial(many.softmax(1), 1).squeeze(1)
        else:
            position = torch.arange(draws, draws + number, device=z.device)
            noise = {"temperature": ones, "seed": seed, "position": position}
            token = guided_sample(many, blank, blank[:, :, 0], **noise).token
        counts += torch.bincount(token, minlength=len(counts))
        draws += number
    rows, first = [], 16
    for p, tokens in size.tails:
        share, mass = float(counts[first : first + tokens].sum()) / draws, p * tokens
        facts = {"draws": draws, "share by truth": share / mass, "standard error": ((1 - mass) / mass / draws) ** 0.5}
        rows.append({"case": f"{tokens} tokens of p = {p:g}", "way": way} | facts)
        first += tokens
    return rows


# ---- B: the output head ----


class WithoutEntropy(Batch):
    """The same for peers that have no entropy to differentiate."""

    def loss(self, logprob: Tensor, entropy: Any = None, rows: slice = slice(None)) -> Tensor:
        """Of each row."""
        return -self.advantage[rows] * logprob / len(self.advantage)


def output_head(bench: Bench) -> Iterator[Case]:
    """Tables B1, B2 and B3."""
    for place, tokens in enumerate(bench.size.tokens):
        given = cache(partial(inputs, bench, tokens))
        title = "N={}, D={}, V={}".format(tokens, *bench.size.head)
        yield Case("B1", title, bench.timed(partial(scoring, bench, given)))
        if not place:
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


def nothing(_: Any) -> None:
    """The error of a run that answers no question."""


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


# ---- C: packed sequences ----


def sequences(bench: Bench) -> Iterator[Case]:
    """Table C."""
    length = bench.size.length
    for tokens in bench.size.packed:
        lengths = [length] * (tokens // length)
        yield Case("C", f"policy_loss and gradient, {tokens} tokens", bench.timed(partial(losses, bench, lengths)))
        yield Case("C", f"discounted_scan, {tokens} tokens", bench.timed(partial(scans, bench, lengths)))
    for backward in (False, True):
        title = f"feedback_attention, {bench.size.states[0]} rows of {length}{', with gradients' * backward}"
        yield Case("C", title, bench.timed(partial(attention, bench, backward)))


def losses(bench: Bench, lengths: list[int]) -> Trial:
    """PPO with a k3 divergence."""
    case = {"lengths": lengths, "rule": PPO, "beta": 0.1, "kl": "k3"}
    given = policy.example(case, torch.float32, bench.device)

    def run(given: Mapping[str, Any], op: Callable[..., Any] = policy.policy_loss) -> tuple[Tensor, Tensor]:
        leaf = given["logprob"].detach().requires_grad_()
        total = op(**{**given, "logprob": leaf}).total
        return total.detach(), torch.autograd.grad(total, leaf)[0]

    with asked("eager"):
        true = run(doubled(given))
    ways = doors(lambda: partial(run, given), bench, graph=True)
    whole = Variant(partial(run, given, compiled(policy.policy_loss)), "eager", patience=COMPILING)
    ways["torch.compile"] = whole if bench.cuda else CUDA_ONLY
    tokens = sum(lengths)
    least = nbytes(*given.values(), given["logprob"])
    return Trial(ways, partial(furthest, true=true), least, elements=tokens, of="token")


def scans(bench: Bench, lengths: list[int]) -> Trial:
    """As for GAE."""
    given = scan.example({"lengths": lengths, "discount": 0.95}, torch.float32, bench.device)
    true = scan.discounted_scan(**doubled(given))
    ways = doors(lambda: partial(scan.discounted_scan, **given), bench, graph=True)
    ways["torch.compile"] = UNROLLED if bench.cuda else CUDA_ONLY
    return Trial(ways, partial(furthest, true=true), 2 * nbytes(given["x"]), elements=len(given["x"]), of="token")


def attention(bench: Bench, backward: bool) -> Trial:
    """R2M's one query a row, as a whole step or forward alone."""
    rows, D, P, d = bench.size.states
    case = {"lengths": [bench.size.length] * rows, "D": D, "P": P, "d": d}
    given = feedback.example(case, torch.bfloat16, bench.device)
    learned = ["query", "W_q", "W_k", "W_v", "W_o"]

    def run(given: Mapping[str, Any], op: Callable[..., Tensor] = feedback.feedback_attention) -> tuple[Tensor, ...]:
        if not backward:
            return (op(**given),)
        leaves = {name: given[name].detach().requires_grad_() for name in learned}
        return torch.autograd.grad(op(**{**given, **leaves}).sum(), list(leaves.values()))

    with asked("reference"):
        true = run(doubled(given))
    ways = doors(lambda: partial(run, given), bench, graph=not backward)
    whole = Variant(partial(run, given, compiled(padded)), patience=COMPILING)
    ways["torch.compile, padded"] = whole if bench.cuda else CUDA_ONLY
    return Trial(ways, partial(furthest, true=true), nbytes(given["states"]), elements=len(given["states"]), of="token")


def padded(query: Tensor, states: Tensor, bounds: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor) -> Tensor:
    """The same for rows of one length, as one writes it with batched products."""
    h = states.view(len(query), -1, states.shape[1])
    u = (query @ W_q @ W_k.T / W_q.shape[1] ** 0.5)[:, :, None]
    a = (h @ u).float().softmax(1).to(h.dtype)
    return (a.mT @ h).squeeze(1) @ W_v @ W_o


# ---- lora_film ----


def adapters(bench: Bench) -> Iterator[Case]:
    """The table lora."""
    for pairs in bench.size.pairs:
        yield Case("lora", f"N={2 * pairs}, one position", bench.timed(partial(adapted, bench, pairs)))


def adapted(bench: Bench, pairs: int) -> Trial:
    """A decoded token of base rows and as many adapted ones."""
    wide = bench.size.layer
    case = {"N": 2 * pairs, "L": 1, "m": wide, "n": wide, "r": 8, "start": pairs, "kind": "scale"}
    given = lora.example(case, torch.bfloat16, bench.device)
    true = lora.reference(**doubled(given))
    weight = torch.randn(wide, wide, device=bench.device, dtype=torch.bfloat16)
    bare = partial(torch.nn.functional.linear, given["x"], weight)
    ways = {"the layer": Variant(bare, graph=True, counted=True, error=nothing, bytes=nbytes(weight))}

    def fresh() -> Callable[[], Tensor]:
        return partial(lora.lora_film, **{**given, "y": given["y"].clone()})

    ways |= doors(fresh, bench, graph=True)
    if bench.cuda:
        ways["eager"] = Variant(fresh(), "eager", graph=True, counted=True)
    changed = given["y"][pairs:]
    least = nbytes(given["A"], given["B"], given["x"][pairs:], changed, changed)
    return Trial(ways, partial(furthest, true=true), least, elements=changed.numel(), of="output")


# ---- telling ----


TABLES: dict[str, Callable[[Bench], Iterator[Case]]] = {
    "A": sampling,
    "B": output_head,
    "C": sequences,
    "lora": adapters,
}
"""Their cases, the most telling first."""


def measure(size: Size, device: str, budget: float, tables: Sequence[str] = tuple(TABLES)) -> Iterator[dict[str, Any]]:
    """What is known after each case, and where it ran. `budget` in seconds, of which every table gets its share."""
    from .decoding import machine  # which loads much

    place = machine(device)
    for module in LOADED:
        with attempt({}):
            import_module(module)
    place["versions"] |= {name: version_of(name) for name in PEERS if find_spec(name) is not None}
    begin = time.perf_counter()
    end = begin + 0.95 * budget
    torch.manual_seed(0)
    bench = Bench(size, device)
    found: dict[str, Any] = {"machine": place, "size": asdict(size), "budget": budget, "tables": {}}
    found |= {"copy GB/s": bench.copied / 1e9, "product TFLOP/s": bench.multiplied / 1e12}
    for number, name in enumerate(tables):
        cases = list(TABLES[name](bench))
        until = time.perf_counter() + (end - time.perf_counter()) / (len(tables) - number)
        for done, case in enumerate(cases):
            left = until - time.perf_counter()
            rows = rows_of(case, left / (len(cases) - done), until)
            found["tables"].setdefault(case.table, []).extend({"case": case.title} | row for row in rows)
            found["seconds"] = time.perf_counter() - begin
            yield found


def version_of(package: str) -> str:
    """Of an importable package, which may have come under another name."""
    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:
        return "unknown"


def rows_of(case: Case, seconds: float, until: float) -> list[Row]:
    """The case's rows, or one that says why there are none."""
    if seconds <= 0:
        return [{"way": "all", "not run": BUDGET}]
    rows: list[Row] = []
    with attempt(row := {"way": "all"}):
        rows = case.rows(seconds, until)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return rows if len(row) == 1 else [row]


def failures(found: Mapping[str, Any]) -> list[str]:
    """What was tried and went wrong, or gave something that is no number."""
    wrong = []
    for table, rows in found["tables"].items():
        for row in rows:
            reasons = [row[what] for what in REASONS if "failed" in what and what in row]
            reasons += ["its error is no number"] if math.isnan(row.get("error", 0)) else []
            wrong += [f"{table}, {row['case']}, {row['way']}: {reason}" for reason in reasons]
    return wrong


def markdown(found: Mapping[str, Any]) -> str:
    """Every table, below where it was measured."""
    place = found["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in place["versions"].items())
    ceilings = f"copy {found['copy GB/s']:.0f} GB/s, bfloat16 product {found['product TFLOP/s']:.3g} TFLOP/s"
    lines = [f"{place['device']}; {ceilings}; {versions}; commit {place['commit']}; {place['date']}", ""]
    for name, rows in found["tables"].items():
        columns = columns_of(rows)
        lines += [TITLES[name], "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        lines += ["| " + " | ".join(cells(row, columns)) + " |" for row in rows] + [""]
    return "\n".join(lines)


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Case, way, and every number that some row has; one at least, where there is none."""
    known = dict.fromkeys(key for row in rows for key in row if key not in REASONS)
    found = sorted(known, key=lambda one: COLUMNS.index(one) if one in COLUMNS else len(COLUMNS))
    return found if len(found) > 2 else [*found, "ms"]


def cells(row: Row, columns: Sequence[str]) -> list[str]:
    """A row as text; why it was not run stands in place of its first number."""
    reason = [f"{what} ({row[what]})" for what in ("not run", "failed") if what in row]
    if reason:
        return [row["case"], row["way"], *reason, *[""] * (len(columns) - 3)]
    return [_cell(name, row.get(name, "–")) for name in columns]


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1e}" if "error" in name or "below" in name else f"{value:.4g}"


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> int:
    """Measure, print the tables; all that is known is written to `--output` after every case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--budget", type=float, default=600, help="seconds")
    parser.add_argument("--tables", default=",".join(TABLES), help=f"some of {','.join(TABLES)}")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args(arguments)
    tables = options.tables.split(",")
    if unknown := [name for name in tables if name not in TABLES]:
        parser.error(f"--tables: there is no table {unknown[0]!r}; choose some of {','.join(TABLES)}")
    found: dict[str, Any] = {}
    for found in measure(
        size or (Size() if options.device == "cuda" else TINY), options.device, options.budget, tables
    ):
        if options.output is not None:
            options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(markdown(found))
    print("\n".join(failures(found)), file=sys.stderr)
    return 5 if failures(found) else 0


if __name__ == "__main__":
    sys.exit(main())
