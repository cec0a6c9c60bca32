"""What the inspector shows of a run folder: filtered pages of cases, one case in full, and its HTML. No Gradio here."""

import glob
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from ..rm.errors import DataError, UsageError
from ..rm.types import Messages
from .tables import ITEMS, SCORES

REPORT, SUMMARY = "report.md", "summary.json"
OUTCOMES = ("all", "wrong", "right", "tie", "abstained")
ORDERS = {"items": "place", "margin": "abs(margin), place"}  # DuckDB sorts NULL, an abstention, last
WAY_OUT = "run `rewardlab eval` again with --overwrite"


class Scorer(NamedTuple):
    """A scorer of the run and what it is there for: `model`, `reference` or `null`."""

    name: str
    role: str


@dataclass(frozen=True)
class Run:
    """An opened run folder; the tables stay on disk and are queried there."""

    folder: Path
    suite: str
    scorers: tuple[Scorer, ...]
    report: str

    @property
    def models(self) -> list[str]:
        """The scorers that the run was made for."""
        return [scorer.name for scorer in self.scorers if scorer.role == "model"]


@dataclass(frozen=True)
class Filter:
    """Which cases to show, seen through one scorer. `subset` and `max_margin` None: any; the search ignores case."""

    scorer: str
    outcome: str = "all"
    subset: str | None = None
    max_margin: float | None = None
    search: str = ""

    def __post_init__(self):
        if self.outcome not in OUTCOMES:
            raise UsageError(f"no outcome '{self.outcome}'; there is {', '.join(OUTCOMES)}")
        if self.max_margin is not None and not self.max_margin >= 0:
            raise UsageError(f"the largest |margin| is a number >= 0, got {self.max_margin}")


class Line(NamedTuple):
    """A case in the table: the lowest right and the highest wrong score, and how the prompt begins."""

    case: str
    subset: str
    outcome: str
    margin: float | None
    chosen: float | None
    rejected: float | None
    prompt: str


class Verdict(NamedTuple):
    """What one scorer made of a case: scores in the order of the answers, or why there are none."""

    scorer: Scorer
    outcome: str
    margin: float | None
    scores: tuple[float, ...]
    abstained: str


