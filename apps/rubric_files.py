"""Rubrics in files: one in TOML or JSON, or one for each case in JSON lines; and checklists."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..judges import rubric as rubrics
from ..judges.cdrrm.generator import rubric_json
from ..judges.judging import RubricSource, by_case
from ..judges.kinds.checklist import Question
from ..judges.rubric import Rubric, from_toml, from_values, parse
from ..rm.errors import DataError, UsageError, did_you_mean
from ..rm.readers import read_rows

OURS = Path(rubrics.__file__).parent / "rubrics"
ENDINGS = (".toml", ".json", ".jsonl")


def open_rubric(source: str) -> Rubric | RubricSource:
    """What a judge goes by: the same rubric for all cases, or each case's own."""
    path = find_rubric(source)
    found = read_rubrics(path)
    return by_case(found, path.stem) if path.suffix == ".jsonl" else found[path.stem]


def find_rubric(source: str) -> Path:
    """A file, or the name of one that comes with the package."""
    path, ours = Path(source), [one.stem for one in sorted(OURS.glob("*.toml"))]
    if source in ours:
        return OURS / f"{source}.toml"
    if not path.is_file():
        raise UsageError(f"no rubric file '{source}'; {did_you_mean(source, ours, 'there is ' + ', '.join(ours))}")
    if path.suffix not in ENDINGS:
        raise UsageError(f"{source}: a rubric file ends with {', '.join(ENDINGS)}")
    return path


def read_rubrics(path: Path) -> dict[str, Rubric]:
    """Every rubric of a file by its case, or under the file's own name; a DataError names the place that is wrong."""
    if path.suffix == ".jsonl":
        return _by_case(path)
    try:
        text = path.read_text(encoding="utf-8")
        return {path.stem: from_toml(text) if path.suffix == ".toml" else parse(text)}
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _by_case(path: Path) -> dict[str, Rubric]:
    found: dict[str, Rubric] = {}
    for row in read_rows(str(path)):
        try:
            if row.error:
                raise ValueError(row.error)
            name, values = row.values.get("case"), row.values.get("rubric")
            if not isinstance(name, str) or name in found:
                raise ValueError(f"'case' is the id of a case that no other row has, got {name!r}")
            found[name] = from_values(values)
        except ValueError as error:
            raise DataError(f"{row.place}: {error}") from error
    return found


def rubric_row(case: str, rubric: Rubric, **facts: Any) -> dict[str, Any]:
    """The line of a `.jsonl` file that `read_rubrics` reads back."""
    return {"case": case, "rubric": json.loads(rubric_json(rubric)), **facts}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def read_checklist(source: str) -> list[Question]:
    """`[[questions]]` of a TOML file: id, text, and any other field of `checklist.Question`."""
    try:
        values = tomllib.loads(Path(source).read_text(encoding="utf-8"))["questions"]
        return [Question(**{**one, "depends_on": tuple(one.get("depends_on", ()))}) for one in values]
    except OSError as error:
        raise UsageError(f"cannot read the checklist {source}: {error}") from error
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        fields = ", ".join(Question._fields)
        raise DataError(f"{source}: a checklist has tables [[questions]] with {fields}; {error}") from error
