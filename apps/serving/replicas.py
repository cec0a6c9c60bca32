"""Client of several replicas of a served reward model: requests of a failed replica go to another."""

import math
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np

from ...rm.contract.readings import Rated, Reading
from ...rm.errors import CheckFailed, DataError, UsageError
from ...rm.io.server_rotation import Rotation, addresses, check_address
from ...rm.types import Example
from .bodies import EACH, body, requests, rewards_of, rows
from .client import Busy, ScoringClient, located
from .settings import TOKEN


class Replicas:
    """Several servers of one model as a single reward model.

    Requests rotate over the available replicas, with at most `in_flight` concurrent requests per replica. A replica
    that is full (429), shuts down (503) or does not respond pauses for an increasing time, at least the delay
    that it specifies; its request goes to another replica. If no replica is available, a request waits for at most
    `patience` seconds. Raise `CheckFailed` if a replica has another scoring contract. Replicas that are unavailable at
    the start are tried again later.
    """

    def __init__(
        self,
        urls: Sequence[str],
        token: str | None = None,
        *,
        in_flight: int = 2,
        truncate: bool = True,
        patience: float = 120.0,
        timeout: float = 120.0,
        connect: Any = ScoringClient,
    ):
        for url in urls:
            check_address(url, "a server's address", key=TOKEN)
        if in_flight < 1:
            raise UsageError(f"in_flight must be at least 1, got {in_flight}")
        self.urls, self.in_flight, self.truncate, self.patience = list(urls), in_flight, truncate, patience
        self._connect = lambda url: connect(url, token, truncate=truncate, timeout=timeout)
        self.rotation, self.lock = Rotation(len(self.urls)), Lock()
        self.clients: dict[int, ScoringClient] = {}
        self.limits: dict[str, int] = {}
        replicas = [self._opened(index) for index in range(len(self.urls))]
        if not self.clients:
            raise UsageError(next(replica.reason for replica in replicas if isinstance(replica, Busy)))
        first = next(iter(self.clients.values()))
        self.contract = first.contract
        self.limits = {name: min(client.limits[name] for client in self.clients.values()) for name in first.limits}

    def __enter__(self) -> "Replicas":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for client in self.clients.values():
            client.close()

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return rewards [N, K] in float64. NaN where the model has no finite score."""
        return self.rated(examples).rewards

    def rated(self, examples: Sequence[Example]) -> Rated:
        """Return the rewards of `rate`, and the `Reading` of each conversation: the part that the model read."""
        readings = [Reading(truncated=False)] * len(examples)
        rewards = np.full((len(examples), len(self.contract.objectives)), np.nan)
        bodies = rows(examples, self.contract)
        each = min(EACH, math.ceil(len(bodies) / len(self.urls)))
        parts = list(requests([len(row) for row in bodies], self.limits, each))

        def rate_part(indices: list[int]) -> np.ndarray:
            try:
                answer = self._send_to_replica(body([bodies[index] for index in indices], truncate=self.truncate))
            except DataError as error:
                raise located(error, indices) from error
            for index, result in zip(indices, answer["results"], strict=True):
                readings[index] = Reading(bool(result.get("truncated")), str(result.get("omitted") or ""))
            return rewards_of(answer, self.contract.objectives)

        if parts:
            pool = ThreadPoolExecutor(min(len(parts), self.in_flight * len(self.urls)))
            try:
                for indices, values in zip(parts, pool.map(rate_part, parts), strict=True):
                    rewards[indices] = values
            finally:
                pool.shutdown(cancel_futures=True)
        return Rated(rewards, readings)

    # ---- one request ----

    def _send_to_replica(self, content: bytes) -> dict[str, Any]:
        until, tried = time.monotonic() + self.patience, set[int]()
        while True:
            with self.lock:
                index = self.rotation.choose(time.monotonic(), but=tried)
            since, client = time.monotonic(), self._opened(index)
            outcome = client if isinstance(client, Busy) else client.once(content)
            with self.lock:
                now = time.monotonic()
                if not isinstance(outcome, Busy):
                    self.rotation.succeeded(index)
                    return outcome
                self.rotation.failed(index, now, pause=outcome.delay, since=since)
                tried.add(index)
                if self.rotation.available(now, but=tried):
                    continue
                wait = self.rotation.wait(now) * random.uniform(1.0, 1.5)
            tried = set()
            if now + wait > until:
                raise UsageError(
                    f"none of {', '.join(self.urls)} answers for {self.patience:g} s; last reason: {outcome.reason}; "
                    "raise patience, or add servers"
                )
            time.sleep(wait)

    def _opened(self, index: int) -> ScoringClient | Busy:
        """Open a client for one replica, and check that its scoring contract equals that of the others.

        Return `Busy` if the replica does not respond.
        """
        if index in self.clients:
            return self.clients[index]
        try:
            connected = self._connect(self.urls[index])
        except UsageError as error:
            return Busy(0.0, str(error))
        for other in [*self.clients.values()]:
            if (ours := connected.contract.hash()) != (theirs := other.contract.hash()):
                raise CheckFailed(
                    f"{connected.url} scores under contract {ours}, and {other.url} under {theirs}; their scores "
                    "cannot be compared, serve one model on both"
                )
        if small := [name for name, most in self.limits.items() if connected.limits[name] < most]:
            raise UsageError(
                f"{connected.url} has a lower --{small[0]} than the others; start all servers with the same limits"
            )
        self.clients[index] = connected
        return connected


def open_replicas(urls: str | Sequence[str], what: str = "urls", **settings: Any) -> Replicas:
    """Open clients for the servers at `urls`, with the token from the environment variable REWARDLAB_TOKEN."""
    return Replicas(addresses(urls, what), os.environ.get(TOKEN) or None, **settings)
