"""Load completions with scores by objective, together with preference pairs, and lists of ranked completions."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from ..types import OVERALL, AnyCompletion, Example, Messages, PreferencePair, completion_json, prompt_text
from .conversation_split import as_completion, as_prompt
from .messages_and_tools import parsed_object, with_columns
from .pairs import (
    OnBadRow,
    RowReport,
    as_number,
    check_filled,
    collect,
    column,
    id_or_hash,
    parse_examples,
    parse_pair,
    text_list,
)
from .solutions import Solution

SCORE_COLUMNS = ("id", "file", "row", "truncated", "omitted", "spread", "low", "high")
"""Names of the columns that `rewardlab score` writes besides the rewards."""


def reward_columns(objectives: Sequence[str]) -> list[str]:
    """Return the column of each objective's reward in the output of `rewardlab score`.

    >>> reward_columns(["helpful", "row"])
    ['helpful', 'reward_row']
    """
    return [f"reward_{name}" if name in SCORE_COLUMNS else name for name in objectives]


class ScoredCompletion(NamedTuple):
    """A completion and its score for each rated objective, in the raters' units."""

    id: str
    example: Example
    scores: Mapping[str, float]


class RankedList(NamedTuple):
    """Completions of a prompt with their scores: higher is better, equal is a tie, and NaN is a missing score."""

    id: str
    prompt: Messages
    completions: tuple[AnyCompletion, ...]
    scores: tuple[float, ...]

    @property
    def examples(self) -> list[Example]:
        """The prompt with each completion."""
        return [Example(self.prompt, completion) for completion in self.completions]


class Judged(NamedTuple):
    """Preference pairs and scored completions of a data set, or its solutions with labelled steps, or ranked lists."""

    pairs: list[PreferencePair]
    completions: list[ScoredCompletion]
    solutions: Sequence[Solution] = ()
    lists: Sequence[RankedList] = ()


def load_judged(
    sources: str | Sequence[str], objectives: Sequence[str], *, on_bad_row: OnBadRow = "refuse"
) -> tuple[Judged, RowReport]:
    """Load pairs like `load_pairs`, and scored completions, from the same or from different files.

    A completion's scores are columns named after the objectives (HelpSteer: prompt, response, helpfulness, ...) or one
    column `scores` {objective: number}; a pair has `scores_chosen` and `scores_rejected`. None is a missing score.
    """
    rows, report = collect(sources, _parser(objectives), on_bad_row, unique_ids=True)
    pairs, completions = (list(chain.from_iterable(parts)) for parts in zip(*(row[:2] for row in rows), strict=True))
    return Judged(pairs, completions), report


def _parser(objectives: Sequence[str]) -> Callable[[Mapping[str, Any]], Judged]:
    """Return the function that parses a row into a preference pair or a scored completion."""

    def parse(values: Mapping[str, Any]) -> Judged:
        if "chosen" in values:
            pair = parse_pair(values)
            side_scores = [_scores(values.get(f"scores_{side}"), objectives) for side in ("chosen", "rejected")]
            rated = zip(pair.examples, side_scores, strict=True)
            return Judged([pair], [ScoredCompletion(pair.id, example, scores) for example, scores in rated if scores])
        ((name, example),) = parse_examples(values)
        scores = _scores(values.get("scores") or values, objectives)
        if not scores:
            column(values, objectives[0])
            raise ValueError(f"no score for {', '.join(objectives)}")
        return Judged([], [ScoredCompletion(name, example, scores)])

    return parse


def _scores(value: Any, objectives: Sequence[str]) -> dict[str, float]:
    """Return the scores of the named objectives, without missing ones."""
    stated = parsed_object(value)
    if stated is None:
        return {}
    if not isinstance(stated, Mapping):
        raise ValueError(f"scores must be {{objective: number}}, got {str(stated)[:60]}")
    gaps = {name: stated[name] for name in objectives if stated.get(name) is not None}
    scores = {name: as_number(value, f"the score '{name}'") for name, value in gaps.items()}
    return {name: score for name, score in scores.items() if score is not None}


