"""Asynchronous rewards of single completions, from the scoring server or a judge. Concurrent calls are batched."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ....rm.data.conversation_split import as_prompt
from ....rm.errors import DataError, UsageError
from ....rm.types import Example
from ...rewards.judge import judge
from ...serving.client import ScoringClient

URL, TOKEN = "REWARDLAB_URL", "REWARDLAB_TOKEN"
Rewards = Callable[[Sequence[Example]], Sequence[float | None]]


class BatchedReward:
    """Asynchronous reward of one completion. Calls that arrive during a request are batched into the next request.

    Returns None where the reward is missing: a completion that is too long, or a judge's abstention.
    """

    def __init__(self, rewards: Rewards):
        self.rewards = rewards
        self._waiting: list[tuple[Example, asyncio.Future[float | None]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def __call__(self, prompt: Any, completion: str) -> float | None:
        """Return the reward of a completion to a prompt, which is a text or a list of messages."""
        future: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((Example(as_prompt(prompt), completion), future))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        return await future

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                rewards = await asyncio.to_thread(self.rewards, [example for example, _ in batch])
            except Exception as error:  # every caller gets the reason, and later calls are tried again
                for _, future in batch:
                    _settle(future, error)
            else:
                for (_, future), reward in zip(batch, rewards, strict=True):
                    _settle(future, reward)


def _settle(future: asyncio.Future, result: float | Exception | None) -> None:
    if future.done():  # its caller was cancelled
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


@cache
def served_rewards(url: str | None = None, objective: str | None = None, truncate: bool = False) -> Rewards:
    """Return the rewards of `rewardlab serve` at `url`, by default REWARDLAB_URL. Each process has one client.

    The token is read from REWARDLAB_TOKEN. With `truncate`, completions that are too long are truncated as the
    scoring contract says. Without it, their reward is missing.
    """
    address = url or os.environ.get(URL)
    if not address:
        raise UsageError(f"no scoring server is named: give url, or set {URL} to the address of rewardlab serve")
    client = ScoringClient(address, os.environ.get(TOKEN), truncate=truncate)
    reward = client.as_reward(objective)

    def rewards(examples: Sequence[Example]) -> Sequence[float | None]:
        return reward([list(example.prompt) for example in examples], [example.completion for example in examples])

    return rewards


def judged_rewards(**settings: Any) -> Rewards:
    """Return rewards from a judge. `settings` are those of the reward `judge(...)`: endpoint, model, kind and so on."""
    return judge(run=None, **settings)


def require_reward(reward: float | None, missing: float | None) -> float:
    """Return the reward, or `missing` if the reward is None. Raise `DataError` if both are None."""
    if reward is not None:
        return reward
    if missing is None:
        raise DataError(
            "a completion has no reward (too long for the model, not finite, or an abstention), and this library "
            "requires a number; set missing to a number, or truncate"
        )
    return missing
