"""OpenAI's chat protocol: requests, parsing of responses, and actions on failures."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...rm.errors import UNREADABLE
from ...rm.io.checked_files import from_json
from ...rm.types import content_hash
from .chat import Ask, Reply, failed_reply
from .cost import most_completion_tokens, most_prompt_tokens
from .faults import (
    BAD_REQUEST,
    EMPTY,
    LOST,
    NO_COMPLETION,
    NO_CONNECTION,
    TIMEOUT,
    UNFINISHED,
    Action,
    ApiFault,
    fault_of,
)
from .rate_limits import retry_after

REFUSED = {400, 422, 501}
CONSTRAINT, LIMIT, NEWER_LIMIT = "response_format", "max_tokens", "max_completion_tokens"
LENGTHS = (LIMIT, NEWER_LIMIT, "n")
"""Options that change the maximum length of a reply."""
TOKENS = "prompt_tokens", "completion_tokens"
TRUNCATED = ("length", "model_length")
"""Values of `finish_reason` of a reply at its maximum length, or at the end of the context (Mistral)."""
BROKEN_OFF = ("error", "abort", "insufficient_system_resource")
"""Values of `finish_reason` of a reply that the server did not finish: OpenRouter's, vLLM's and DeepSeek's."""
PARTS = {"text": "text", "output_text": "text", "refusal": "refusal"}
"""Meaning of each type of content part. Any other type, such as `thinking`, is reasoning."""
SCHEMA_WORDS = (CONSTRAINT, "json_schema", "schema", "grammar", "guided", "structured output")


class Trouble(NamedTuple):
    """Reason for a failed attempt."""

    reason: str
    fault: ApiFault
    wait: float = 0.0
    """Seconds of the server's Retry-After header."""
    refused: str = ""
    """Name of an unsupported parameter, if the server reported one; else empty."""

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.fault.action == Action.RETRY

    @property
    def is_fatal(self) -> bool:
        """Whether every other request would fail for the same reason."""
        return self.fault.action == Action.FATAL


class NoCompletion(ValueError):
    """Error for a response with status 200 that is not a completion, such as a proxy's `error` object."""

    def __init__(self, text: str, cause: Exception, error: Any = None):
        super().__init__(f"{NO_COMPLETION.name} ({cause}): {text[:200]}")
        self.error = error


def request(model: str, ask: Ask, options: Mapping[str, Any], *, constrained: bool, limit: str) -> dict[str, Any]:
    """Return the arguments of the client's `create`. Options override defaults by name; None removes a field."""
    body: dict[str, Any] = {
        "model": model,
        "messages": list(ask.messages),
        "temperature": ask.temperature,
        limit: ask.max_tokens,
    }
    if ask.seed is not None:
        body["seed"] = ask.seed
    if ask.schema is not None and constrained:
        form = {"name": schema_name(ask.schema), "schema": ask.schema, "strict": True}
        body[CONSTRAINT] = {"type": "json_schema", "json_schema": form}
    body = {name: value for name, value in body.items() if name not in options}
    extra = {name: value for name, value in options.items() if value is not None}
    return body | ({"extra_body": extra} if extra else {})


def schema_name(schema: Mapping[str, Any]) -> str:
    """Return a schema name with only the characters that the protocol allows."""
    return f"reply-{content_hash(schema)}"


def read_reply(text: str, ask: Ask) -> Reply:
    """Parse the reply in a response body. Raise `NoCompletion` if the body is not a completion.

    Text parts of a content are joined; reasoning is kept apart. If the server reports no token counts, upper bounds are
    used.

    >>> body = '{"choices": [{"message": {"content": "A"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}'
    >>> read_reply(body, Ask(()))[:4], read_reply(body.replace("usage", "other"), Ask(())).estimated
    (('A', 'stop', 9, 1), 1)
    """
    choice, usage = _choice(text)
    try:
        visible, reasoning, refusal = _texts(choice["message"])
    except UNREADABLE as error:
        raise NoCompletion(text, error) from error
    finish, stated = choice.get("finish_reason") or "stop", _stated_tokens(usage)
    tokens = stated or (most_prompt_tokens(ask), most_completion_tokens(ask, visible + reasoning, finish))
    counts = dict(zip(TOKENS, tokens, strict=True)) | {"estimated": int(stated is None)}
    if refusal or finish == "content_filter":
        return Reply(refusal or visible, "declined", reasoning=reasoning, **counts)
    if finish in TRUNCATED:
        return Reply(visible, "length", reasoning=reasoning, **counts)
    if visible and finish not in BROKEN_OFF:
        return Reply(visible, "stop", reasoning=reasoning, **counts)
    fault = UNFINISHED if finish in BROKEN_OFF else EMPTY
    return failed_reply(f"{fault.name} (finish_reason {finish})", requests=1, reasoning=reasoning, **counts)


