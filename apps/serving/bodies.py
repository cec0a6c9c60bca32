"""Conversations -> the bodies of /score, and what it answers -> rewards."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...rm.errors import DataError
from ...rm.types import Example, completion_turns

EACH = 256
"""Conversations of one request, where the server allows as many."""


def row(place: int, example: Example) -> bytes:
    """One conversation; `place` is for the message about one that cannot be sent."""
    answer = completion_turns(example.answer)
    marked = [{**answer[0], "begins_completion": True}, *answer[1:]] if len(answer) > 1 else answer
    turns = [*example.prompt, *marked]
    try:
        return json.dumps(turns, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"conversation {place}: half a character cannot be written as UTF-8 ({error.reason})"
        ) from error


def requests(sizes: Sequence[int], limits: Mapping[str, int], each: int = EACH) -> Iterator[list[int]]:
    """Places of rows of these sizes in bytes that go together: within a server's limits, as a token has a byte or more.

    >>> limits = {"request_items": 512, "request_tokens": 100, "body_bytes": 1000}
    >>> list(requests([40, 40, 40, 120, 1], limits)), list(requests([1, 1, 1], limits, each=2))
    ([[0, 1], [2], [3], [4]], [[0, 1], [2]])
    """
    most = min(limits["body_bytes"] // 2, limits["request_tokens"])
    places: list[int] = []
    held = 0
    for index, size in enumerate(sizes):
        if places and (len(places) >= min(each, limits["request_items"]) or held + size > most):
            yield places
            places, held = [], 0
        places.append(index)
        held += size
    if places:
        yield places


def body(rows: Sequence[bytes], *, truncate: bool) -> bytes:
    """Of POST /score."""
    head = b'{"truncate":true,' if truncate else b"{"
    return head + b'"conversations":[' + b",".join(rows) + b"]}"


def truncated_of(answer: Mapping[str, Any]) -> list[bool]:
    """Whether each conversation was cut."""
    return [bool(one.get("truncated")) for one in answer["results"]]


def rewards_of(answer: Mapping[str, Any], objectives: Sequence[str]) -> np.ndarray:
    """[N, K] in float64; NaN where the model has no finite score."""
    scores = [one["scores"] for one in answer["results"]]
    found = [[np.nan if (value := score[name]) is None else value for name in objectives] for score in scores]
    return np.array(found, float).reshape(len(scores), len(objectives))
