"""Completions from servers with OpenAI's completions protocol and token ids, such as vLLM's."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, cast

import httpx
from trl import GRPOConfig

from ....rm.errors import DataError, UsageError
from ....rm.io.api_keys import authorization, environment_key
from ....rm.io.server_rotation import Rotation, addresses, check_address, on_this_machine
from .._partners import group_size

KEY = "VLLM_API_KEY"  # environment variable of vLLM's own server


def server_rollouts(
    urls: str | Sequence[str], *, timeout: float = 600.0
) -> Callable[[Sequence[Any], Any], dict[str, list]]:
    """Create a rollout function of TRL's trainers that gets completions from servers, as token ids.

    `urls` are the servers' roots, such as http://127.0.0.1:8000. Each serves a saved policy, which may be older than
    the trained one: its log-probabilities are returned, and ratios are relative to them. Start vLLM's server with
    `--logprobs-mode processed_logprobs`, so that they include temperature and truncation.

    Groups are distributed over the servers. If a server fails, its groups go to the other servers, and the server
    pauses for an increasing delay. Raise `DataError` if all servers fail.
    """
    servers = [url.rstrip("/") for url in addresses(urls, "--rollout_server")]
    for url in servers:
        check_address(url, "--rollout_server", key=KEY)
    environment_key(KEY)  # one that no header can hold is refused before the models are loaded
    rotation = Rotation(len(servers))

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, list]:
        ids = trainer._tokenize_prompts(list(prompts))[0]
        parameters = sampling_parameters(trainer.args)
        size = len(ids) if len(servers) == 1 else group_size(trainer.args, training=trainer.model.training)
        groups = [range(start, min(start + size, len(ids))) for start in range(0, len(ids), size)]

        def draw(server: int, rows: list[int]) -> list[dict[str, Any]]:
            return completions(servers[server], [ids[row] for row in rows], parameters, timeout)

        choice_of_row = distribute(rotation, groups, draw)
        choices = [choice_of_row[row] for row in range(len(ids))]
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


def sampling_parameters(args: GRPOConfig) -> dict[str, Any]:
    """Return the sampling settings of TRL's arguments as parameters of the protocol."""
    return {
        "max_tokens": args.max_completion_length,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": args.top_k or -1,
        "min_p": args.min_p or 0.0,
        "repetition_penalty": args.repetition_penalty,
        **cast(dict[str, Any], args.generation_kwargs or {}),
    }


def completions(url: str, ids: Sequence[list[int]], parameters: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
    """Request one completion per prompt; return choices in order, with tokens and log-probabilities."""
    try:
        model = request(f"{url}/v1/models", timeout)["data"][0]["id"]
        body = {"model": model, "prompt": ids, **parameters, "logprobs": 0, "return_token_ids": True}
        choices = sorted(request(f"{url}/v1/completions", timeout, body)["choices"], key=lambda choice: choice["index"])
    except (LookupError, TypeError) as error:
        raise UsageError(f"{url}: not a response of a completion server ({error!r}); check the address") from error
    if len(choices) != len(ids):
        raise DataError(f"{url} returned {len(choices)} completions for {len(ids)} prompts")
    if not all(choice.get("token_ids") and choice.get("logprobs") for choice in choices):
        raise UsageError(
            f"{url}: its completions have no token_ids or no logprobs; use a server that supports return_token_ids, "
            "such as vLLM's"
        )
    return choices


def distribute(
    rotation: Rotation,
    groups: Sequence[range],
    draw: Callable[[int, list[int]], list[dict[str, Any]]],
    clock: Callable[[], float] = time.monotonic,
) -> dict[int, dict[str, Any]]:
    """Share the groups among the available servers; return `draw`'s results by row, or raise the last error."""
    results: dict[int, dict[str, Any]] = {}
    remaining, failures = list(groups), set[int]()
    while remaining:
        shares: dict[int, list[range]] = {}
        for group in remaining:
            shares.setdefault(rotation.choose(clock(), but=failures), []).append(group)
        start, remaining = clock(), []
        with ThreadPoolExecutor(len(shares)) as pool:
            futures = {server: pool.submit(draw, server, [*chain(*share)]) for server, share in shares.items()}
        for server, share in shares.items():
            error = futures[server].exception()
            if isinstance(error, DataError):
                rotation.failed(server, clock(), since=start)
                failures.add(server)
                remaining += share
                if len(failures) == rotation.number:
                    raise error
            else:
                results |= zip(chain(*share), futures[server].result(), strict=True)
                rotation.succeeded(server)
    return results


def request(address: str, timeout: float, body: dict[str, Any] | None = None) -> Any:
    """Send a request and return the JSON response; raise `DataError` if there is none."""
    headers = authorization(environment_key(KEY))
    try:
        method = "GET" if body is None else "POST"
        here = on_this_machine(address)
        response = httpx.request(method, address, headers=headers, timeout=timeout, json=body, trust_env=not here)
        response.raise_for_status()
        return response.json()
    except httpx.HTTPStatusError as error:
        raise DataError(f"{address}: {error.response.status_code} {error.response.text[:200]}") from error
    except (httpx.HTTPError, ValueError) as error:
        raise DataError(f"{address}: no response ({error}); check that the server is running") from error
