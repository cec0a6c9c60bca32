"""Queue of conversations, and the thread that scores them in batches of similar length."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple

import numpy as np
import torch

from ...rm.backbones.tokenization import pad
from ...rm.errors import DataError, UsageError
from ...rm.types import RewardModel, ScoresSteps
from .refusals import Refused
from .requests import Item

NEWEST = 0.3
"""Weight of the last batch in the moving average of the scoring speed."""
WINDOW = 1024
"""Maximum number of queued items among which a batch is selected."""
FLOOR = 32
"""Lengths up to this many tokens count as equal."""


class Batch(NamedTuple):
    """Statistics of a scored batch, for the metrics."""

    items: int
    tokens: int
    seconds: float


class Waiting(NamedTuple):
    """A queued item, and its index in its request."""

    item: Item
    job: "Job"
    index: int


class Job:
    """Items of a request, and a future for its result.

    The result is the rewards [N, K], the outputs [L, K] of each token sequence, or an error.
    """

    def __init__(self, items: Sequence[Item], objectives: int):
        self.items = items
        self.rewards: list[Any] = [np.full(objectives, np.nan)] * len(items)
        self.remaining = len(items)
        self.future: Future[Any] = Future()

    def settle(self, index: int, outcome: np.ndarray | Exception) -> None:
        """Record the result of an item. The last result or the first error completes the request."""
        self.remaining -= 1
        try:
            if isinstance(outcome, Exception):
                self.future.set_exception(refusal_of(index, outcome))
            else:
                self.rewards[index] = outcome
                if not self.remaining:
                    by_token = outcome.ndim == 2
                    self.future.set_result(self.rewards if by_token else np.array(self.rewards))
        except InvalidStateError:
            pass  # the request gave up, or has failed already


class RequestQueue:
    """Queue of requests from any thread, and one thread that scores them in batches.

    A new request is accepted while fewer than `limit` tokens are queued. The size of the new request is not included,
    since large requests would otherwise be refused whenever small requests are queued.
    """

    def __init__(
        self, model: RewardModel, *, batch_tokens: int, limit: int, on_batch: Callable[[Batch], Any] = lambda _: None
    ):
        self.model, self.batch_tokens, self.limit, self.on_batch = model, batch_tokens, limit, on_batch
        self.draining = False
        self._waiting: list[Waiting] = []
        self._changed = threading.Condition()
        self._closed = False
        self._speed: float | None = None
        self._thread = threading.Thread(target=self._work, name="scoring", daemon=True)
        self._thread.start()

    def enter(self, items: Sequence[Item]) -> "Future[Any]":
        """Enqueue the items of a request. If the queue is full, raise `Refused` 429 with the estimated waiting time."""
        job = Job(items, len(self.model.contract.objectives))
        if not items:
            job.future.set_result(np.empty((0, len(self.model.contract.objectives))))
            return job.future
        with self._changed:
            if self._closed:
                raise Refused(503, "this server is stopping", retry_after=1.0)
            if self._queued_tokens() >= self.limit:
                self._drop_finished()
            if (waiting := self._queued_tokens()) >= self.limit:
                raise Refused(429, f"{waiting} tokens wait already", retry_after=self._estimated_seconds(waiting))
            self._waiting += [Waiting(item, job, index) for index, item in enumerate(items)]
            self._changed.notify()
        return job.future

    def wait_seconds(self) -> float:
        """Estimated seconds to score all queued items at the measured speed."""
        with self._changed:
            return self._estimated_seconds(self._queued_tokens())

    @property
    def depth(self) -> int:
        """Number of queued items."""
        return len(self._waiting)

    @property
    def tokens(self) -> int:
        """Number of queued tokens."""
        with self._changed:
            return self._queued_tokens()

    def close(self) -> None:
        """Stop scoring. Queued requests get an error."""
        with self._changed:
            self._closed, waiting, self._waiting = True, self._waiting, []
            self._changed.notify()
        for waiting_item in waiting:
            waiting_item.job.settle(waiting_item.index, Refused(503, "this server is stopping", retry_after=1.0))

    def _queued_tokens(self) -> int:
        return sum(waiting_item.item.cost for waiting_item in self._waiting)

    def _estimated_seconds(self, cost: int) -> float:
        return cost / self._speed if self._speed else 1.0

    def _work(self) -> None:
        """Score batches until the queue is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                batch = self._take_batch()
            if batch:
                self._score(batch)

    def _drop_finished(self) -> None:
        """Drop the items of completed or cancelled requests."""
        self._waiting = [waiting for waiting in self._waiting if not waiting.job.future.done()]

    def _take_batch(self) -> list[Waiting]:
        """Remove and return the next batch."""
        self._drop_finished()
        chosen = {*similar_lengths([waiting.item.cost for waiting in self._waiting[:WINDOW]], self.batch_tokens)}
        batch = [self._waiting[index] for index in sorted(chosen)]
        self._waiting = [waiting_item for index, waiting_item in enumerate(self._waiting) if index not in chosen]
        return batch

    def _score(self, batch: Sequence[Waiting]) -> None:
        started = time.perf_counter()
        results = outcomes(self.model, [waiting_item.item for waiting_item in batch])
        seconds, tokens = time.perf_counter() - started, sum(waiting_item.item.cost for waiting_item in batch)
        with self._changed:
            speed = tokens / max(seconds, 1e-6)
            self._speed = speed if self._speed is None else NEWEST * speed + (1 - NEWEST) * self._speed
        self.on_batch(Batch(len(batch), tokens, seconds))
        for scored_item, outcome in zip(batch, results, strict=True):
            scored_item.job.settle(scored_item.index, outcome)


