"""A model behind any server with OpenAI's chat protocol: hosted, or `vllm serve` on this machine."""

import asyncio
import math
import random
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from ...rm.errors import UsageError
from ...rm.io.api_keys import environment_key
from ...rm.io.server_rotation import Rotation, addresses, check_address, on_this_machine
from ...rm.types import content_hash
from . import openai_protocol as protocol
from .chat import Arrived, Ask, Reply, failed_reply, with_earlier
from .cost import Bill, Budget, Prices, most_prompt_tokens, prompt_tokens
from .event_loop import run_in_thread
from .faults import Action, Billed
from .openai_protocol import Trouble
from .rate_limits import Pace, backoff

OPENAI = "https://api.openai.com/v1"
LOST_IN_A_ROW = 16


@dataclass(eq=False)
class Endpoint:
    """A chat with one server, or with several servers of the same model.

    Up to `concurrency` requests are in flight. The table in `faults` defines which failures are retried; a retry waits
    at least the server's Retry-After. A fatal fault (such as a wrong key or an exhausted quota) and many failures in a
    row end the call: the remaining requests are not sent and get the same error. With several servers, requests
    alternate between them. A failing server pauses for a growing time while the others are used. If all servers fail,
    this is handled like the failure of a single server.
    """

    model: str
    base_url: str | Sequence[str] = OPENAI
    """One address, or several as a list or `[first, second]`. The first address is part of the chat's default name."""
    _: KW_ONLY
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable of the API key, read when requests are sent. A server on this machine needs no key."""
    concurrency: int = 16
    timeout: float = 120.0
    """Timeout of one attempt in seconds."""
    retries: int = 6
    first_wait: float = 0.5
    """Base of the backoff in seconds. The wait before attempt k is drawn uniformly from [0, first_wait · 2^k]."""
    longest_wait: float = 60.0
    """Maximum wait in seconds. If a server's Retry-After is longer, the request is not retried."""
    requests_per_minute: float = math.inf
    """Rate limit of each server in requests per minute."""
    tokens_per_minute: float = math.inf
    """Rate limit of each server in prompt and reply tokens per minute. A pending reply counts as `max_tokens`."""
    prices: Prices | None = None
    max_cost: float | None = None
    """Limit of the total cost, which requires prices.

    A request is sent only if its upper bound and those of all requests in flight stay within the limit. The bounds
    follow from the bytes of the prompts and from `max_tokens`.
    """
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request, such as `top_p`. None removes a default field, such as `temperature`."""
    name: str = ""
    """Name in the keys of stored replies, the same for all servers. Default: model, first server and options."""
    bill: Bill = field(init=False, repr=False)

    def __post_init__(self):
        self.urls = addresses(self.base_url)
        self._check()
        options = [content_hash(dict(self.options))] if self.options else []
        self.name = self.name or " ".join([self.model, "at", self.urls[0], *options])
        self.bill = Bill(self.prices, Budget(self.max_cost))
        rates = self.requests_per_minute, self.tokens_per_minute
        self._paces = [tuple(map(Pace, rates)) for _ in self.urls]
        several = len(self.urls) > 1
        self.rotation = Rotation(len(self.urls), self.first_wait if several else 0.0, self.longest_wait)
        self._unconstrained: set[str] = set()
        self._limit = protocol.LIMIT
        self._notes: dict[str, bool] = {}

    def _check(self) -> None:
        for url in self.urls:
            check_address(url, example=OPENAI, key=self.key_variable)
        for name, holds, allowed in (
            ("concurrency", self.concurrency >= 1, "1 or more"),
            ("retries", self.retries >= 0, "0 or more"),
            ("timeout", self.timeout > 0, "a number of seconds > 0"),
            ("first_wait", self.first_wait >= 0, "a number of seconds >= 0"),
            ("requests_per_minute", self.requests_per_minute > 0, "a number > 0"),
            ("tokens_per_minute", self.tokens_per_minute > 0, "a number > 0"),
        ):
            if not holds:
                raise UsageError(f"{name} must be {allowed}, got {vars(self)[name]!r}")
        if self.max_cost is not None and (unbounded := [name for name in protocol.LENGTHS if name in self.options]):
            raise UsageError(
                f"max_cost does not support the option {unbounded[0]}, since costs are computed from max_tokens; leave "
                "one of the two out"
            )
        for name, one_reply in (("n", (None, 1)), ("stream", (None, False))):
            if self.options.get(name) not in one_reply:
                raise UsageError(f"the option {name} is not supported: a request has one whole reply; leave it out")

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`."""
        replies: dict[int, Reply] = {}
        if asks:
            self.bill.check(asks)
            work = partial(_Call(self, [self._client(url) for url in self.urls]).work, asks)
            with closing(run_in_thread(work)) as items:
                for ask_index, reply in items:
                    replies[ask_index] = reply
                    self._log_progress()
                    if arrived is not None:
                        arrived(ask_index, reply)
        return [replies[index] for index in range(len(asks))]

    def _client(self, url: str) -> Any:
        try:
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient
        except ImportError as error:
            raise UsageError("the openai package is not installed; pip install 'rewardlab[judges]'") from error
        http = DefaultAsyncHttpxClient(trust_env=not on_this_machine(url))
        options: dict[str, Any] = {"timeout": self.timeout, "max_retries": 0, "http_client": http}
        return AsyncOpenAI(api_key=self._key(url) or "none", base_url=url, **options)

    def _key(self, url: str) -> str:
        key = environment_key(self.key_variable)
        if not key and self.key_variable and not on_this_machine(url):
            raise UsageError(
                f"{url}: the environment variable {self.key_variable} has no API key; set it, or name "
                "another with --key_variable ('' for a server that needs none)"
            )
        return key

    async def turn(self, ask: Ask, index: int) -> None:
        """Wait until the rate limits of a server allow the request."""
        now, (requests, tokens) = time.monotonic(), self._paces[index]
        await asyncio.sleep(max(requests.wait(1, now), tokens.wait(_estimated_tokens(ask), now)))

    async def attempt(self, client: Any, ask: Ask, index: int) -> Reply | Trouble:
        """Send a request once to one server."""
        from openai import OpenAIError

        constrained = ask.schema is not None and protocol.schema_name(ask.schema) not in self._unconstrained
        body = protocol.request(self.model, ask, self.options, constrained=constrained, limit=self._limit)
        start = time.monotonic()
        try:
            async with asyncio.timeout(self.timeout):
                response = await client.chat.completions.with_raw_response.create(**body)
            reply = protocol.read_reply(response.http_response.text, ask)
        except (OpenAIError, OSError, ValueError) as error:
            failure, key = protocol.trouble(error, self.timeout, time.time()), environment_key(self.key_variable)
            return failure._replace(
                reason=protocol.shorten_reason(failure.reason.replace(key, "***") if key else failure.reason),
                refused=failure.refused if failure.refused in body else "",
            )
        if not reply.estimated:
            self._paces[index][1].correct(reply.prompt_tokens + reply.completion_tokens - _estimated_tokens(ask))
        return reply._replace(seconds=time.monotonic() - start)

    def drop_parameter(self, ask: Ask, failure: Trouble) -> bool:
        """Stop sending a parameter that the server does not support. Return False if the error has another cause."""
        if failure.refused == protocol.CONSTRAINT and ask.schema is not None:
            self._unconstrained.add(protocol.schema_name(ask.schema))
            self.note(f"{self.name} refuses a JSON schema; requests are sent without it ({failure.reason})")
        elif failure.refused == protocol.LIMIT:
            self._limit = protocol.NEWER_LIMIT
        return bool(failure.refused)

    def note(self, text: str) -> None:
        """Log a warning, once per text."""
        self._notes.setdefault(text, False)

    def _log_progress(self) -> None:
        for text in [text for text, was_logged in list(self._notes.items()) if not was_logged]:
            self._notes[text] = True
            warnings.warn(text, stacklevel=3)


