"""Rescoring of a case under an edited rubric, from stored verdicts, and a list of criteria without a verdict."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ......judges.rubrics.files import ENDINGS, RUBRIC_FOLDER, RUBRICS, read_rubrics
from ......judges.rubrics.rubric import Principle, Rubric, Rule, from_toml, parse, to_toml
from ......judges.rubrics.scoring import DEFAULT_SCORE, SCORES, RubricScore
from ......rm.errors import DataError, UsageError
from .....runs.run_folder import read_settings
from ....html import number, text_html
from ...metrics import table_html


class Source(NamedTuple):
    """The rubric of a case, or a note on why it is not available."""

    rubric: Rubric | None
    score: str
    """Name of the function that aggregates verdicts to a score: one of `judges.rubrics.scoring.SCORES`."""
    note: str = ""

    @property
    def text(self) -> str:
        """The rubric as TOML."""
        return to_toml(self.rubric) if self.rubric else ""


class Rescored(NamedTuple):
    """Scores of a response before and after an edit of the rubric. None if no criterion applies."""

    recorded: float | None
    judged: float | None
    """Score under the original rubric, computed from the stored verdicts."""
    edited: float | None


# ---- the rubric of a run ----


def source_of(folder: Path, root: Path, case: str) -> Source:
    """Load the rubric of a case: stored in the run, included in the package, or a file below the root folder.

    The path in a run's settings is untrusted, so no file outside the root is opened.
    """
    settings = read_settings(folder)
    score = str(settings.get("score"))
    score = score if score in SCORES else DEFAULT_SCORE
    if (folder / RUBRICS).is_file():
        return _case_source(folder / RUBRICS, case, score, RUBRICS)
    name = settings.get("rubric")
    if not isinstance(name, str) or not name:
        return Source(None, score, "This run has no rubric; paste a rubric to score the stored verdicts.")
    path = _allowed_path(name, root)
    if path is None:
        return Source(None, score, f"The rubric {name} lies outside the inspected folder; paste its text here.")
    return _case_source(path, case, score, name)


def _case_source(path: Path, case: str, score: str, name: str) -> Source:
    """Return the rubric of a case from a file of rubrics, or a note on why it is missing."""
    try:
        rubrics_read = read_rubrics(path)
    except DataError as error:
        return Source(None, score, str(error))
    rubric = rubrics_read.get(case) if path.suffix == ".jsonl" else rubrics_read[path.stem]
    return Source(rubric, score, "" if rubric else f"{name} has no rubric for '{case}'.")


def _allowed_path(name: str, root: Path) -> Path | None:
    """Return the path of a packaged rubric or of a rubric file below the root. None for any other name."""
    if name in {file.stem for file in RUBRIC_FOLDER.glob("*.toml")}:
        return RUBRIC_FOLDER / f"{name}.toml"
    try:
        path = Path(name).resolve()
        inside = path.is_relative_to(root) and path.is_file() and path.suffix in ENDINGS
    except (ValueError, OSError):  # what no file can be called
        return None
    return path if inside else None


# ---- arithmetic ----


def parse_rubric(text: str) -> Rubric:
    """Parse a rubric from TOML, JSON or a fenced block of JSON. Raise `UsageError` for anything else."""
    try:
        return parse(text) if text.lstrip().startswith(("{", "```")) else from_toml(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def formula(name: str) -> RubricScore:
    """Return a score function by its name."""
    if name not in SCORES:
        raise UsageError(f"unknown score function '{name}'; choose one of {', '.join(SCORES)}")
    return SCORES[name]


def rescore(
    edited: Rubric, judged: Rubric | None, values: Sequence[Mapping[str, float]], recorded: Sequence[float], score: str
) -> list[Rescored]:
    """Compute every response's score under the edited rubric from the stored verdicts on its remaining criteria."""
    return [
        Rescored(
            recorded[index] if recorded else None,
            _score(judged, marks, score) if judged else None,
            _score(edited, marks, score),
        )
        for index, marks in enumerate(values)
    ]


def _score(rubric: Rubric, values: Mapping[str, float], score: str) -> float | None:
    """Return a score from the verdicts on a rubric's criteria. None if there are no such verdicts."""
    known_values = {name: value for name, value in values.items() if name in rubric.ids}
    if not known_values:
        return None
    try:
        return formula(score)(rubric, known_values)
    except ValueError as error:
        raise UsageError(f"the score '{score}' does not fit this rubric: {error}") from error


def needs_judge(edited: Rubric, judged: Rubric | None, values: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a sentence for each criterion that needs a judge, because the criterion is new or its text was changed."""
    known = {name for marks in values for name in marks}
    before = {item.id: _prompt_parts(item) for item in (*judged.rules, *judged.principles)} if judged else {}
    changes = []
    for item in (*edited.rules, *edited.principles):
        if item.id not in known:
            changes.append(
                f"'{item.id}' has no stored verdict and is left out of the score; only a judge can supply one."
            )
        elif item.id in before and before[item.id] != _prompt_parts(item):
            changes.append(f"'{item.id}' has been changed; its stored verdict refers to the earlier text.")
    return changes


def _prompt_parts(item: Rule | Principle) -> tuple[str, ...]:
    """Return the parts of a criterion that appear in the judge's prompt, without weights and vetoes."""
    return (item.type, item.criterion, item.test) if isinstance(item, Rule) else (item.description,)


# ---- what is shown ----


def rescored_html(rows: Sequence[Rescored], changes: Sequence[str], doubts: Sequence[str]) -> str:
    """Return scores and best responses before and after the edit, and notes, as HTML."""
    heads = ("", "in the run", "same rubric", "edited rubric")
    body = (
        f'<tr><th scope="row">Response&nbsp;{index + 1}</th>{"".join(f"<td>{_cell(value)}</td>" for value in row)}</tr>'
        for index, row in enumerate(rows)
    )
    table = table_html(heads, body)
    lists = _list("Only a judge could say", changes) + _list("Doubtful in this rubric", doubts)
    best = f"<p>{_best_change_text(rows)}</p>"
    return f'<div class="rl rescored"><div class="box scores">{table}</div>{best}{lists}</div>'


def _cell(value: float | None) -> str:
    return "none" if value is None else number(value)


def _list(title: str, lines: Sequence[str]) -> str:
    points = "".join(f"<li>{text_html(line)}</li>" for line in lines)
    return f'<div class="faint">{title}:</div><ul>{points}</ul>' if lines else ""


def _best_change_text(rows: Sequence[Rescored]) -> str:
    """Return a sentence on the best response before and after the edit."""
    before, after = _best([row.recorded for row in rows]), _best([row.edited for row in rows])
    if after is None:
        return "Not every response has a score now."
    if before is None:
        return f"Best now: {after}."
    return f"Best before and now: {after}." if before == after else f"Best before: {before}; best now: {after}."


def _best(scores: Sequence[float | None]) -> str | None:
    """Return the response or responses with the highest score as text. None if a score is missing."""
    known = [score for score in scores if score is not None]
    if not scores or len(known) < len(scores):
        return None
    top = [str(index + 1) for index, score in enumerate(known) if score == max(known)]
    return f"response {top[0]}" if len(top) == 1 else f"responses {' and '.join(top)} alike"