@dataclass(frozen=True)
class Item:
    """Everything about one case, seen through `scorer`; `best` holds the places of the right answers."""

    scorer: str
    case: str
    subset: str
    cluster: str
    messages: Messages
    answers: tuple[str, ...]
    best: tuple[int, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def verdict(self) -> Verdict | None:
        """What the chosen scorer made of it."""
        return next((verdict for verdict in self.verdicts if verdict.scorer.name == self.scorer), None)


# ---- opening ----


def open_run(folder: str | Path) -> Run:
    """Open a folder that `rewardlab eval` wrote, and check that its files are there and belong together."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f"there is no run folder {folder}; name one that `rewardlab eval` wrote with --output")
    for name in (ITEMS, SCORES, SUMMARY, REPORT):
        if not (folder / name).is_file():
            raise DataError(f"{folder} has no {name}, so it is no finished run of `rewardlab eval`; {WAY_OUT}")
    suite, scorers = _read_summary(folder / SUMMARY)
    report = (folder / REPORT).read_text(encoding="utf-8", errors="replace")
    run = Run(folder, suite, scorers, report)
    _check_tables(run)
    return run


def _read_summary(path: Path) -> tuple[str, tuple[Scorer, ...]]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        return str(summary["suite"]), tuple(Scorer(str(row["scorer"]), str(row["role"])) for row in summary["rows"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}); {WAY_OUT}") from error


def _check_tables(run: Run) -> None:
    """A damaged file is found here and not at the first click."""
    _query(run, f"SELECT {_ITEM_COLUMNS} FROM {_ITEMS} LIMIT 0", {}, ITEMS)
    _query(run, f"SELECT {_SCORE_COLUMNS} FROM {_SCORES} LIMIT 0", {}, SCORES)
    stray = _query(run, f'SELECT s."case" FROM {_SCORES} AS s ANTI JOIN {_ITEMS} AS i USING ("case") LIMIT 1', {})
    if stray:
        raise DataError(f"{run.folder / SCORES} scores '{stray[0][0]}', which {ITEMS} does not hold; {WAY_OUT}")
    judged = {name for (name,) in _query(run, f"SELECT DISTINCT scorer FROM {_SCORES}", {}, SCORES)}
    if missing := [scorer.name for scorer in run.scorers if scorer.name not in judged] or not run.scorers:
        raise DataError(f"{run.folder / SCORES} has no scores of {missing or 'any scorer'}; {WAY_OUT}")


# ---- queries: fixed texts, every value is a bound parameter ----

_ITEMS = "read_parquet($items, file_row_number = true, hive_partitioning = false)"
_SCORES = "read_parquet($scores, hive_partitioning = false)"
_ITEM_COLUMNS = (
    '"case"::VARCHAR, subset::VARCHAR, cluster::VARCHAR, prompt::VARCHAR, messages::VARCHAR,'
    " answers::VARCHAR[], best::BIGINT[]"
)
_SCORE_COLUMNS = 'scorer::VARCHAR, "case"::VARCHAR, scores::DOUBLE[], abstained::VARCHAR, margin::DOUBLE'
_OUTCOME = """CASE WHEN margin IS NULL THEN 'abstained' WHEN margin > 0 THEN 'right' WHEN margin < 0 THEN 'wrong'
              ELSE 'tie' END"""
_MATCHING = f"""
    SELECT "case", subset, prompt, best, scores, margin, file_row_number AS place, {_OUTCOME} AS outcome
    FROM (SELECT "case", scores, margin FROM {_SCORES} WHERE scorer = $scorer) JOIN {_ITEMS} USING ("case")
    WHERE ($outcome::VARCHAR = 'all' OR outcome = $outcome)
      AND ($subset::VARCHAR IS NULL OR subset = $subset)
      AND ($max_margin::DOUBLE IS NULL OR abs(margin) <= $max_margin)
      AND ($search::VARCHAR = '' OR contains(lower("case" || chr(10) || prompt), lower($search))
           OR contains(lower(array_to_string(answers, chr(10))), lower($search)))
"""


def _query(run: Run, text: str, values: Mapping[str, Any], *files: str) -> list[tuple]:
    """Rows of a query over the run's tables; its own database in memory, because several threads ask for pages."""
    paths = {"items": glob.escape(str(run.folder / ITEMS)), "scores": glob.escape(str(run.folder / SCORES))}
    bound = {name: value for name, value in {**paths, **values}.items() if f"${name}" in text}
    try:
        with duckdb.connect(config={"autoinstall_known_extensions": False}) as database:
            return database.execute(text, bound).fetchall()
    except duckdb.Error as error:
        names = " or ".join(files or (ITEMS, SCORES))
        raise DataError(f"{run.folder}: {names} is damaged ({str(error).splitlines()[0]}); {WAY_OUT}") from error


def _values(filter: Filter) -> dict[str, Any]:
    return {**vars(filter), "search": filter.search.strip()}


def scorers(run: Run) -> tuple[Scorer, ...]:
    """The run's scorers in the order of its report: models, references, nulls."""
    return run.scorers


def subsets(run: Run) -> dict[str, int]:
    """Subset -> its number of cases, by name."""
    return dict(_query(run, f"SELECT subset, count(*) FROM {_ITEMS} GROUP BY subset ORDER BY subset", {}, ITEMS))


def outcomes(run: Run, filter: Filter) -> dict[str, int]:
    """How many cases each outcome has (and `all`) under the filter, whatever outcome the filter itself asks for."""
    values = {**_values(filter), "outcome": "all"}
    found = dict(_query(run, f"SELECT outcome, count(*) FROM ({_MATCHING}) GROUP BY outcome", values))
    return {"all": sum(found.values())} | {name: found.get(name, 0) for name in OUTCOMES[1:]}


def count(run: Run, filter: Filter) -> int:
    """How many cases pass the filter."""
    return outcomes(run, filter)[filter.outcome]


def page(run: Run, filter: Filter, page: int, size: int, *, order: str = "items") -> list[Line]:
    """Page number `page` (from 0) of the cases that pass, in the order of `items` or by |margin| from the lowest."""
    if order not in ORDERS:
        raise UsageError(f"no order '{order}'; there is {', '.join(ORDERS)}")
    rows = _query(
        run,
        f"""SELECT "case", subset, outcome, margin, best, scores, left(prompt, 400) FROM ({_MATCHING})
            ORDER BY {ORDERS[order]} LIMIT $size OFFSET $skip""",
        {**_values(filter), "size": size, "skip": page * size},
    )
    return [_line(*row) for row in rows]


def _line(case, subset, outcome, margin, best, scores, prompt) -> Line:
    chosen = min(scores[place] for place in best) if scores else None
    rejected = max(score for place, score in enumerate(scores) if place not in best) if scores else None
    return Line(case, subset, outcome, margin, chosen, rejected, _beginning(prompt))


def _beginning(prompt: str, length: int = 80) -> str:
    """One line; that the first turn is the user's goes without saying."""
    return " ".join(prompt.removeprefix("user: ").split())[:length]


def item(run: Run, scorer: str, case: str) -> Item:
    """Everything about one case: the texts, which answer is right, and what every scorer made of it."""
    found = _query(run, f'SELECT {_ITEM_COLUMNS} FROM {_ITEMS} WHERE "case" = $case', {"case": case}, ITEMS)
    if not found:
        raise UsageError(f"{run.folder} has no case '{case}'; the table lists what there is")
    _, subset, cluster, prompt, messages, answers, best = found[0]
    judged = _query(
        run,
        f'SELECT scorer, {_OUTCOME}, margin, scores, abstained FROM {_SCORES} WHERE "case" = $case',
        {"case": case},
        SCORES,
    )
    verdicts = {
        name: (outcome, margin, tuple(scores or ()), why or "") for name, outcome, margin, scores, why in judged
    }
    return Item(
        scorer,
        case,
        subset,
        cluster,
        _turns(messages, prompt),
        tuple(answers),
        tuple(best),
        tuple(Verdict(known, *verdicts[known.name]) for known in run.scorers if known.name in verdicts),
    )


def _turns(messages: str, prompt: str) -> Messages:
    """The turns of the prompt, or its plain text where they cannot be read."""
    try:
        return tuple({"role": str(turn["role"]), "content": str(turn["content"])} for turn in json.loads(messages))
    except (ValueError, KeyError, TypeError):
        return ({"role": "user", "content": prompt},)


# ---- HTML: every text is escaped, the style knows no fixed background ----

STYLE = """<style>
.rl {--line: color-mix(in srgb, currentColor 18%, transparent);
     --soft: color-mix(in srgb, currentColor 5%, transparent);
     --right: #16a34a; --wrong: #dc2626; --other: #b45309; font-size: 14px; line-height: 1.5}
.rl * {box-sizing: border-box}
.rl h1 {font-size: 22px; font-weight: 600; margin: 0; overflow-wrap: anywhere}
.rl.heading {display: flex; flex-wrap: wrap; gap: 4px 16px; align-items: baseline}
.rl .text {white-space: pre-wrap; overflow-wrap: anywhere; font-family: inherit; margin: 0}
.rl .box {border: 1px solid var(--line); border-radius: 8px; overflow: hidden; min-width: 0}
.rl .head {display: flex; flex-wrap: wrap; gap: 4px 10px; align-items: baseline; padding: 7px 14px;
           background: var(--soft); border-bottom: 1px solid var(--line); font-weight: 600}
.rl .body {padding: 10px 14px; max-height: 32rem; overflow: auto}
.rl .prompt .body {max-height: 18rem}
.rl .turn + .turn {margin-top: 10px; padding-top: 10px; border-top: 1px dashed var(--line)}
.rl .faint {opacity: .65; font-weight: 400}
.rl .end {margin-left: auto; font-variant-numeric: tabular-nums}
.rl .pill {border: 1px solid; border-radius: 99px; padding: 0 9px; font-size: 12px; font-weight: 600}
.rl .right {color: var(--right)} .rl .wrong {color: var(--wrong)}
.rl .tie, .rl .abstained {color: var(--other)}
.rl .answers {display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr));
              margin: 12px 0}
.rl .box.best {border-color: var(--right); box-shadow: inset 4px 0 var(--right)}
.rl .scores {overflow-x: auto}
.rl table {border-collapse: collapse; width: 100%; margin: 0; font-variant-numeric: tabular-nums}
.rl th, .rl td {padding: 5px 14px; text-align: right; border: 0; border-bottom: 1px solid var(--line)}
.rl tr:last-child td {border-bottom: 0}
.rl thead th {background: var(--soft); font-weight: 600}
.rl td:first-child, .rl th:first-child {text-align: left; overflow-wrap: anywhere}
.rl td.why {text-align: left}
.rl tr.mine td {background: var(--soft); font-weight: 600}
</style>"""


def item_html(item: Item) -> str:
    """The prompt, the answers side by side with the right one marked, and every scorer's scores beneath."""
    answers = "".join(_answer_html(item, place) for place in range(len(item.answers)))
    return (
        f'{STYLE}<div class="rl">{_prompt_html(item)}<div class="answers">{answers}</div>'
        f'<div class="box scores">{_scores_html(item)}</div></div>'
    )


def _prompt_html(item: Item) -> str:
    turns = "".join(_turn_html(turn["role"], turn["content"], alone=len(item.messages) == 1) for turn in item.messages)
    verdict = item.verdict
    pill = f'<span class="end">{_pill(verdict.outcome)}</span>' if verdict else ""
    return (
        f'<div class="box prompt"><div class="head"><span>{escape(item.case)}</span>'
        f'<span class="faint">{escape(item.subset)}</span>{pill}</div><div class="body">{turns}</div></div>'
    )


def _turn_html(role: str, content: str, *, alone: bool) -> str:
    label = "" if alone and role == "user" else f'<div class="faint">{escape(role)}</div>'
    return f'<div class="turn">{label}<div class="text">{escape(content)}</div></div>'


def _pill(outcome: str) -> str:
    return f'<span class="pill {escape(outcome)}">{escape(outcome)}</span>'


def _answer_html(item: Item, place: int) -> str:
    best = place in item.best
    mark = '<span class="right">✓ right</span>' if best else ""
    scores = item.verdict.scores if item.verdict else ()
    top = '<span class="pill">highest score</span>' if scores and scores[place] == max(scores) else ""
    score = f'<span class="end">{number(scores[place])}</span>' if scores else ""
    return (
        f'<div class="box answer{" best" if best else ""}"><div class="head"><span>Answer {place + 1}</span>{mark}'
        f'{top}{score}</div><div class="body"><div class="text">{escape(item.answers[place])}</div></div></div>'
    )


def _scores_html(item: Item) -> str:
    heads = [f"Answer {place + 1}{' ✓' if place in item.best else ''}" for place in range(len(item.answers))]
    head = "".join(f"<th>{name}</th>" for name in ["Scorer", *heads, "Margin", "Outcome"])
    rows = "".join(_verdict_html(verdict, len(item.answers), item.scorer) for verdict in item.verdicts)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _verdict_html(verdict: Verdict, answers: int, chosen: str) -> str:
    if verdict.scores:
        cells = "".join(f"<td>{number(score)}</td>" for score in [*verdict.scores, verdict.margin])
    else:
        cells = f'<td class="why" colspan="{answers + 1}">abstained: {escape(verdict.abstained)}</td>'
    name = f'{escape(verdict.scorer.name)} <span class="faint">{escape(verdict.scorer.role)}</span>'
    mine = ' class="mine"' if verdict.scorer.name == chosen else ""
    return f"<tr{mine}><td>{name}</td>{cells}<td>{_pill(verdict.outcome)}</td></tr>"


def number(value: float | None) -> str:
    """Four significant digits, without an exponent where a reader expects none.

    >>> number(0.123456), number(-12345.678), number(1892.0), number(None)
    ('0.1235', '-12,345.7', '1,892', '')
    """
    if value is None:
        return ""
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.1f}".removesuffix(".0")


def heading_html(run: Run) -> str:
    """Suite, model and folder."""
    suite, models, folder = (escape(text) for text in (run.suite, ", ".join(run.models) or "nobody", str(run.folder)))
    return (
        f'{STYLE}<div class="rl heading"><h1>{suite} <span class="faint">judged by</span> {models}</h1>'
        f'<span class="faint end">{folder}</span></div>'
    )


def cells(lines: Sequence[Line]) -> list[list[str]]:
    """The lines as the table shows them."""
    return [
        [line.case, line.subset, line.outcome, *map(number, (line.margin, line.chosen, line.rejected)), line.prompt]
        for line in lines
    ]
