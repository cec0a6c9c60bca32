"""Files of rubrics and levels: a single rubric as TOML or JSON, or one per case as JSON lines."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...rm.data.pairs import collect, column, row_prompt
from ...rm.data.readers import read_rows
from ...rm.errors import UNREADABLE, CheckFailed, DataError, UsageError, did_you_mean
from ...rm.io.checked_files import from_json
from ...rm.io.checked_files import from_toml as toml_values
from ...rm.types import content_hash, prompt_text
from ..case_rows import stated_id
from ..judge import ByCase, RubricSource, describe_setting
from ..types import Case
from .formats import Levels, LevelsSource, biggen, healthbench, rubric_lines
from .rubric import Rubric, from_toml, from_values, json_values, lint, rubric_json

RUBRICS = "rubrics.jsonl"
"""File of a run with one rubric per case."""
RUBRIC_FOLDER = Path(__file__).parent
ENDINGS = (".toml", ".json", ".jsonl")
T = TypeVar("T")


def open_rubric(source: str) -> Rubric | RubricSource:
    """Open a rubric for all cases, or a source with one rubric per case."""
    path = find_rubric(source)
    rubrics_read = read_rubrics(path)
    return ByCase(rubrics_read, path.stem) if path.suffix == ".jsonl" else rubrics_read[path.stem]


def find_rubric(source: str) -> Path:
    """Return the path of a rubric file, or of a rubric in this package by its name."""
    path, ours = Path(source), [file.stem for file in sorted(RUBRIC_FOLDER.glob("*.toml"))]
    if source in ours:
        return RUBRIC_FOLDER / f"{source}.toml"
    if not path.is_file():
        raise UsageError(f"no rubric file '{source}'; {did_you_mean(source, ours, 'there is ' + ', '.join(ours))}")
    _check_ending(path)
    return path


def _check_ending(path: Path) -> None:
    if path.suffix not in ENDINGS:
        raise UsageError(f"{path}: a rubric file must end with {', '.join(ENDINGS)}")


def read_rubrics(path: Path) -> dict[str, Rubric]:
    """Load rubrics by case id, or a single rubric by the file's name. A `DataError` names the invalid row."""
    if path.suffix == ".jsonl":
        return _rows_by_case(path, rubric_of_row)
    try:
        text = path.read_text(encoding="utf-8")
        return {path.stem: from_toml(text) if path.suffix == ".toml" else _rubric_of_json(json_values(text))}
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def lint_files(files: Sequence[str], log: Callable[[str], None]) -> dict[str, Any]:
    """Log a line for each warning about the rubrics. Raise `CheckFailed` if a file cannot be read."""
    findings, errors, rubrics = 0, 0, 0
    for path in map(find_rubric, files):
        try:
            by_name = read_rubrics(path)
        except DataError as error:
            log(f"error: {error}")
            errors += 1
            continue
        rubrics += len(by_name)
        for name, rubric in by_name.items():
            issues = lint(rubric)
            findings += len(issues)
            for issue in issues:
                log(f"{path}{f' {name}' if name != path.stem else ''}: {issue}")
    if errors:
        raise CheckFailed(f"{errors} of {len(files)} files cannot be read as rubrics; see the lines above")
    return {"files": len(files), "rubrics": rubrics, "findings": findings}


def rubric_of_row(values: Mapping[str, Any]) -> Rubric:
    """Parse a rubric from the column `rubric`, or from `rubrics`: HealthBench's list or RubricBench's text."""
    if isinstance(values.get("rubrics"), str):
        return rubric_lines(values)
    return _rubric_of_json(values if "rubrics" in values else column(values, "rubric"))


def _rubric_of_json(values: Any) -> Rubric:
    """Parse a rubric from rules and principles, or from a list of {criterion, points}, also under the key `rubrics`."""
    values = {"rubrics": values} if isinstance(values, list) else values
    return healthbench(values) if isinstance(values, Mapping) and "rubrics" in values else from_values(values)


class RubricEntry(NamedTuple):
    """A rubric in a collection, with the prompt that it was written for."""

    id: str
    prompt: str
    rubric: Rubric


def read_collection(path: Path) -> list[RubricEntry]:
    """Load rubrics with their prompts from JSON lines. A row without an id is named by a hash of its content."""
    if not path.is_file():
        raise UsageError(f"'{path}' is not a file of rubrics; give a .jsonl with 'prompt', and 'rubric' or 'rubrics'")
    entries, _ = collect(str(path), _entry)
    return [*dict.fromkeys(entries)]


def _entry(values: Mapping[str, Any]) -> RubricEntry:
    prompt, rubric = prompt_text(row_prompt(values)), rubric_of_row(values)
    return RubricEntry(stated_id(values) or content_hash([prompt, describe_setting(rubric)]), prompt, rubric)


def rubrics_by_prompt(rubrics: Mapping[str, Rubric]) -> RubricSource:
    """Return a source that looks up rubrics by the text of the prompt."""

    def source(cases: Sequence[Case]) -> list[Rubric | None]:
        return [rubrics.get(prompt_text(case.prompt)) for case in cases]

    source.__qualname__ = (
        f"by prompt {content_hash({text: describe_setting(rubric) for text, rubric in rubrics.items()})}"
    )
    return source


def open_levels(source: str) -> Levels | LevelsSource:
    """Open descriptions of score levels (as in BiGGen Bench): a scale for all cases, or a scale per case."""
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"'{source}' is no file of levels with criteria and score1_description to score5_description")
    _check_ending(path)
    if path.suffix == ".jsonl":
        return ByCase(_rows_by_case(path, biggen), path.stem)
    try:
        text = path.read_text(encoding="utf-8")
        values = toml_values(text) if path.suffix == ".toml" else from_json(text)
        if not isinstance(values, dict):
            raise ValueError(
                f"levels need criteria and score1_description to score5_description, got {type(values).__name__}"
            )
        return biggen(values if "score_rubric" in values else {"score_rubric": values})
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _rows_by_case(path: Path, parse_row: Callable[[Mapping[str, Any]], T]) -> dict[str, T]:
    by_case_id: dict[str, T] = {}
    for row in read_rows(str(path)):
        try:
            if row.error:
                raise ValueError(row.error)
            name = stated_id(row.values)
            if name is None or name in by_case_id:
                raise ValueError(f"'case' must be an id that no other row has, got {name!r}")
            by_case_id[name] = parse_row(row.values)
        except UNREADABLE as error:
            raise DataError(f"{row.location}: {error}") from error
    return by_case_id


def check_matches(file: str | None, source: Any, cases: Sequence[Case]) -> None:
    """Raise a `DataError` if a file with rubrics or levels by case has none for these cases."""
    if isinstance(source, ByCase) and cases and not any(source(cases)):
        row = next(iter(source.items), None)
        raise DataError(
            f"{file}: none of its {len(source.items)} rows belongs to one of the {len(cases)} cases; they are named "
            f"like '{row}' and the cases like '{cases[0].id}', so name each row's case in its column 'case'"
        )


def rubric_row(case: str, rubric: Rubric, **facts: Any) -> dict[str, Any]:
    """Convert a rubric to a row of a `.jsonl` file that `read_rubrics` reads."""
    return {"case": case, "rubric": json.loads(rubric_json(rubric)), **facts}
