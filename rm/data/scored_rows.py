"""Load completions with scores by objective, together with preference pairs."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..types import Example, PreferencePair
from .pairs import OnBadRow, RowReport, as_number, collect, column, parse_examples, parse_pair
from .solutions import Solution


class ScoredCompletion(NamedTuple):
    """A completion and its score for each rated objective, in the raters' units."""

    id: str
    example: Example
    scores: Mapping[str, float]


class Judged(NamedTuple):
    """Preference pairs and scored completions of a data set, or its solutions with labelled steps."""

    pairs: list[PreferencePair]
    completions: list[ScoredCompletion]
    solutions: Sequence[Solution] = ()


def load_judged(
    sources: str | Sequence[str], objectives: Sequence[str], *, on_bad_row: OnBadRow = "refuse"
) -> tuple[Judged, RowReport]:
    """Load pairs like `load_pairs`, and scored completions, from the same or from different files.

    A completion's scores are columns named after the objectives (HelpSteer: prompt, response, helpfulness, ...) or one
    column `scores` {objective: number}; a pair's are `scores_chosen` and `scores_rejected`. None is a missing score.
    """
    rows, report = collect(sources, _parser(objectives), on_bad_row, unique_ids=True)
    pairs, completions = (list(chain.from_iterable(parts)) for parts in zip(*(row[:2] for row in rows), strict=True))
    return Judged(pairs, completions), report


def _parser(objectives: Sequence[str]) -> Callable[[Mapping[str, Any]], Judged]:
    def parse(values: Mapping[str, Any]) -> Judged:
        if "chosen" in values:
            pair = parse_pair(values)
            side_scores = [_scores(values.get(f"scores_{side}"), objectives) for side in ("chosen", "rejected")]
            rated = zip(pair.examples, side_scores, strict=True)
            return Judged([pair], [ScoredCompletion(pair.id, example, scores) for example, scores in rated if scores])
        ((name, example),) = parse_examples(values)
        scores = _scores(values.get("scores", values), objectives)
        if not scores:
            column(values, objectives[0])
            raise ValueError(f"no score for {', '.join(objectives)}")
        return Judged([], [ScoredCompletion(name, example, scores)])

    return parse


def _scores(stated: Any, objectives: Sequence[str]) -> dict[str, float]:
    if stated is None:
        return {}
    if not isinstance(stated, Mapping):
        raise ValueError(f"scores are {{objective: number}}, got {str(stated)[:60]}")
    gaps = {name: stated[name] for name in objectives if stated.get(name) is not None}
    scores = {name: as_number(value, f"the score '{name}'") for name, value in gaps.items()}
    return {name: score for name, score in scores.items() if score is not None}
