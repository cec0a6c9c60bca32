"""Answers from a server that speaks OpenAI's completions protocol with token ids, such as vLLM's."""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from ..rm.errors import DataError, UsageError

KEY = "VLLM_API_KEY"  # the environment variable that vLLM's own server reads


def server_rollouts(url: str, *, timeout: float = 600.0) -> Callable[[Sequence[Any], Any], dict[str, list]]:
    """A rollout function of TRL's trainers: the server writes the answers, token for token as it drew them.

    `url` is the server's root, as in http://127.0.0.1:8000. The server has a saved policy, which may lag behind the one
    that learns: its log-probabilities go along, and ratios are taken against them. Start vLLM's with
    `--logprobs-mode processed_logprobs`, so that they are those after temperature and truncation.
    """

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, list]:
        ids = trainer._tokenize_prompts(list(prompts))[0]
        asked = {
            "model": _model(url, timeout),
            "prompt": ids,
            "max_tokens": trainer.max_completion_length,
            "temperature": trainer.temperature,
            "top_p": trainer.top_p,
            "top_k": trainer.top_k or -1,
            "min_p": trainer.min_p or 0.0,
            "repetition_penalty": trainer.repetition_penalty,
            "logprobs": 0,
            "return_token_ids": True,
        }
        choices = sorted(_ask(f"{url}/v1/completions", timeout, asked)["choices"], key=lambda one: one["index"])
        if len(choices) != len(ids):
            raise DataError(f"{url}: {len(choices)} answers to {len(ids)} prompts")
        return {
            "prompt_ids": ids,
            "completion_ids": [_tokens(url, one) for one in choices],
            "logprobs": [_logprobs(one) for one in choices],
        }

    return rollout


def _model(url: str, timeout: float) -> str:
    return _ask(f"{url}/v1/models", timeout)["data"][0]["id"]


def _tokens(url: str, choice: dict[str, Any]) -> list[int]:
    if not choice.get("token_ids"):
        raise UsageError(f"{url}: its answers have no token_ids; take a server that knows return_token_ids, as vLLM's")
    return choice["token_ids"]


def _logprobs(choice: dict[str, Any]) -> list[float]:
    return [math.nan if one is None else one for one in choice["logprobs"]["token_logprobs"]]


def _ask(address: str, timeout: float, body: dict[str, Any] | None = None) -> Any:
    headers = {"Authorization": f"Bearer {os.environ[KEY]}"} if KEY in os.environ else {}
    try:
        call = httpx.get if body is None else httpx.post
        answer = call(address, headers=headers, timeout=timeout, **({} if body is None else {"json": body}))
        answer.raise_for_status()
        return answer.json()
    except httpx.HTTPStatusError as error:
        raise DataError(f"{address}: {error.response.status_code} {error.response.text[:200]}") from error
    except (httpx.HTTPError, ValueError) as error:
        raise DataError(f"{address}: no answer ({error}); is the server up?") from error
