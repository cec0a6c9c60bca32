"""Ranked completions of a prompt, as in NeMo-RL, and the preference pairs that they hold."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Any

from ..types import PreferencePair, completion_turns
from .readers import Row

UNREAD = "completions[]."
"""Prefix of columns that stand for unread fields of the completions."""


def expand_rankings(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows; a row of ranked completions gives a preference pair for every two of different rank.

    Such a row has `context` (messages or text) and `completions`, a list of {rank, completion}. The lower rank is
    preferred, and equal ranks form no pair. A row with an id gives the ids `ID/I-J`, where completion I is preferred.
    """
    for row in rows:
        if row.error or not _is_ranking(row.values):
            yield row
            continue
        try:
            yield from [row._replace(values=pair) for pair in _pairs(row.values)]
        except ValueError as error:
            yield row._replace(error=str(error))


def ranking_row(pair: PreferencePair) -> dict[str, Any]:
    """Return a pair as a row of ranked completions. Both have rank 0 if neither is preferred."""
    better = pair.preferred()
    completions = [(better or pair).chosen, (better or pair).rejected]
    ranked = [
        {"rank": rank, "completion": list(completion_turns(completion))}
        for rank, completion in zip((0, 1 if better else 0), completions, strict=True)
    ]
    return {"id": pair.id, "context": list(pair.prompt), "completions": ranked}


def _is_ranking(values: Mapping[str, Any]) -> bool:
    completions = values.get("completions")
    ranked = isinstance(completions, list) and any(isinstance(item, Mapping) and "rank" in item for item in completions)
    return ranked and "context" in values and "chosen" not in values


def _pairs(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the preference pairs of a row of ranked completions, as rows."""
    completions = values["completions"]
    for number, item in enumerate(completions, 1):
        if not isinstance(item, Mapping) or type(item.get("rank")) is not int or "completion" not in item:
            raise ValueError(
                f"a completion must be {{rank, completion}} with a whole number as rank: item {number} of "
                f"'completions' is {item!r:.60}"
            )
    columns = {name: value for name, value in values.items() if name not in ("context", "completions")}
    unread = {name for item in completions for name in item if name not in ("rank", "completion")}
    columns |= {f"{UNREAD}{name}": True for name in unread}  # which are counted as ignored columns
    columns["prompt"] = values["context"]
    ids = {name: values[name] for name in ("id", "unique_id") if values.get(name) not in (None, "")}
    pairs = [
        columns
        | {"chosen": completions[i]["completion"], "rejected": completions[j]["completion"]}
        | {name: f"{value}/{i}-{j}" for name, value in ids.items()}
        for i, j in permutations(range(len(completions)), 2)
        if completions[i]["rank"] < completions[j]["rank"]
    ]
    if not pairs:
        raise ValueError(f"no preference: all {len(completions)} completions have rank {completions[0]['rank']}")
    return pairs
