"""Conversion of conversations to request bodies of /score, and of responses to rewards."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...rm.contract.scoring_contract import ScoringContract
from ...rm.errors import DataError, UsageError, did_you_mean
from ...rm.kinds.process import ProcessContract
from ...rm.types import Example, Steps, completion_turns

EACH = 256
"""Maximum number of conversations per request. The server's limit may be lower."""


def rows(examples: Sequence[Example], contract: ScoringContract) -> list[bytes]:
    """Return the turns of each conversation as JSON, for a server with this contract."""
    separator = contract.step_separator if isinstance(contract, ProcessContract) else None
    return [_row(index, example, separator) for index, example in enumerate(examples)]


def _row(index: int, example: Example, separator: str | None) -> bytes:
    """Return the turns of one conversation as JSON. The server splits completions into steps at the `separator`."""
    completion = example.completion
    if separator is not None and isinstance(completion, Steps):
        text = separator.join(completion.steps)
        if tuple(step for step in text.split(separator) if step.strip()) != completion.steps:
            raise DataError(
                f"conversation {index}: a step is blank or has the separator {separator!r} in it, at which the server "
                "splits; rate the steps with the model's folder"
            )
        completion = text
    answer = completion_turns(completion)
    marked = [{**answer[0], "begins_completion": True}, *answer[1:]] if len(answer) > 1 else answer
    turns = [*example.prompt, *marked]
    try:
        return json.dumps(turns, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"conversation {index}: an unpaired surrogate cannot be written as UTF-8 ({error.reason})"
        ) from error


def requests(sizes: Sequence[int], limits: Mapping[str, int], each: int = EACH) -> Iterator[list[int]]:
    """Yield the row indices of each request, from the row sizes in bytes and the server's limits.

    A request has at most `each` rows. The number of bytes is an upper bound of the number of tokens.

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


def rewards_of(answer: Mapping[str, Any], objectives: Sequence[str]) -> np.ndarray:
    """Return the rewards [N, K] of a response in float64. NaN where the model has no finite score."""
    scores = [result["scores"] for result in answer["results"]]
    values = [[np.nan if (value := score[name]) is None else value for name in objectives] for score in scores]
    return np.array(values, float).reshape(len(scores), len(objectives))


def check_objective(name: str | None, objectives: Sequence[str]) -> None:
    """Raise an error if the model does not have the objective."""
    if name is not None and name not in objectives:
        raise UsageError(f"no objective '{name}'; {did_you_mean(name, objectives)}")


def one_number(rewards: np.ndarray, objectives: Sequence[str], name: str | None) -> np.ndarray:
    """Return one reward per row: the objective `name`, or the mean of all objectives if `name` is None.

    >>> one_number(np.array([[1.0, 3.0]]), ("helpful", "harmless"), None)
    array([2.])
    """
    return rewards.mean(1) if name is None else rewards[:, [*objectives].index(name)]
