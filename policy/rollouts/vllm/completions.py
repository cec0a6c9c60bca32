"""Completions from servers with OpenAI's completions protocol and token ids, such as vLLM's."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import httpx

from ....rm.errors import DataError, UsageError
from ....rm.io.api_keys import authorization, environment_key
from ....rm.io.server_rotation import Rotation, addresses, check_address

KEY = "VLLM_API_KEY"  # environment variable of vLLM's own server


def server_rollouts(
    urls: str | Sequence[str], *, timeout: float = 600.0
) -> Callable[[Sequence[Any], Any], dict[str, list]]:
    """Create a rollout function of TRL's trainers that gets completions from servers, as token ids.

    `urls` are the servers' roots, such as http://127.0.0.1:8000. Each serves a saved policy, which may be older than
    the trained one: its log-probabilities are returned, and ratios are relative to them. Start vLLM's server with
    `--logprobs-mode processed_logprobs`, so that they are those after temperature and truncation.

    Groups are distributed over several servers. Those of a failed server go to the others, and it is not used for a
    growing time; raises `DataError` if all servers fail.
    """
    servers = [url.rstrip("/") for url in addresses(urls, "--rollout_server")]
    for url in servers:
        check_address(url, "--rollout_server", key=KEY)
    environment_key(KEY)  # one that no header can hold is refused before the models are loaded
    rotation = Rotation(len(servers))

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, list]:
        ids = trainer._tokenize_prompts(list(prompts))[0]
        how = sampling(trainer)
        size = len(ids) if len(servers) == 1 else group_size(trainer)
        groups = [range(start, min(start + size, len(ids))) for start in range(0, len(ids), size)]

        def draw(server: int, rows: list[int]) -> list[dict[str, Any]]:
            return completions(servers[server], [ids[row] for row in rows], how, timeout)

        drawn = shared_out(rotation, groups, draw)
        choices = [drawn[row] for row in range(len(ids))]
        return {
            "prompt_ids": ids,
            "completion_ids": [choice["token_ids"] for choice in choices],
            "logprobs": [
                [math.nan if logprob is None else logprob for logprob in choice["logprobs"]["token_logprobs"]]
                for choice in choices
            ],
            "writer": ["server"] * len(choices),
        }

    return rollout


def sampling(trainer: Any) -> dict[str, Any]:
    """Return the trainer's sampling settings as parameters of the protocol."""
    return {
        "max_tokens": trainer.max_completion_length,
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "top_k": trainer.top_k or -1,
        "min_p": trainer.min_p or 0.0,
        "repetition_penalty": trainer.repetition_penalty,
    }


def group_size(trainer: Any) -> int:
    """Return the number of completions per prompt, which are consecutive rows."""
    return int(trainer.num_generations if trainer.model.training else trainer.num_generations_eval)


def completions(url: str, ids: Sequence[list[int]], how: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
    """Request one completion per prompt; return choices in order, with tokens and log-probabilities."""
    model = ask(f"{url}/v1/models", timeout)["data"][0]["id"]
    asked = {"model": model, "prompt": ids, **how, "logprobs": 0, "return_token_ids": True}
    choices = sorted(ask(f"{url}/v1/completions", timeout, asked)["choices"], key=lambda choice: choice["index"])
    if len(choices) != len(ids):
        raise DataError(f"{url}: {len(choices)} completions to {len(ids)} prompts")
    if not all(choice.get("token_ids") for choice in choices):
        raise UsageError(
            f"{url}: its completions have no token_ids; take a server that knows return_token_ids, as vLLM's"
        )
    return choices


def shared_out(
    rotation: Rotation,
    groups: Sequence[range],
    draw: Callable[[int, list[int]], list[dict[str, Any]]],
    clock: Callable[[], float] = time.monotonic,
) -> dict[int, dict[str, Any]]:
    """Return `draw(server, rows)` by row, over the available servers; the last server's `DataError` is raised."""
    drawn: dict[int, dict[str, Any]] = {}
    left, failed = list(groups), set[int]()
    while left:
        dealt: dict[int, list[range]] = {}
        for group in left:
            dealt.setdefault(rotation.choose(clock(), but=failed), []).append(group)
        sent, left = clock(), []
        with ThreadPoolExecutor(len(dealt)) as pool:
            asked = {server: pool.submit(draw, server, [*chain(*groups)]) for server, groups in dealt.items()}
        for server, groups_dealt in dealt.items():
            error = asked[server].exception()
            if isinstance(error, DataError):
                rotation.failed(server, clock(), since=sent)
                failed.add(server)
                left += groups_dealt
                if len(failed) == rotation.number:
                    raise error
            else:
                drawn |= zip(chain(*groups_dealt), asked[server].result(), strict=True)
                rotation.worked(server)
    return drawn


def ask(address: str, timeout: float, body: dict[str, Any] | None = None) -> Any:
    """Send a request and return the JSON response; raise `DataError` if there is none."""
    headers = authorization(environment_key(KEY))
    try:
        method = "GET" if body is None else "POST"
        completion = httpx.request(method, address, headers=headers, timeout=timeout, json=body)
        completion.raise_for_status()
        return completion.json()
    except httpx.HTTPStatusError as error:
        raise DataError(f"{address}: {error.response.status_code} {error.response.text[:200]}") from error
    except (httpx.HTTPError, ValueError) as error:
        raise DataError(f"{address}: no answer ({error}); is the server up?") from error
