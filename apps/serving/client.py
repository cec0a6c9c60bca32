"""Client of a served reward model: the method `rate`, and a reward function for TRL's trainers."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import httpx
import numpy as np

from ...rm.contract.scoring_contract import contract_of
from ...rm.data.conversation_split import as_prompt, completion_start
from ...rm.errors import CheckFailed, DataError, UsageError
from ...rm.io.api_keys import authorization, clean_token
from ...rm.io.server_rotation import on_this_machine
from ...rm.types import AnyCompletion, Example, completion
from .bodies import body, check_objective, one_number, requests, rewards_of, rows

HEADER = "x-scoring-contract"
BUSY = (429, 503)
AGAIN = 0.5
"""Delay in seconds before a failed connection is retried."""


class Busy(NamedTuple):
    """Reason for a failed request, and the delay in seconds before a retry."""

    delay: float
    reason: str


class TooLong(DataError):
    """Error for conversations beyond the model's maximum length, with their lengths in tokens."""

    def __init__(self, sentence: str, lengths: Sequence[int], limit: int):
        super().__init__(sentence)
        self.lengths, self.limit = lengths, limit


class ScoringClient:
    """Client of a reward model behind `rewardlab serve`. Raise an error if the server's scoring contract changes.

    If the server is full (429), shuts down (503) or does not respond, requests are retried for at most `patience`
    seconds, after the delay that the server specifies. With `truncate`, conversations beyond the maximum length are
    truncated as by `rate` of the model; otherwise they raise `DataError`. `http` is an optional HTTP client.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        truncate: bool = False,
        patience: float = 120.0,
        timeout: float = 120.0,
        http: httpx.Client | None = None,
    ):
        self.url, self.truncate, self.patience = url.rstrip("/"), truncate, patience
        here = on_this_machine(url)
        self.http = http or httpx.Client(timeout=timeout, trust_env=not here)
        self.headers = {b"content-type": b"application/json"} | authorization(clean_token(token))
        try:
            health = self.http.get(f"{self.url}/health").json()
            self.contract = contract_of(health["scoring"])
            self.limits: dict[str, int] = health["limits"]
            stated = str(health["contract"])
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UsageError(f"{self.url}: no answer ({error}); is rewardlab serve running there?") from error
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{self.url}/health: not the response of a rewardlab server ({error}); check the address"
            ) from error
        self._check_contract(stated)

    def __enter__(self) -> "ScoringClient":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return rewards [N, K] in float64. NaN where the model has no finite score."""
        return self._rate_all(examples, skip_long=False)

    def as_reward(self, objective: str | None = None) -> Callable[..., list[float | None]]:
        """Return a function for TRL's `reward_funcs`: the reward of one objective, or the mean of all objectives.

        Prompts and completions may be strings or messages. The reward is None for a completion without a finite score.
        Unless `truncate` is set, it is also None for a conversation beyond the model's maximum length.
        """
        check_objective(objective, self.contract.objectives)

        def reward(prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float | None]:
            examples = [_example(*two) for two in zip(prompts, completions, strict=True)]
            rewards = one_number(self._rate_all(examples, skip_long=True), self.contract.objectives, objective)
            return [float(value) if np.isfinite(value) else None for value in rewards]

        reward.__name__ = objective or "reward"
        return reward

    # ---- requests ----

    def _rate_all(self, examples: Sequence[Example], *, skip_long: bool) -> np.ndarray:
        rewards = np.full((len(examples), len(self.contract.objectives)), np.nan)
        bodies = rows(examples, self.contract)
        for indices in requests([len(row) for row in bodies], self.limits):
            try:
                rewards[indices] = self._rate_rows([bodies[index] for index in indices])
            except DataError as error:
                if not (skip_long and isinstance(error, TooLong)):
                    raise located(error, indices) from error
                short = [p for p, length in zip(indices, error.lengths, strict=True) if length <= error.limit]
                if short:
                    rewards[short] = self._rate_rows([bodies[index] for index in short])
        return rewards

    def _rate_rows(self, rows: Sequence[bytes]) -> np.ndarray:
        return rewards_of(self._send(body(rows, truncate=self.truncate)), self.contract.objectives)

    def _send(self, content: bytes) -> dict[str, Any]:
        until = time.monotonic() + self.patience
        while isinstance(response := self.once(content), Busy):
            # longer than stated, so that clients that were refused together do not retry together
            delay = response.delay * random.uniform(1.0, 1.5)
            if time.monotonic() + delay > until:
                raise UsageError(
                    f"{self.url}: {response.reason} for {self.patience:g} s; raise patience, or add servers"
                )
            time.sleep(delay)
        return response

    def once(self, content: bytes) -> dict[str, Any] | Busy:
        """Send one request to /score. Return the response, or `Busy` if the request may be retried."""
        try:
            answer = self.http.post(f"{self.url}/score", content=content, headers=self.headers)
        except httpx.TransportError as error:
            return Busy(AGAIN, f"no answer ({type(error).__name__})")
        if HEADER in answer.headers:
            self._check_contract(answer.headers[HEADER])
        if answer.status_code in BUSY:
            return Busy(retry_after(answer), f"status {answer.status_code}")
        if answer.status_code != 200:
            self._raise_refusal(answer)
        if HEADER not in answer.headers:
            raise UsageError(f"{self.url}/score: not the response of a rewardlab server; check what answers there")
        return answer.json()

    def _check_contract(self, stated: str) -> None:
        if stated != self.contract.hash():
            raise CheckFailed(
                f"{self.url} now scores under contract {stated}, and before under {self.contract.hash()}; the scores "
                "are not comparable, create a new client"
            )

    def _raise_refusal(self, answer: httpx.Response) -> NoReturn:
        try:
            error = answer.json()["error"]
            sentence = f"{self.url}: {error['message']}"
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{self.url}: status {answer.status_code}; check the URL") from None
        if "lengths" in error:
            raise TooLong(sentence, error["lengths"], error["limit"])
        raise (DataError if answer.status_code in (400, 413, 422) else UsageError)(sentence)


def located(error: DataError, indices: Sequence[int]) -> DataError:
    """Return the refusal of a request with the index of its first conversation, from which the server counts."""
    if indices[0] == 0:
        return error
    sentence = f"{error} (counted from conversation {indices[0]})"
    return TooLong(sentence, error.lengths, error.limit) if isinstance(error, TooLong) else DataError(sentence)


def retry_after(answer: httpx.Response) -> float:
    """Return the delay in seconds before a retry, from the response's body or its Retry-After header; 1 by default."""
    try:
        return float(answer.json()["error"]["retry_after"])
    except (ValueError, KeyError, TypeError):
        stated = answer.headers.get("retry-after", "")
        return float(stated) if stated.isdigit() else 1.0


def _example(prompt: Any, answer: Any) -> Example:
    if isinstance(answer, AnyCompletion):
        return Example(as_prompt(prompt), answer)
    turns = as_prompt(answer)
    if turns[-1]["role"] != "assistant":
        raise DataError(f"the last turn of a completion is '{turns[-1]['role']}', not 'assistant'")
    start = completion_start(turns)
    return Example((*as_prompt(prompt), *turns[:start]), completion(turns[start:]))
