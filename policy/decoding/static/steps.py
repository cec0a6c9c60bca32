"""Session of one batch, which returns the logits of base and guides, and its steps: forward, sampling, logging."""

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ....kernels.dispatch import backend_of, wide
from ....kernels.guided_sampler import guided_sampler
from ....rm.backbones.forward_hooks import cache_argument
from ....rm.errors import UsageError
from ..requests import FACTS, Annealing, Request
from .forward import Forward, fast_linear, one_token_attention

_busy: WeakSet[nn.Module] = WeakSet()


class Logits(NamedTuple):
    """Next-token logits of every row, for the base model and the guides with a non-zero weight in the batch."""

    base: Float[Tensor, "N V"]
    guides: Float[Tensor, "N G V"]


@dataclass
class Counters:
    """Numbers of forward passes and positions that an engine has computed since its creation."""

    forwards: int = 0
    """Forward passes."""
    base: int = 0
    """Forward passes with logits of the base model."""
    guide: int = 0
    """Forward passes of guides: two guides count 2 per token."""
    row_tokens: int = 0
    """Computed positions over all rows, including padding."""


class SessionModel(NamedTuple):
    """A model of a session, and whether it returns the logits of the base model, of guides or of both."""

    forward: Forward
    base: int
    """1 if the first rows of this model belong to the base model, else 0."""
    guides: int
    """Number of guides whose logits each forward pass returns."""


class Session:
    """The forward passes of one batch. The first of the `parts` includes the base model."""

    def __init__(
        self,
        parts: Sequence[SessionModel],
        weights: Float[Tensor, "N G"],
        used: Sequence[int],
        prompt_tokens: Sequence[int],
        capacity: Sequence[int],
        vocabulary: int,
        counters: Counters,
    ):
        self.weights = weights.to(parts[0].forward.model.device)
        """Weights of the guides in use."""
        self.weighted = (weights != 0).tolist()
        """Whether row n uses guide g, as nested lists [N][G]."""
        self.used = used
        """Indices of the used guides in the engine's list of guides."""
        self.prompt_tokens = prompt_tokens
        self.room = capacity
        """Number of tokens that fit into each row's context."""
        self._parts, self._vocabulary, self._counters = parts, vocabulary, counters

    @property
    def is_static(self) -> bool:
        """Whether a step is a function of tensors on one device, with shapes that the result of `grow` determines."""
        devices = {part.forward.model.device for part in self._parts}
        return len(devices) == 1 and all(part.forward.is_static for part in self._parts)

    def start(self) -> Logits:
        """Return the logits after the prompts."""
        logits = self._logits([part.forward.start() for part in self._parts])
        for part in self._parts:
            self._count_pass(part, part.forward.width)
        return logits

    def grow(self) -> tuple[int, ...]:
        """Count one more step; return the number of slots that this step reads in each model."""
        for part in self._parts:
            self._count_pass(part, 1)
        return tuple(part.forward.grow() for part in self._parts)

    def step(self, tokens: Int[Tensor, " N"]) -> Logits:
        """Return the logits after one more token, for which `grow` has counted a slot. May be repeated."""
        logits = [part.forward.step(tokens) for part in self._parts]
        for part in self._parts:
            part.forward.advance()
        return self._logits(logits)

    def _logits(self, logits: Sequence[Float[Tensor, "M V"]]) -> Logits:
        """Split the logits by base model and guides. The logits of a single guide are a view."""
        rows = [part for block in logits for part in block[:, : self._vocabulary].split(len(self.weights))]
        base, guides = rows[0], rows[1:]
        if len(guides) == 1:
            return Logits(base, guides[0][:, None])
        return Logits(base, torch.stack(guides, 1) if guides else base[:, None][:, :0])

    def _count_pass(self, part: SessionModel, positions: int) -> None:
        self._counters.forwards += 1
        self._counters.base += part.base
        self._counters.guide += part.guides
        self._counters.row_tokens += part.forward.rows * positions


@contextmanager
def exclusively(models: Sequence[nn.Module]) -> Iterator[None]:
    """Reserve models for one session, because adapters replace their layers during a session."""
    if len({*models}) < len(models):
        raise UsageError("base and guide are the same model; use SharedBackbone for an adapter on its base")
    for model in models:
        if not cache_argument(model):
            raise UsageError(f"{type(model).__name__} takes no key-value cache; decoding needs a model that does")
    if any(model in _busy for model in models):
        raise UsageError("the model is decoding another batch; finish or close that one first")
    _busy.update(models)
    try:
        for model in models:
            model.eval()
        with one_token_attention(models), fast_linear(models):
            yield
    finally:
        _busy.difference_update(models)


GRAPH_FROM = 32  # tokens: for fewer a graph is not worth its capture


