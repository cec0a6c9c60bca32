"""Parsing of rows to cases: a prompt, several responses, and the indices of the right responses."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..rm.data.conversation_split import as_completion, first_turn
from ..rm.data.pairs import column, row_prompt
from ..rm.types import completion_json, completion_text, content_hash
from .types import Case

IDS = ("case", "id", "prompt_id", "case_id")
"""Columns with a case's id, by precedence: ours, of preference files and BiGGen Bench, HealthBench, RubricBench."""


def stated_id(values: Mapping[str, Any]) -> str | None:
    """Return the id of the case that a row describes or belongs to; None if the row has no id column.

    >>> stated_id({"id": 7, "prompt_id": "p"}), stated_id({"prompt": "?"})
    ('7', None)
    """
    return next((str(values[name]) for name in IDS if values.get(name) is not None), None)


def unique_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids, with a number appended to each repetition.

    >>> unique_ids(["a", "b", "a", "a#2"])
    ['a', 'b', 'a#2', 'a#2#2']
    """
    counts: Counter[str] = Counter()
    unique: dict[str, None] = {}
    for name in ids:
        counts[name] += 1
        while (candidate := name if counts[name] == 1 else f"{name}#{counts[name]}") in unique:
            counts[name] += 1
        unique[candidate] = None
    return [*unique]


def parse_case(values: Mapping[str, Any]) -> Case:
    """Parse a case from a row with `prompt`, `answers` (two or more) and `best` (indices of right answers, from 0).

    `authors` is optional. A row without an id is named by a hash of its texts. Raise a `ValueError` for an invalid row.
    """
    prompt, stated, best = row_prompt(values), column(values, "answers"), column(values, "best")
    if not isinstance(stated, list) or not all(isinstance(answer, str | list) for answer in stated):
        raise ValueError(f"'answers' must be a list of texts, or of lists of messages, got {str(stated)[:60]}")
    answers = [as_completion(answer, "answers") for answer in stated]
    if not all(completion_text(answer).strip() for answer in answers):
        raise ValueError("'answers' contains an empty text; fill it, or remove it")
    indices = best if isinstance(best, list) else [best]
    if not all(type(index) is int for index in indices):
        raise ValueError(f"'best' must be the index of the right answer or a list of indices, got {best!r}")
    return Case(
        id=stated_id(values) or content_hash([prompt, [*map(completion_json, answers)]]),
        prompt=prompt,
        answers=tuple(answers),
        best=tuple(indices),
        subset=str(values.get("subset") or ""),
        cluster=str(values.get("cluster") or first_turn(prompt)),
        reference=str(values.get("reference") or ""),
        authors=_authors(values.get("authors")),
    )


def _authors(stated: Any) -> tuple[str, ...]:
    if stated is not None and not (
        isinstance(stated, list) and all(isinstance(author, str) and author for author in stated)
    ):
        raise ValueError(f"'authors' must be a list with the name of each answer's model, got {str(stated)[:60]}")
    return tuple(stated or ())
