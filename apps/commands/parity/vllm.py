"""The scores of servers: vLLM's pooling endpoints, and `rewardlab serve`."""

import json
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from ....rm.contract.known_faults import Scored
from ....rm.contract.parity import Way
from ....rm.errors import DataError, UsageError
from ....rm.types import Example, Message, tools_of
from ...serving.access import LOCAL

EACH = 64
"""Conversations of one request."""


class Vllm:
    """vLLM's server with `--runner pooling` (0.32): POST /classify."""

    def __init__(self, url: str):
        self.url = url.rstrip("/").removesuffix("/v1")
        key = os.environ.get("VLLM_API_KEY")
        self.http = httpx.Client(
            timeout=300.0,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            trust_env=urlsplit(url).hostname not in LOCAL,
        )
        self.name = self._asked("GET", "/v1/models")["data"][0]["id"]

    def classify(self, **body: Any) -> list[list[float]]:
        """Return the scores of each conversation, in order."""
        answer = self._asked("POST", "/classify", {"model": self.name, **body})
        return [entry["probs"] for entry in sorted(answer["data"], key=lambda entry: entry["index"])]

    def tokens(self, example: Example) -> list[int] | None:
        """What its own template makes of a conversation; None where it has no such endpoint."""
        body = {"model": self.name, **chat_body(example), "add_generation_prompt": False}
        try:
            return self._asked("POST", "/tokenize", body)["tokens"]
        except DataError:
            return None

    def _asked(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            reply = self.http.request(method, f"{self.url}{path}", json=body)
            reply.raise_for_status()
            return reply.json()
        except httpx.HTTPStatusError as error:
            raise DataError(f"{self.url}{path}: {error.response.status_code} {error.response.text[:300]}") from error
        except (httpx.HTTPError, ValueError) as error:
            raise DataError(f"{self.url}{path}: no answer ({error}); is vLLM up, with --runner pooling?") from error


def chat_body(example: Example) -> dict[str, Any]:
    """Messages and tools as OpenAI's protocol has them: the arguments of a call are JSON text."""
    body: dict[str, Any] = {"messages": [_chat_message(turn) for turn in example.turns]}
    return body | ({"tools": tools} if (tools := tools_of(example.prompt)) else {})


def _chat_message(turn: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {key: value for key, value in turn.items() if key not in ("tools", "tool_calls")}
    calls = [call | {"function": _as_text(call["function"])} for call in turn.get("tool_calls", ())]
    return plain | ({"tool_calls": calls} if calls else {})


def _as_text(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function["arguments"]
    return function | {"arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}


def vllm(url: str, model: Any) -> tuple[dict[str, Way], dict[str, Way]]:
    """vLLM on our token ids, raw and as it activates by itself; and on messages, by its own template.

    The second is for conversations that its truncation cuts as the contract does.
    """
    if not hasattr(model, "encoder"):
        raise UsageError(f"--against vllm sends token ids, which a model of kind '{model.contract.kind}' has none of")
    server = Vllm(url)

    def by_ids(examples: Sequence[Example], **options: Any) -> Scored:
        rows = [encoded.ids for encoded in model.encoder.encode_all(examples)]
        scores: list[list[float]] = []
        for start in range(0, len(rows), EACH):
            scores += server.classify(input=rows[start : start + EACH], **options)
        return Scored(np.array(scores, float), rows)

    def by_messages(examples: Sequence[Example]) -> Scored:
        contract, scores = model.contract, []
        cut = {"truncate_prompt_tokens": contract.max_length, "truncation_side": contract.truncation}
        cut = cut if contract.max_length else {}
        for chat_example in examples:
            scores += server.classify(**chat_body(chat_example), use_activation=False, **cut)
        read = [server.tokens(example) for example in examples]
        tokens = None if None in read else [model.encoder.truncated(ids) for ids in read if ids is not None]
        return Scored(np.array(scores, float), tokens)

    ids = {
        "vLLM": lambda examples: by_ids(examples, use_activation=False),
        "vLLM, as it activates": by_ids,
    }
    return ids, {"vLLM, its template": by_messages}


def served(url: str, token: str | None) -> dict[str, Way]:
    """A model behind `rewardlab serve`."""
    from ...serving.client import ScoringClient

    client = ScoringClient(url, token, truncate=True)
    return {url: lambda examples: Scored(client.rate(examples))}