def _estimated_tokens(ask: Ask) -> int:
    """Estimate the tokens of prompt and reply before the reply arrives."""
    return prompt_tokens(ask) + ask.max_tokens


class _Call:
    """State of one call of `ask`: workers that share a queue of requests, and the health of the servers."""

    def __init__(self, endpoint: Endpoint, clients: Sequence[Any]):
        self.endpoint, self.clients = endpoint, clients
        self.stopped, self.failures_in_a_row = "", 0
        self.closed: set[int] = set()
        """Servers that reject every request."""
        self.in_flight = 0
        self.settled = asyncio.Event()
        """Set when the next request in flight ends."""

    async def work(self, asks: Sequence[Ask], hand: Callable[[tuple[int, Reply]], Awaitable[None]]) -> None:
        """Send all requests and pass each reply with its index to `hand`. Workers wait for `hand` between requests."""
        line = iter(enumerate(asks))

        async def worker() -> None:
            for index, ask in line:
                await hand((index, await self.reply(ask)))

        async with AsyncExitStack() as open_clients:
            for client in self.clients:
                await open_clients.enter_async_context(client)
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.endpoint.concurrency, len(asks))):
                    group.create_task(worker())

    async def reply(self, ask: Ask) -> Reply:
        """Return one reply, after retries if necessary."""
        failed: list[Reply] = []
        return with_earlier(await self._last_reply(ask, failed), failed)

    async def _last_reply(self, ask: Ask, failed: list[Reply]) -> Reply:
        """Return the reply of the last attempt. Append earlier attempts that may have been billed to `failed`."""
        endpoint, attempts, start = self.endpoint, 0, time.monotonic()
        tried: set[int] = set()
        while True:
            index = endpoint.rotation.choose(time.monotonic(), but=tried)
            if not self.stopped:
                await endpoint.turn(ask, index)
            if refusal := await self._reserve(ask):
                endpoint.note(refusal)
                return failed_reply(f"not asked: {refusal}")
            start_time = time.monotonic()
            outcome = await self._send(ask, index, failed)
            if isinstance(outcome, Reply):
                self.failures_in_a_row = 0
                self.closed.discard(index)
                endpoint.rotation.succeeded(index)
                return outcome
            if endpoint.drop_parameter(ask, outcome):
                continue
            outcome = self._failed(index, outcome, start_time)
            tried.add(index)
            if outcome.is_transient and endpoint.rotation.available(time.monotonic(), but=tried):
                continue  # at once, with the next server
            attempts, tried = attempts + 1, set()
            wait = endpoint.rotation.wait(time.monotonic()) if len(endpoint.urls) > 1 else outcome.wait
            if not outcome.is_transient or attempts > endpoint.retries or wait > endpoint.longest_wait:
                return self._give_up(outcome, attempts, time.monotonic() - start)
            jitter = backoff(attempts - 1, random.random(), base=endpoint.first_wait, longest=endpoint.longest_wait)
            await asyncio.sleep(wait + jitter)

    async def _reserve(self, ask: Ask) -> str:
        """Reserve a request's maximum cost. If the limit does not allow it yet, wait until other requests have ended.

        Return the reason for a refusal, or "".
        """
        bill = self.endpoint.bill
        while not self.stopped and not bill.budget.reserve(bill.most(ask)):
            if self.in_flight:
                await self.settled.wait()
            else:
                self.stopped = bill.refusal(ask)
        return self.stopped  # which may have come up while waiting

    async def _send(self, ask: Ask, index: int, failed: list[Reply]) -> Reply | Trouble:
        """Send a request once with a reservation, and charge its cost."""
        self.in_flight += 1
        try:
            outcome = await self.endpoint.attempt(self.clients[index], ask, index)
            self._charge(ask, outcome, failed)
            return outcome
        finally:
            self.endpoint.bill.budget.release(self.endpoint.bill.most(ask))
            self.in_flight -= 1
            self.settled.set()
            self.settled = asyncio.Event()

    def _charge(self, ask: Ask, outcome: Reply | Trouble, failed: list[Reply]) -> None:
        """Charge the cost of a reply, or the upper bound for a failed request that may have been billed."""
        if isinstance(outcome, Reply):
            return self.endpoint.bill.add(outcome)
        if outcome.fault.billed == Billed.AT_MOST:
            tokens = {"prompt_tokens": most_prompt_tokens(ask), "completion_tokens": ask.max_tokens}
            failed.append(failed_reply(outcome.reason, requests=1, estimated=1, **tokens))
            self.endpoint.bill.add(failed[-1])

    def _failed(self, index: int, failure: Trouble, start_time: float) -> Trouble:
        """Record a failure. If other servers accept requests, a server that rejects all of them is marked as down."""
        if failure.is_transient or failure.is_fatal:
            self.endpoint.rotation.failed(index, time.monotonic(), pause=failure.wait, since=start_time)
        if not failure.is_fatal:
            return failure
        self.closed.add(index)
        if len(self.closed) == len(self.clients):
            return failure
        return failure._replace(fault=failure.fault._replace(action=Action.RETRY))  # other servers are tried

    def _give_up(self, failure: Trouble, attempts: int, seconds: float) -> Reply:
        self.failures_in_a_row += failure.is_transient
        if failure.is_fatal:
            self.stopped = self.stopped or failure.reason
        elif not self.stopped and self.failures_in_a_row >= max(self.endpoint.concurrency, LOST_IN_A_ROW):
            self.stopped = f"{self.failures_in_a_row} requests in a row failed, the last with: {failure.reason}"
        left_alone = f"; the server asks to wait {failure.wait:.0f} s" if failure.wait else ""
        return failed_reply(f"{failure.reason}{left_alone} (attempts: {attempts})", seconds=seconds)