def similar_lengths(lengths: Sequence[int], batch_tokens: int) -> list[int]:
    """Return the indices of a batch: the oldest item and the items nearest in length, within a factor of two.

    The padded size of the batch (rows times the longest length) is at most `batch_tokens`, unless it has a single row.

    >>> similar_lengths([100, 4000, 90, 110, 260], 330)
    [0, 2, 3]
    """
    if not lengths:
        return []
    first, chosen, longest = max(lengths[0], FLOOR), [0], lengths[0]
    near = [index for index in range(1, len(lengths)) if first / 2 <= max(lengths[index], FLOOR) <= 2 * first]
    for candidate in sorted(near, key=lambda index: (abs(lengths[index] - lengths[0]), index)):
        longest = max(longest, lengths[candidate])
        if (len(chosen) + 1) * longest > batch_tokens:
            break
        chosen.append(candidate)
    return chosen


def outcomes(model: RewardModel, items: Sequence[Item]) -> list[np.ndarray | Exception]:
    """Return rewards [K] of each item, or outputs [L, K] of its tokens. If the batch fails, score items one by one."""
    try:
        results: list[Any] = [None] * len(items)
        for scored, kind in ((model.rate, tuple), (lambda rows: rate_ids(model, rows), list)):
            indices = [index for index, item in enumerate(items) if isinstance(item.content, kind)]
            rewards = scored([items[position].content for position in indices]) if indices else []
            for index, reward in zip(indices, rewards, strict=True):
                results[index] = reward
        return results
    except Exception as error:
        if len(items) == 1:
            return [error]
        return [outcome for item in items for outcome in outcomes(model, [item])]


def rate_ids(model: Any, rows: Sequence[list[int]]) -> Any:
    """Return rewards [N, K] of token sequences, or for process reward models the outputs [L, K] of each sequence."""
    if isinstance(model, ScoresSteps):
        return model.token_logits(rows)
    batch, device = pad(rows), next(model.model.parameters()).device
    model.model.eval()
    with torch.inference_mode():
        return model.score(batch.tokens.to(device), batch.attention.to(device)).double().cpu().numpy()


def refusal_of(index: int, error: Exception) -> Refused:
    """Return the error response of an item that could not be scored: a client error or a model error."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, DataError | UsageError):
        return Refused(422, f"conversation {index}: {str(error)[:300]}")
    return Refused(500, f"conversation {index}: the model failed with {type(error).__name__}")
