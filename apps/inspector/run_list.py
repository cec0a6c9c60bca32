"""Runs under a root folder, listed at each request. The browser selects runs by id, not by path."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...rm.errors import UNREADABLE, DataError, UsageError
from ...rm.io.checked_files import from_json
from ..runs.run_folder import CONFIG, MANIFEST, PARTIAL, read_settings
from ..runs.summaries import SUMMARY, read_heading
from ..runs.tables import ITEMS, SCORES, STEPS
from .database import ends_well

REPORT = "report.md"
LOGS = (STEPS, "metrics.jsonl")
"""File names of training logs: of a policy (written during training), and of a reward model."""
JUDGED, TRAINED, STUDY, ANSWERS, JOB = "judgments", "training", "study", "answers", "job"
DEPTH = 6
MARKS = b'"tokens"', b'"base"'


class Entry(NamedTuple):
    """A run under the root: its id (path below the root, `.` for the root itself), folder and kind."""

    id: str
    kind: str
    """`judgments` (eval, judge), `training` (rl, train), `study`, `answers` (a file of `rewardlab decode`), or `job`
    (another unfinished run).
    """
    growing: bool
    """Whether the run is not finished yet."""
    path: Path

    @property
    def label(self) -> str:
        """Label of the run in lists: its id, or for the root the name of the folder."""
        name = self.path.name if self.id == "." else self.id
        return f"{name} (running or cut off)" if self.growing else name


@dataclass(frozen=True)
class Root:
    """Root folder of the inspector. Links inside it are not followed."""

    folder: Path

    def entries(self, *kinds: str) -> list[Entry]:
        """Return the runs of the given kinds, sorted by id. Without kinds, return all runs."""
        listed = sorted(_entries(self.folder, "", DEPTH), key=lambda entry: entry.id)
        return [entry for entry in listed if not kinds or entry.kind in kinds]

    def entry(self, id: str | None, *kinds: str) -> Entry:
        """Return the run with this id among `entries`. Raise `UsageError` if there is none."""
        for entry in self.entries(*kinds):
            if entry.id == id:
                _refuse_links(entry.path)
                return entry
        raise UsageError(f"there is no run '{id}' here; choose a run in the list, which is updated as runs are written")

    def find(self, id: str | None, *kinds: str) -> Path:
        """Return the path of a run: its folder, or a file of decoded completions."""
        return self.entry(id, *kinds).path

    def growing(self, id: str | None) -> bool:
        """Return whether the run exists and is not finished yet."""
        return any(entry.growing for entry in self.entries() if entry.id == id)

    def followed(self, id: str | None, kind: str) -> str | None:
        """Return the id of a run, or the run's new id if it has been finished since."""
        ids, finished = [entry.id for entry in self.entries(kind)], finished_name(id or "")
        return finished if id not in ids and finished in ids else id


def open_root(folder: str | Path) -> Root:
    """Open the folder of one run or of many runs."""
    path = Path(folder)
    if not path.is_dir():
        raise UsageError(
            f"there is no run folder {folder}; name a folder that rewardlab wrote with --output, or its parent"
        )
    return Root(path.resolve())


def finished_name(id: str) -> str:
    """Return the id that an unfinished run, or a run inside it, will have when it is finished.

    >>> finished_name("all/study.partial/one")
    'all/study/one'
    """
    return "/".join(part.removesuffix(PARTIAL) for part in id.split("/"))


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Load the manifest of a run. Empty if it cannot be read."""
    try:
        manifest = from_json((folder / MANIFEST).read_text(encoding="utf-8"))
        return manifest if isinstance(manifest, Mapping) else {}
    except UNREADABLE:
        return {}


def _entries(folder: Path, id: str, depth: int, finished: bool = False) -> Iterator[Entry]:
    """Yield the folder if it is a run, then the runs inside the folder. Runs in a finished study count as finished."""
    try:
        inside = {entry.name: entry for entry in os.scandir(folder)}
    except OSError:
        return
    kind = _unfinished_kind(folder, {*inside}) if folder.name.endswith(PARTIAL) else _kind_of_files({*inside})
    finished = (finished or MANIFEST in inside) and not folder.name.endswith(PARTIAL)
    if kind:
        yield Entry(id or ".", kind, not finished and kind != STUDY, folder)
    if kind in (JUDGED, TRAINED) or depth == 0:
        return
    for name, entry in inside.items():
        below = f"{id}/{name}" if id else name
        if entry.is_dir(follow_symlinks=False) and not name.startswith("."):
            yield from _entries(folder / name, below, depth - 1, finished)
        elif name.endswith(".jsonl") and entry.is_file(follow_symlinks=False) and _is_decoded_file(folder / name):
            yield Entry(below, ANSWERS, False, folder / name)


def _kind_of_files(names: set[str]) -> str:
    """Return the kind of a run from the file names in its folder. Empty if the folder is not a run."""
    if {*LOGS} & names:
        return TRAINED
    if {ITEMS, SCORES, SUMMARY} & names:
        return JUDGED
    return STUDY if REPORT in names and (CONFIG in names or MANIFEST in names) else ""


def _unfinished_kind(folder: Path, names: set[str]) -> str:
    """Return the kind of an unfinished run. If the run has no tables yet, the kind follows from its settings."""
    if STEPS in names or CONFIG not in names:
        return _kind_of_files(names)
    return JUDGED if "benchmark" in read_settings(folder) else _kind_of_files(names) or JOB


def is_run(folder: Path) -> bool:
    """Return whether a folder is a run folder of rewardlab."""
    try:
        return bool(_kind_of_files(set(os.listdir(folder))))
    except OSError:
        return False


def is_whole(folder: Path) -> bool:
    """Return whether an evaluation is complete: a summary with scorers, and two complete Parquet tables."""
    try:
        read_heading(folder)
        return all(ends_well(folder / name) for name in (ITEMS, SCORES))
    except (DataError, OSError):
        return False


def _is_decoded_file(path: Path) -> bool:
    """Return whether a file has rows of `rewardlab decode`, judging by its first line."""
    try:
        with path.open("rb") as lines:
            beginning = lines.readline(200_000)
        return all(mark in beginning for mark in MARKS)
    except OSError:
        return False


def _refuse_links(path: Path) -> None:
    """Raise `UsageError` if a run contains a link, since a link could expose any file of this machine."""
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            if os.path.islink(os.path.join(folder, name)):
                raise UsageError(
                    f"{Path(folder, name)} is a link, and links are not followed; put the file itself there"
                )


def stamp(folder: Path, names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return modification time and size of each file of a run, to detect changes. Both are 0 for a missing file."""
    return tuple(_stamp(folder / name) for name in names)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        state = path.stat()
        return state.st_mtime_ns, state.st_size
    except OSError:
        return 0, 0