# ---- ranked lists ----

LISTS, ITEMS = ("completions", "responses", "answers"), ("completion", "response", "answer", "text")
"""Columns with the completions of a prompt, and fields with the text of a completion stored with its rank."""


def load_lists(sources: str | Sequence[str], objective: str) -> tuple[list[RankedList], RowReport]:
    """Load ranked lists of completions; bad rows are in the report. Formats are recognised by their columns.

    `prompt` and `completions` (or `responses`, `answers`) with `ranks` (the lowest is best) or `scores`, or with a
    `rank` or `score` in each completion, as in NeMo-RL's and Nectar's rows; preference pairs, whose scores are
    P(better); and rows of `load_judged` with one completion and its score, which are joined by prompt.
    """
    rows, report = collect(sources, partial(parse_list, objective=objective), "skip", unique_ids=True, expand=False)
    lists: dict[Any, RankedList] = {}
    for index, row in enumerate(rows):
        key = prompt_text(row.prompt) if len(row.scores) == 1 else index
        part = lists.get(key, row._replace(completions=(), scores=()))
        lists[key] = part._replace(completions=part.completions + row.completions, scores=part.scores + row.scores)
    return [*lists.values()], report


def parse_list(values: Mapping[str, Any], objective: str | None = None) -> RankedList:
    """Parse one row of `load_lists`; raise `ValueError` if it is unusable.

    Without an `objective`, pairs have their overall label, completions may be blank or without a score, and columns
    with scores are not read.
    """
    if "chosen" in values:
        pair = parse_pair(values)
        wins = pair.chance(objective or OVERALL)
        return RankedList(pair.id, pair.prompt, (pair.chosen, pair.rejected), (wins, 1 - wins))
    name = next((name for name in LISTS if name in values), None)
    if name is None:
        if objective is None:
            ((id, example),) = parse_examples(values)
            return RankedList(id, example.prompt, (example.completion,), (math.nan,))
        (scored,) = _parser([objective])(values).completions
        return RankedList(scored.id, scored.example.prompt, (scored.example.completion,), (scored.scores[objective],))
    items = text_list(values, name)
    source = "context" if "context" in values and "prompt" not in values else "prompt"
    prompt = with_columns(as_prompt(column(values, source)), values)
    completions, scores = zip(*(_item(item, name) for item in items), strict=True) if items else ((), ())
    texts = {f"{name}[{index}]": completion for index, completion in enumerate(completions)}
    check_filled(prompt, objective is None, **texts)
    for sign, stated in ((-1.0, "ranks"), (1.0, "scores")) if objective else ():
        if stated in values:
            scores = [_signed(sign, value, stated) for value in text_list(values, stated)]
    if objective and (len(scores) != len(completions) or sum(not math.isnan(score) for score in scores) < 2):
        raise ValueError(f"a list needs 2 or more completions with a rank or score: {scores} of {len(items)} {name}")
    id = id_or_hash(values, [prompt, *map(completion_json, completions)])
    return RankedList(id, prompt, completions, tuple(scores))


def _item(item: Any, name: str) -> tuple[AnyCompletion, float]:
    """Return a completion of a list and its score; NaN if the rank or score is not stored with it."""
    if not isinstance(item, Mapping):
        return as_completion(item, name), math.nan
    text = next((key for key in ITEMS if key in item), ITEMS[0])
    sign, stated = (-1.0, "rank") if "rank" in item else (1.0, "score")
    return as_completion(column(item, text), name), _signed(sign, item.get(stated), stated)


def _signed(sign: float, value: Any, name: str) -> float:
    """Return a rank or score times `sign`; NaN if it is missing."""
    number = None if value is None else as_number(value, f"'{name}'")
    return math.nan if number is None else sign * number
