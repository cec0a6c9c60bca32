"""Request bodies of /score from conversations, rewards from its responses, and one reward of several objectives."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...rm.contract.readings import Reading
from ...rm.errors import DataError, UsageError, did_you_mean
from ...rm.types import Example, completion_turns

EACH = 256
"""Maximum number of conversations in a request, if the server allows as many."""


def row(index: int, example: Example) -> bytes:
    """Return the turns of one conversation as JSON; `index` locates it in error messages."""
    answer = completion_turns(example.completion)
    marked = [{**answer[0], "begins_completion": True}, *answer[1:]] if len(answer) > 1 else answer
    turns = [*example.prompt, *marked]
    try:
        return json.dumps(turns, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"conversation {index}: half a character cannot be written as UTF-8 ({error.reason})"
        ) from error


def requests(sizes: Sequence[int], limits: Mapping[str, int], each: int = EACH) -> Iterator[list[int]]:
    """Yield the indices of rows that go together, by their sizes in bytes: a token has a byte or more.

    >>> limits = {"request_items": 512, "request_tokens": 100, "body_bytes": 1000}
    >>> list(requests([40, 40, 40, 120, 1], limits)), list(requests([1, 1, 1], limits, each=2))
    ([[0, 1], [2], [3], [4]], [[0, 1], [2]])
    """
    most = min(limits["body_bytes"] // 2, limits["request_tokens"])
    batch: list[int] = []
    held = 0
    for index, size in enumerate(sizes):
        if batch and (len(batch) >= min(each, limits["request_items"]) or held + size > most):
            yield batch
            batch, held = [], 0
        batch.append(index)
        held += size
    if batch:
        yield batch


def body(rows: Sequence[bytes], *, truncate: bool) -> bytes:
    """Return the body of POST /score."""
    head = b'{"truncate":true,' if truncate else b"{"
    return head + b'"conversations":[' + b",".join(rows) + b"]}"


def readings_of(answer: Mapping[str, Any]) -> list[Reading]:
    """Return what the server's model read of each conversation."""
    return [Reading(bool(result.get("truncated")), str(result.get("omitted") or "")) for result in answer["results"]]


def rewards_of(answer: Mapping[str, Any], objectives: Sequence[str]) -> np.ndarray:
    """Return rewards [N, K] in float64; NaN where the model has no finite score."""
    scores = [result["scores"] for result in answer["results"]]
    values = [[np.nan if (value := score[name]) is None else value for name in objectives] for score in scores]
    return np.array(values, float).reshape(len(scores), len(objectives))


def check_objective(name: str | None, objectives: Sequence[str]) -> None:
    """Raise an error if the model does not have the objective."""
    if name is not None and name not in objectives:
        raise UsageError(f"no objective '{name}'; {did_you_mean(name, objectives)}")


def one_number(rewards: np.ndarray, objectives: Sequence[str], name: str | None) -> np.ndarray:
    """Rewards [N, K] -> [N].

    >>> one_number(np.array([[1.0, 3.0]]), ("helpful", "harmless"), None)
    array([2.])
    """
    return rewards.mean(1) if name is None else rewards[:, [*objectives].index(name)]
