"""Steps of one batch: forward passes, sampler and log."""

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ....kernels.dispatch import way, wide
from ....kernels.guided_sampler import guided_sampler
from ..requests import FACTS, Request
from .session import Logits, Session

GRAPH_FROM = 32  # tokens: for fewer a graph is not worth its capture


class Steps:
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
        logits = self.session.start()
        rows, guides = logits.guides.shape[:2]
        facts = len(FACTS) + (guides if self.guide_logprobs else 0)
        dtype = wide(logits.base.dtype)
        self.facts = torch.zeros(rows, self.steps, facts, dtype=dtype, device=logits.base.device)
        if self.session.is_static and way(logits.base) == "triton" and logits.base.is_cuda and self.steps >= GRAPH_FROM:
            self._graphed = GraphedStep(self._step, logits.base.device)
        self._sample(logits)

    def _step(self) -> None:
        self._sample(self.session.step(self.token))

    def _sample(self, logits: Logits) -> None:
        """Sample a token for every row and log it."""
        sampled = guided_sampler(
            logits.base, logits.guides, self.session.weights, position=self.position, **self.sampling
        )
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
            graph = self._graphs[key] or self._captured()
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

    def _captured(self) -> torch.cuda.CUDAGraph:
        """Capture the step as a CUDA graph, without running it."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            self._step()
        return graph