class DecodingSteps:
    """The tokens of one batch and their statistics, on the device, one column for each step.

    A step reads and changes only tensors, so that a replay of its operations is the next step. `token` [N] is the last
    sampled token, `column` [1] the next column of the log, and `position` [N] the index of the sampler's random
    numbers.
    """

    def __init__(self, session: Session, requests: Sequence[Request], steps: int, *, guide_logprobs: bool = True):
        self.session, self.steps, self.done = session, steps, 0
        self.guide_logprobs = guide_logprobs
        device, rows = session.weights.device, len(requests)
        self.sampling = sampling_parameters(requests, device)
        self.annealing = shared_annealing(requests)
        self.token = torch.zeros(rows, dtype=torch.long, device=device)
        self.column = torch.zeros(1, dtype=torch.long, device=device)
        self.position = torch.tensor([len(request.prefix) for request in requests], device=device)
        self.tokens = torch.zeros(rows, steps, dtype=torch.long, device=device)
        """Sampled tokens [N, T]."""
        self.facts: Float[Tensor, "N T F"] = torch.empty(0)
        """Statistics by `FACTS`, then the guides' log-probabilities; in nats."""
        self._graphed: GraphedStep | None = None

    def advance(self, number: int) -> None:
        """Make `number` steps without waiting for the device."""
        for _ in range(number):
            if self.done == 0:
                self._start()
            else:
                slots = self.session.grow()
                self._step() if self._graphed is None else self._graphed.run(slots)
            self.done += 1

    def _start(self) -> None:
        """Run the forward passes of the prompts and sample the first tokens."""
        logits = self.session.start()
        base, (rows, guides) = logits.base, logits.guides.shape[:2]
        facts = len(FACTS) + (guides if self.guide_logprobs else 0)
        self.facts = torch.zeros(rows, self.steps, facts, dtype=wide(base.dtype), device=base.device)
        if self.session.is_static and base.is_cuda and backend_of(base) == "triton" and self.steps >= GRAPH_FROM:
            self._graphed = GraphedStep(self._step, base.device)
        self._sample(logits)

    def _step(self) -> None:
        """Run the forward passes of the last tokens and sample the next tokens."""
        self._sample(self.session.step(self.token))

    def _sample(self, logits: Logits) -> None:
        """Sample a token for every row and log it."""
        sampling = self.sampling
        if self.annealing and sampling["temperature"] is not None:
            sampling = {**sampling, "temperature": sampling["temperature"] * self.annealing.factors(self.position)}
        sampled = guided_sampler(logits.base, logits.guides, self.session.weights, position=self.position, **sampling)
        values = torch.stack([sampled.base, sampled.guided, sampled.logprob, sampled.entropy, sampled.kl], 1)
        if self.guide_logprobs and logits.guides.shape[1]:
            guides = token_logprobs(logits.guides.to(self.facts.dtype), sampled.token)
            values = torch.cat([values, guides], 1)
        self.token.copy_(sampled.token)
        self.tokens.index_copy_(1, self.column, sampled.token[:, None])
        self.facts.index_copy_(1, self.column, values[:, None].to(self.facts.dtype))
        self.column.add_(1)
        self.position.add_(1)


def sampling_parameters(requests: Sequence[Request], device: torch.device) -> dict[str, Any]:
    """Return the parameters of `guided_sampler` by row. A parameter is None if it is disabled in all rows."""

    def row_values(values: Sequence[float], off: float, dtype: torch.dtype) -> Tensor | None:
        return None if {*values} == {off} else torch.tensor(values, dtype=dtype, device=device)

    return {
        "temperature": row_values([request.temperature for request in requests], 0, torch.float32),
        "top_k": row_values([request.top_k for request in requests], 0, torch.long),
        "top_p": row_values([request.top_p for request in requests], 1, torch.float64),
        "min_p": row_values([request.min_p for request in requests], 0, torch.float64),
        "seed": torch.tensor([request.seed for request in requests], device=device),
    }


def shared_annealing(requests: Sequence[Request]) -> Annealing | None:
    """Return the temperature schedule of all requests. Raise `UsageError` if they differ."""
    schedules = {request.annealing for request in requests}
    if len(schedules) > 1:
        raise UsageError("requests of a batch must have the same temperature annealing; decode them separately")
    return next(iter(schedules), None)


def token_logprobs(logits: Float[Tensor, "N G V"], token: Int[Tensor, " N"]) -> Float[Tensor, "N G"]:
    """Return every guide's log-probability of the token, in nats."""
    chosen = token[:, None, None].expand(-1, logits.shape[1], 1)
    return logits.gather(2, chosen).squeeze(2) - logits.logsumexp(2)


# ---- CUDA graphs ----


class GraphedStep:
    """A step as a CUDA graph, captured once per key. The key identifies the shapes of the tensors.

    The first step of a key runs without a graph on a side stream, to compile kernels and allocate memory. The second
    step is captured; later steps replay it. A model that waits for the device in its forward pass cannot be captured;
    the first step detects this, and decoding continues without graphs. All tensors are on `device`, which need not be
    the current device.
    """

    def __init__(self, step: Callable[[], None], device: torch.device):
        self._step, self._device = step, device
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)
        self._is_capturable = True

    def run(self, key: Hashable) -> None:
        """Make one step."""
        with torch.cuda.device(self._device):  # a capture follows the current device's stream alone
            self._run(key)

    def _run(self, key: Hashable) -> None:
        if not self._is_capturable:
            self._step()
        elif key not in self._graphs:
            self._warm_up()
            self._graphs[key] = None
        else:
            graph = self._graphs[key] or self._capture()
            self._graphs[key] = graph
            graph.replay()

    def _warm_up(self) -> None:
        """Run the step on a side stream, and detect operations that wait for the device, before any state changes."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            mode = torch.cuda.get_sync_debug_mode()
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
                    torch.cuda.set_sync_debug_mode("error")
                self._step()
            except RuntimeError as error:
                if "synchronizing" not in str(error):
                    raise
                self._is_capturable = False
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        torch.cuda.current_stream().wait_stream(self._stream)
        if not self._is_capturable:
            warnings.warn(
                "the model waits for the GPU in its forward pass; decoding without a CUDA graph", stacklevel=2
            )
            self._step()

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Capture the step as a CUDA graph, without running it."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            self._step()
        return graph
