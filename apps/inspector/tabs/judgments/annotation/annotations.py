"""Annotations of judgments by readers: JSON lines in a file beside the run folder; the folder itself is not changed."""

import fcntl
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from ......rm.errors import DataError, UsageError
from ......rm.types import content_hash
from ....run_list import finished_name, is_run
from ..cases import Item, items
from ..index import index
from ..queries import Run

FOLDER = "annotations"
VERDICTS = ("agree", "disagree", "tie")
"""Verdicts: the labelled response is better, another response is better, or neither."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
LONGEST = {"note": 10_000, "who": 100}


@dataclass(frozen=True)
class Annotation:
    """Annotation of one case by one reader, made while viewing the judgments of one scorer."""

    case: str
    verdict: str
    """`agree`, `disagree` or `tie`, in relation to the response that the data label as right."""
    note: str
    who: str
    when: str
    """Time in UTC, to the second."""
    scorer: str
    outcome: str
    """Outcome of the scorer at the time of the annotation."""
    texts: str
    """Hash of prompt and responses, because a new run may have other texts for the same case id."""
    blind: bool = False
    """Whether label and scores were hidden from the reader."""

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise UsageError(f"unknown verdict '{self.verdict}'; choose one of {', '.join(VERDICTS)}")
        if not self.who.strip():
            raise UsageError("the annotation has no reader. Fill in a name, which is stored with the annotation")
        for name, most in LONGEST.items():
            if (length := len(vars(self)[name])) > most:
                raise UsageError(f"the {name} is {length:,} characters long; shorten it to {most:,} characters")


def annotate(
    item: Item, verdict: str, reader: str, note: str = "", *, blind: bool = False, when: str = ""
) -> Annotation:
    """Return a reader's annotation of a case, by default with the current time."""
    if when and not TIME.fullmatch(when):
        raise UsageError(f"the time of an annotation must be written as 2026-01-31T12:00:00Z, got '{when:.40}'")
    return Annotation(
        case=item.case,
        verdict=verdict,
        note=note.strip(),
        who=reader.strip(),
        when=when or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        scorer=item.scorer,
        outcome=item.verdict.outcome if item.verdict else "",
        texts=texts_of(item),
        blind=blind,
    )


def texts_of(item: Item) -> str:
    """Return a hash of prompt, responses and the label."""
    return content_hash(json.dumps([item.messages, item.texts, item.best]))


def file_of(run: Path) -> Path:
    """Return `annotations/NAME.jsonl` beside the run, or beside the outermost run that contains it."""
    folder, inside = _paths(run)
    return folder / inside


def _paths(run: Path) -> tuple[Path, Path]:
    """Return the folder of annotations, and the path of the run's file in it."""
    outermost = next((folder for folder in reversed(run.parents) if is_run(folder)), run)
    inside = run.relative_to(outermost.parent)
    return outermost.parent / FOLDER, Path(f"{finished_name(inside.as_posix())}.jsonl")


def add(run: Path, annotation: Annotation) -> None:
    """Append an annotation under a lock and flush it to disk. An incomplete last line is terminated first."""
    path = file_of(run)
    line = json.dumps(asdict(annotation), ensure_ascii=False) + "\n"
    _refuse_links(*_paths(run))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666), "r+b", 0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            file.write((b"" if _ends_with_newline(file) else b"\n") + line.encode("utf-8", "surrogatepass"))
            os.fsync(file.fileno())
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error}); free disk space, or change its owner") from error


def _refuse_links(folder: Path, inside: Path) -> None:
    """Raise `UsageError` if a part of the path of the annotations is a symbolic link."""
    for path in (folder, *(folder / part for part in reversed(inside.parents)), folder / inside):
        if path.is_symlink():
            raise UsageError(f"{path} is a link, and links are not followed; put the file itself there")


def _ends_with_newline(file: BinaryIO) -> bool:
    """Return whether a file is empty or ends with a newline."""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def read(run: Path) -> list[Annotation]:
    """Load the annotations of a run in order. Unreadable lines are skipped."""
    try:
        lines = file_of(run).read_bytes().splitlines()
    except OSError:
        return []
    return [annotation for line in lines if (annotation := _parse_line(line))]


def parse_annotation(values: Mapping[str, Any]) -> Annotation:
    """Return the annotation that a row of a file describes."""
    texts = {name: str(values[name]) for name in Annotation.__annotations__ if name != "blind"}
    return Annotation(**texts, blind=values.get("blind") is True)


def _parse_line(line: bytes) -> Annotation | None:
    """Return the annotation of a line, or None if the line is damaged."""
    try:
        return parse_annotation(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def case_annotations(item: Item, annotations: Sequence[Annotation]) -> list[Annotation]:
    """Return the annotations of a case with the same texts, the newest first."""
    texts = texts_of(item)
    return [
        annotation for annotation in reversed(annotations) if annotation.case == item.case and annotation.texts == texts
    ]


def items_of(run: Run, cases: Sequence[str]) -> dict[str, Item]:
    """Load the named cases that the run has, with the run's first scorer as the chosen scorer."""
    text = 'SELECT place FROM cases WHERE list_contains($cases::VARCHAR[], "case")'
    rows = [row for (row,) in index(run.folder).query(text, {"cases": [*cases]})]
    return {item.case: item for item in items(run, run.scorers[0].name, rows)} if rows else {}


def current_annotations(run: Run, annotations: Sequence[Annotation]) -> list[Annotation]:
    """Return the annotations of the run's current texts, without those of an earlier run with the same case ids."""
    if unread := {annotation.case for annotation in annotations} - run.texts.keys():
        texts = {case: texts_of(item) for case, item in items_of(run, [*unread]).items()}
        run.texts.update(dict.fromkeys(unread, "") | texts)
    return [annotation for annotation in annotations if run.texts[annotation.case] == annotation.texts]
