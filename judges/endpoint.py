"""A model behind any server that speaks OpenAI's chat protocol: hosted, or `vllm serve` on this machine."""

import asyncio
import math
import os
import random
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from ..rm.errors import UsageError
from ..rm.types import content_hash
from .background import in_thread
from .chat import Arrived, Ask, Reply, failed
from .cost import FREE, Bill, Prices, prompt_tokens
from .pacing import Pace, backoff
from .wire import CONSTRAINT, LIMIT, NEWER_LIMIT, Trouble, read_reply, request, schema_name, shortened, trouble

OPENAI = "https://api.openai.com/v1"
LOST_IN_A_ROW = 16


@dataclass(eq=False)
class Endpoint:
    """A chat with a server.

    Up to `concurrency` requests are in flight. What may pass (429, 5xx, timeouts, lost connections, bodies that are no
    JSON) is tried again, and never before the server's Retry-After; other refusals are not. A wrong key or model, and
    many failures in a row, end the call: what is left gets the same error without being asked.
    """

    model: str
    base_url: str = OPENAI
    _: KW_ONLY
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that has the API key, read when asking; a server on this machine needs none."""
    concurrency: int = 16
    timeout: float = 120.0
    """Seconds for one attempt."""
    retries: int = 6
    first_wait: float = 0.5
    """Seconds; the longest wait before attempt k is first_wait · 2^k, and a wait is drawn evenly from 0 to that."""
    longest_wait: float = 60.0
    """Seconds; a server that asks to be left alone for longer is not asked again."""
    requests_per_minute: float = math.inf
    tokens_per_minute: float = math.inf
    """Of prompt and reply together; a reply counts as its limit until it is there."""
    prices: Prices = FREE
    max_cost: float | None = None
    """No request starts once so much is spent; what is in flight then is still paid."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request, such as top_p; None leaves out one that we send, such as temperature."""
    name: str = ""
    """What replies are kept under: model, server and options, unless it is given."""
    bill: Bill = field(init=False, repr=False)

    def __post_init__(self):
        self._check()
        options = [content_hash(dict(self.options))] if self.options else []
        self.name = self.name or " ".join([self.model, "at", self.base_url, *options])
        self.bill = Bill(self.prices, self.max_cost)
        self._requests, self._tokens = Pace(self.requests_per_minute), Pace(self.tokens_per_minute)
        self._unconstrained: set[str] = set()
        self._limit = LIMIT
        self._notes: dict[str, bool] = {}

    def _check(self) -> None:
        address = urlsplit(self.base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise UsageError(f"base_url is an address such as {OPENAI}, got '{self.base_url}'")
        if address.username or address.password or address.query:
            raise UsageError(
                f"the address of {address.hostname} has a user, a password or a query in it; put the key into the "
                f"environment variable {self.key_variable} instead"
            )
        for name, holds, allowed in (
            ("concurrency", self.concurrency >= 1, "1 or more"),
            ("retries", self.retries >= 0, "0 or more"),
            ("timeout", self.timeout > 0, "a number of seconds > 0"),
            ("first_wait", self.first_wait >= 0, "a number of seconds >= 0"),
            ("requests_per_minute", self.requests_per_minute > 0, "a number > 0"),
            ("tokens_per_minute", self.tokens_per_minute > 0, "a number > 0"),
        ):
            if not holds:
                raise UsageError(f"{name} is {allowed}, got {getattr(self, name)!r}")

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`."""
        replies: dict[int, Reply] = {}
        if asks:
            work = partial(_Call(self, self._client()).work, asks)
            with closing(in_thread(work)) as items:
                for place, reply in items:
                    replies[place] = reply
                    self._tell()
                    if arrived is not None:
                        arrived(place, reply)
        return [replies[place] for place in range(len(asks))]

    def _client(self) -> Any:
        try:
            from openai import AsyncOpenAI
        except ImportError as error:
            raise UsageError("the openai package is not installed; pip install 'rewardlab[judges]'") from error
        return AsyncOpenAI(api_key=self._key() or "none", base_url=self.base_url, timeout=self.timeout, max_retries=0)

    def _key(self) -> str:
        key = os.environ.get(self.key_variable, "") if self.key_variable else ""
        if not key and self.key_variable and not _on_this_machine(self.base_url):
            raise UsageError(
                f"{self.base_url}: the environment variable {self.key_variable} has no API key; set it, or name "
                "another with key_variable ('' for a server that needs none)"
            )
        return key

    # ---- one attempt ----

    async def turn(self, ask: Ask) -> None:
        """Wait until the rates allow a request."""
        now = time.monotonic()
        await asyncio.sleep(max(self._requests.wait(1, now), self._tokens.wait(_guess(ask), now)))

    async def attempt(self, client: Any, ask: Ask) -> Reply | Trouble:
        """Ask once, and put the reply on the bill."""
        from openai import OpenAIError

        constrained = ask.schema is not None and schema_name(ask.schema) not in self._unconstrained
        sent = request(self.model, ask, self.options, constrained=constrained, limit=self._limit)
        start = time.monotonic()
        try:
            async with asyncio.timeout(self.timeout):
                response = await client.chat.completions.with_raw_response.create(**sent)
            reply = read_reply(response.http_response.text)
        except (OpenAIError, OSError, ValueError) as error:
            found = trouble(error, self.timeout, time.time())
            return found._replace(
                reason=shortened(self._without_key(found.reason)),
                refused=found.refused if found.refused in sent else "",
            )
        self.bill.add(reply)
        self._tokens.correct(reply.prompt_tokens + reply.completion_tokens - _guess(ask))
        return reply._replace(seconds=time.monotonic() - start)

    def give_way(self, ask: Ask, found: Trouble) -> bool:
        """Leave out what the server does not know, from now on; False where it complained of something else."""
        if found.refused == CONSTRAINT and ask.schema is not None:
            self._unconstrained.add(schema_name(ask.schema))
            self.note(f"{self.name} refuses a JSON schema and is asked without it ({found.reason})")
        elif found.refused == LIMIT:
            self._limit = NEWER_LIMIT
        return bool(found.refused)

    def note(self, text: str) -> None:
        """Something to tell the caller, once."""
        self._notes.setdefault(text, False)

    def _tell(self) -> None:
        for text in [text for text, told in list(self._notes.items()) if not told]:
            self._notes[text] = True
            warnings.warn(text, stacklevel=3)

    def _without_key(self, text: str) -> str:
        key = os.environ.get(self.key_variable, "") if self.key_variable else ""
        return text.replace(key, "***") if key else text


def _guess(ask: Ask) -> int:
    """Tokens of prompt and reply before the reply is there."""
    return prompt_tokens(ask) + ask.max_tokens


def _on_this_machine(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Call:
    """One call of `ask`: workers that share a line of asks, and what they have learnt about the server."""

    def __init__(self, endpoint: Endpoint, client: Any):
        self.endpoint, self.client = endpoint, client
        self.stopped, self.lost = "", 0

    async def work(self, asks: Sequence[Ask], hand: Callable[[tuple[int, Reply]], Awaitable[None]]) -> None:
        """Ask everything, and hand over each reply with its place; a worker takes the next when that is done."""
        line = iter(enumerate(asks))

        async def worker() -> None:
            for place, ask in line:
                await hand((place, await self.reply(ask)))

        async with self.client, asyncio.TaskGroup() as group:
            for _ in range(min(self.endpoint.concurrency, len(asks))):
                group.create_task(worker())

    async def reply(self, ask: Ask) -> Reply:
        """One reply, after as many attempts as it takes and is worth."""
        endpoint, attempts, start = self.endpoint, 0, time.monotonic()
        while True:
            if not self._refusal():
                await endpoint.turn(ask)
            if refusal := self._refusal():  # which may have come up while waiting
                endpoint.note(refusal)
                return failed(f"not asked: {refusal}")
            found = await endpoint.attempt(self.client, ask)
            if isinstance(found, Reply):
                self.lost = 0
                return found
            if endpoint.give_way(ask, found):
                continue
            attempts += 1
            if not found.passing or attempts > endpoint.retries or found.wait > endpoint.longest_wait:
                return self._given_up(found, attempts, time.monotonic() - start)
            jitter = backoff(attempts - 1, random.random(), base=endpoint.first_wait, longest=endpoint.longest_wait)
            await asyncio.sleep(found.wait + jitter)

    def _refusal(self) -> str:
        self.stopped = self.stopped or self.endpoint.bill.refusal
        return self.stopped

    def _given_up(self, found: Trouble, attempts: int, seconds: float) -> Reply:
        self.lost += found.passing
        if found.everywhere:
            self.stopped = self.stopped or found.reason
        elif not self.stopped and self.lost >= max(self.endpoint.concurrency, LOST_IN_A_ROW):
            self.stopped = f"{self.lost} requests in a row failed, the last with: {found.reason}"
        left_alone = f"; the server asks to wait {found.wait:.0f} s" if found.wait else ""
        return failed(f"{found.reason}{left_alone} (attempts: {attempts})", seconds=seconds)


def endpoint(model: str, base_url: str = OPENAI, **settings: Any) -> Endpoint:
    """A model by the name that its server gives it; `settings` are the fields of `Endpoint`.

    `endpoint("qwen", "http://127.0.0.1:8000/v1", concurrency=64)` asks what `vllm serve ... --served-model-name qwen`
    serves.
    """
    return Endpoint(model, base_url, **settings)
