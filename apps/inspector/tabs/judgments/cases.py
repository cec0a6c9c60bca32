"""Cases of a run in full: texts, correct responses, and the judgments of all scorers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .....benchmarks.types import ALL, Interval
from .....rm.errors import UNREADABLE, DataError, UsageError
from .....rm.types import AnyCompletion, Messages, completion_text
from ....runs.tables import ITEMS, conversations
from ...database import WAY_OUT
from .index import ITEM_COLUMNS, ITEM_TABLE, OUTCOME, SCORE_TABLE, Index, index
from .queries import Run, Scorer


class Verdict(NamedTuple):
    """Judgment of a case by one scorer: scores in the order of the responses, or the reason for abstaining."""

    scorer: Scorer
    outcome: str
    margin: float | None
    scores: tuple[float, ...]
    abstained: str


@dataclass(frozen=True)
class Item:
    """A case with the judgments of all scorers. `best` contains the indices of the right responses."""

    scorer: str
    case: str
    subset: str
    cluster: str
    messages: Messages
    answers: tuple[AnyCompletion, ...]
    best: tuple[int, ...]
    verdicts: tuple[Verdict, ...]
    interval: Interval | None = None
    """Accuracy of the chosen scorer on the case's subset, with its confidence interval."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the responses."""
        return tuple(map(completion_text, self.answers))

    @property
    def verdict(self) -> Verdict | None:
        """Judgment of the chosen scorer."""
        return next((verdict for verdict in self.verdicts if verdict.scorer.name == self.scorer), None)

    @property
    def pair(self) -> tuple[int, int] | None:
        """Indices of the right response with the lowest score and the wrong response with the highest score.

        A judgment's margin is the difference of these two scores. Without scores, the first right and the first wrong
        response. None if every response is right.
        """
        wrong = [index for index in range(len(self.answers)) if index not in self.best]
        if not (wrong and self.best):
            return None
        scores = self.verdict.scores if self.verdict and self.verdict.scores else [0.0] * len(self.answers)
        return min(self.best, key=lambda index: scores[index]), max(wrong, key=lambda index: scores[index])


def item(run: Run, scorer: str, case: str) -> Item:
    """Load a case: its texts, the right responses, and the judgment of every scorer."""
    tables = index(run.folder)
    case_row = tables.query('SELECT place FROM cases WHERE "case" = $case', {"case": case})
    if not case_row:
        raise UsageError(f"{run.folder} has no case '{case}'; choose a case of the list")
    return items(run, scorer, [case_row[0][0]])[0]


def items(run: Run, scorer: str, rows: Sequence[int]) -> list[Item]:
    """Load the cases at these rows of the table of items."""
    tables = index(run.folder)
    texts = tables.rows(ITEM_TABLE, ITEM_COLUMNS, rows)
    judged = _stored_outcomes(tables, run, {texts[row][0]: row for row in rows})
    try:
        return [_item(run, scorer, texts[row], judged[texts[row][0]]) for row in rows]
    except UNREADABLE as error:
        raise DataError(f"{run.folder}: {ITEMS} is damaged ({error}); {WAY_OUT}") from error


def _item(run: Run, scorer: str, texts: Sequence[Any], verdicts: dict[str, tuple]) -> Item:
    """Return a case from its stored texts and verdicts. Raise `ValueError` if they are damaged."""
    case, subset, cluster, prompt, messages, answers, best = texts
    if not {*best} <= {*range(len(answers))} or not all(isinstance(value, str) for value in (case, prompt, *answers)):
        raise ValueError(f"case '{case}' lacks a text, or its right response does not exist")
    return Item(
        scorer,
        case,
        subset,
        cluster,
        *_texts(messages, prompt, answers),
        tuple(best),
        tuple(Verdict(known, *verdicts[known.name]) for known in run.scorers if known.name in verdicts),
        run.intervals.get(scorer, {}).get(subset or ALL),
    )


def _stored_outcomes(tables: Index, run: Run, cases: dict[str, int]) -> dict[str, dict[str, tuple]]:
    """Return case -> scorer -> outcome, margin, scores and the reason for abstaining.

    `write_scores` writes each scorer's cases in the order of the items, so rows are first looked up by position.
    """
    columns = f'"case", scorer, {OUTCOME}, margin, scores, abstained'
    ((total,),) = tables.query("SELECT count(*) FROM cases")
    lines = [index * total + row for index in range(len(run.scorers)) for row in cases.values()]
    rows = [row for row in tables.rows(SCORE_TABLE, columns, lines).values() if row[0] in cases]
    if len(rows) < len(lines):
        text = f'SELECT {columns} FROM {SCORE_TABLE} WHERE list_contains($cases::VARCHAR[], "case")'
        rows = tables.query(text, {"cases": list(cases)})
    judged: dict[str, dict[str, tuple]] = {case: {} for case in cases}
    for case, scorer, outcome, margin, scores, why in rows:
        judged[case][scorer] = outcome, margin, tuple(scores or ()), why or ""
    return judged


def _texts(messages: str, prompt: str, answers: Sequence[str]) -> tuple[Messages, tuple[AnyCompletion, ...]]:
    """Return the prompt's messages and the responses. An unreadable prompt becomes a plain-text message."""
    try:
        return conversations(messages, answers)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ({"role": "user", "content": prompt},), tuple(answers)
