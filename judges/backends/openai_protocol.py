"""OpenAI's chat protocol: an ask as a request, a response as a reply, a failure as what to do about it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...rm.errors import UNREADABLE
from ...rm.io.checked_files import from_json
from ...rm.types import content_hash
from .chat import Ask, Reply, failed
from .rate_limits import retry_after

PASSING = {408, 409, 425, 429}  # and every 5xx: the same request may succeed later
EVERYWHERE = {401, 402, 404}  # key, account, model: no other request would fare better
REFUSED = {400, 422, 501}
EMPTY_PURSE = "insufficient_quota"  # a 429 that no waiting mends
CONSTRAINT, LIMIT, NEWER_LIMIT = "response_format", "max_tokens", "max_completion_tokens"
SCHEMA_WORDS = (CONSTRAINT, "json_schema", "schema", "grammar", "guided", "structured output")


class Trouble(NamedTuple):
    """Reason for a failed attempt."""

    reason: str
    passing: bool
    """Whether the same request may succeed later."""
    everywhere: bool = False
    """Whether every other request would fail for the same reason."""
    wait: float = 0.0
    """Seconds of the server's Retry-After."""
    refused: str = ""
    """Name of an unsupported parameter, if the server reported one."""


def request(model: str, ask: Ask, options: Mapping[str, Any], *, constrained: bool, limit: str) -> dict[str, Any]:
    """Arguments of the client's `create`. Options override them by name; an option that is None leaves a name out."""
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
    """A name of the letters that the protocol allows."""
    return f"reply-{content_hash(schema)}"


def read_reply(text: str) -> Reply:
    """The reply in a response's body; a body that is no completion is a `ValueError`, as some proxies send.

    >>> read_reply('{"choices": [{"message": {"content": "A"}, "finish_reason": "length"}], "usage": null}')
    Reply(text='A', finish='length', prompt_tokens=0, completion_tokens=0, seconds=0.0, error='')
    """
    body = from_json(text)
    try:
        choice, usage = body["choices"][0], body.get("usage") or {}
        content, finish = choice["message"].get("content"), choice.get("finish_reason") or "stop"
        tokens = {name: int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")}
    except UNREADABLE as error:
        raise ValueError(f"the response is no completion: {text[:200]}") from error
    if not isinstance(content, str) or not content:
        refusal = choice["message"].get("refusal")
        return failed(f"the reply has no text (finish_reason {finish}{f': {refusal}' if refusal else ''})", **tokens)
    content = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # half an emoji, cut off
    return Reply(content, "length" if finish == "length" else "stop", **tokens)


def trouble(error: Exception, timeout: float, now: float) -> Trouble:
    """What to make of an attempt's exception; one with a `status_code` is the server's answer."""
    if isinstance(error, TimeoutError):
        return Trouble(f"no reply within {timeout:g} s", passing=True)
    status = getattr(error, "status_code", None)
    if status is None:
        return Trouble(f"{type(error).__name__}: {error}", passing=True)
    reason = str(error)
    passing = (status in PASSING or status >= 500) and EMPTY_PURSE not in reason
    headers = getattr(getattr(error, "response", None), "headers", {})
    return Trouble(
        reason,
        passing,
        everywhere=status in EVERYWHERE or EMPTY_PURSE in reason,
        wait=retry_after(headers, now),
        refused=_refused(reason) if status in REFUSED else "",
    )


def shortened(reason: str, letters: int = 300) -> str:
    """A reason on one line; some proxies answer with a whole page.

    >>> shortened("<html>\\n  busy", 10)
    '<html> ...'
    """
    line = " ".join(reason.split())
    return line if len(line) <= letters else f"{line[: letters - 3]}..."


def _refused(reason: str) -> str:
    lower = reason.lower()
    if NEWER_LIMIT in lower:
        return LIMIT
    return CONSTRAINT if any(word in lower for word in SCHEMA_WORDS) else ""
