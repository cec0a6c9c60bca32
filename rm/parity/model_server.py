"""HTTP requests to an inference server of another program, as vLLM's and SGLang's."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from ..errors import DataError
from ..io.api_keys import authorization, clean_token, environment_key
from ..io.server_rotation import LOCAL
from ..types import Example, Message, tools_of

EACH = 64
"""Maximum number of conversations in a request."""
Row = TypeVar("Row")


class ModelServer:
    """A server with one model; a subclass names the program, its variable with the key, and how it is started."""

    program, key_variable, start = "server", "", ""

    def __init__(self, url: str, key: str | None = None, *, start: str | None = None):
        self.start = start or self.start
        self.url = url.rstrip("/").removesuffix("/v1")
        self.http = httpx.Client(
            timeout=300.0,
            headers=authorization(clean_token(key) or environment_key(self.key_variable)),
            trust_env=urlsplit(url).hostname not in LOCAL,
        )
        self.name = self.model_name()

    def model_name(self) -> str | None:
        """Return the name of the server's model."""
        return self.request("GET", "/v1/models")["data"][0]["id"]

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the JSON of a response; raise a `DataError` for any other response."""
        try:
            reply = self.http.request(method, f"{self.url}{path}", json=body)
            reply.raise_for_status()
            return reply.json()
        except httpx.HTTPStatusError as error:
            refusal = f"{self.url}{path}: {error.response.status_code} {error.response.text[:300]}"
            remedy = f"; start {self.program} with {self.start}" if _is_unserved(error.response) else ""
            raise DataError(refusal + remedy) from error
        except (httpx.HTTPError, ValueError) as error:
            raise DataError(
                f"{self.url}{path}: no answer ({error}); is {self.program} up, with {self.start}?"
            ) from error

    def post(self, path: str, **body: Any) -> Any:
        """Return the JSON of a POST request that names the model."""
        return self.request("POST", path, {"model": self.name, **body})


def _is_unserved(response: httpx.Response) -> bool:
    """Return whether the server was started without this endpoint, or for another task."""
    try:
        return response.status_code == 404 or response.json()["error"]["param"] == "task"
    except (ValueError, KeyError, TypeError):
        return False


def batches(rows: Sequence[Row], size: int = EACH) -> Iterator[Sequence[Row]]:
    """Yield consecutive parts of at most `size` rows."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def sort_by_index(data: Sequence[dict[str, Any]], field: str) -> list[Any]:
    """Return a field of every entry of a response, in the order of `index`."""
    return [entry[field] for entry in sorted(data, key=lambda entry: entry["index"])]


def all_or_none(rows: Sequence[list[int] | None], change: Callable[[list[int]], list[int]]) -> list[list[int]] | None:
    """Return `change` of every row of token ids; None if the server does not report one of them."""
    changed = [change(row) for row in rows if row is not None]
    return changed if len(changed) == len(rows) else None


def chat_body(example: Example) -> dict[str, Any]:
    """Messages and tools as OpenAI's protocol has them: the arguments of a call are JSON text."""
    body: dict[str, Any] = {"messages": [_chat_message(turn) for turn in example.turns]}
    return body | ({"tools": tools} if (tools := tools_of(example.prompt)) else {})


def _chat_message(turn: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {key: value for key, value in turn.items() if key not in ("tools", "tool_calls")}
    calls = []
    for call in turn.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append(call | {"function": call["function"] | {"arguments": text}})
    return plain | ({"tool_calls": calls} if calls else {})