def _choice(text: str) -> tuple[Mapping[str, Any], Any]:
    """Return the first choice and the usage of a response's body."""
    body: Any = None
    try:
        body = from_json(text)
        return {**body["choices"][0]}, body.get("usage")
    except UNREADABLE as error:
        raise NoCompletion(text, error, body.get("error") if isinstance(body, Mapping) else None) from error


def _texts(message: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return text, reasoning and refusal of a message."""
    content = message.get("content") or ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    thoughts = message.get("reasoning_content") or message.get("reasoning") or ""
    texts: dict[str, str] = {"text": "", "reasoning": thoughts, "refusal": message.get("refusal") or ""}
    for part in parts:
        texts[PARTS.get(part["type"], "reasoning")] += _part_text(part)
    visible, reasoning, refusal = (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # half an emoji, where a text was cut off
        for text in texts.values()
    )
    return visible, reasoning, refusal


def _part_text(part: Mapping[str, Any] | str) -> str:
    """Return the text of a content part. Reasoning may itself be a list of parts, as with Mistral."""
    if isinstance(part, str):
        return part
    inner = next((part[name] for name in ("text", "thinking", "refusal") if part.get(name)), "")
    return inner if isinstance(inner, str) else "".join(map(_part_text, inner))


def _stated_tokens(usage: Any) -> tuple[int, int] | None:
    """Return the tokens of prompt and of reply including reasoning. None if the server does not report both."""
    if not isinstance(usage, Mapping):
        return None
    prompt, completion = (usage.get(name) for name in TOKENS)
    if not isinstance(prompt, int) or not isinstance(completion, int) or prompt < 1 or completion < 0:
        return None
    total = usage.get("total_tokens")
    return prompt, max(completion, total - prompt if isinstance(total, int) else 0)


def trouble(error: Exception, timeout: float, now: float) -> Trouble:
    """Return how to handle an attempt's exception, which may contain the server's response."""
    from openai import APIStatusError

    status, body, headers, parameter = None, None, {}, ""
    if isinstance(error, APIStatusError):
        status, body, headers, parameter = error.status_code, error.body, error.response.headers, error.param
    elif isinstance(error, NoCompletion):
        status, body = _status_within(error.error), error.error
    if status is None:
        fault = fault_of(None, body) if isinstance(error, NoCompletion) else _connection_fault(error)
        name = fault.name if fault.codes else type(error).__name__
        return Trouble(f"no reply within {timeout:g} s" if fault is TIMEOUT else f"{name}: {error}", fault)
    fault = fault_of(status, body)
    refused = _unsupported_parameter(f"{parameter} {error}") if status in REFUSED and fault is BAD_REQUEST else ""
    return Trouble(f"{fault.name}: {error}", fault, retry_after(headers, now), refused)


def _status_within(error: Any) -> int | None:
    """Return the status inside an error object that came with HTTP status 200, as from OpenRouter."""
    code = error.get("code") if isinstance(error, Mapping) else None
    return code if isinstance(code, int) and code >= 400 else None


def _connection_fault(error: Exception) -> ApiFault:
    """Return the fault for an exception without a response, from the types of the exception and of its cause."""
    names = {type(each).__name__ for each in (error, error.__cause__)}
    if names & {"ConnectError", "ConnectTimeout", "PoolTimeout", "ConnectionRefusedError"}:
        return NO_CONNECTION
    if isinstance(error, TimeoutError) or "APITimeoutError" in names:
        return TIMEOUT
    return BAD_REQUEST if isinstance(error, ValueError) else LOST


def shorten_reason(reason: str, letters: int = 300) -> str:
    """Return a reason on one line, truncated. Some proxies reply with an HTML page.

    >>> shorten_reason("<html>\\n  busy", 10)
    '<html> ...'
    """
    line = " ".join(reason.split())
    return line if len(line) <= letters else f"{line[: letters - 3]}..."


def _unsupported_parameter(reason: str) -> str:
    lower = reason.lower()
    if NEWER_LIMIT in lower:
        return LIMIT
    return CONSTRAINT if any(word in lower for word in SCHEMA_WORDS) else ""
