"""Writes the static copy of a folder's judgments."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ......rm.errors import UsageError
from ....assets import stylesheet
from ....html import text_html
from ....run_list import JUDGED, Entry, Root
from ....texts.rendering import style
from ..annotation import annotations
from ..annotation.annotation_html import annotations_html
from ..case_html import case_html
from ..cases import items
from ..queries import Filter, Run, indices, lines, open_run

HERE = Path(__file__).parent
CHUNK = 100
"""Cases per file, as in `bundle.js`."""


def write_bundle(root: Root, target: Path) -> dict[str, Any]:
    """Write every finished run's judgments by each scorer except baselines. Return the numbers of lists and cases."""
    entries = [entry for entry in root.entries(JUDGED) if not entry.growing]
    if not entries:
        raise UsageError(f"{root.folder} has no finished run with judgments; name a folder of `rewardlab eval`")
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"--export {target} has files in it; name a new folder")
    (target / "data").mkdir(parents=True, exist_ok=True)
    listed = [(entry, run, scorer) for entry in entries for run, scorer in _scorers(entry)]
    numbers = [
        (f"{entry.id} · {scorer}", _write_list(target / "data", number, run, scorer))
        for number, (entry, run, scorer) in enumerate(listed)
    ]
    _write_script(target / "data" / "lists.js", "lists", numbers)
    css = f"{stylesheet('content.css')}{style()}<style>{_asset('bundle.css')}</style>"
    page = _asset("bundle.html").replace("STYLES", css).replace("TITLE", text_html(root.folder.name))
    (target / "index.html").write_text(page, encoding="utf-8")
    (target / "bundle.js").write_text(_asset("bundle.js"), encoding="utf-8")
    return {"export": str(target), "lists": len(numbers), "cases": sum(cases for _, cases in numbers)}


def _asset(name: str) -> str:
    """Return the text of a file of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


def _scorers(entry: Entry) -> Iterator[tuple[Run, str]]:
    """Return the run with each scorer except baselines, or with the first scorer if all are baselines."""
    run = open_run(entry.path)
    scorers = [scorer.name for scorer in run.scorers if scorer.role != "baseline"] or [run.scorers[0].name]
    return ((run, scorer) for scorer in scorers)


def _write_list(folder: Path, number: int, run: Run, scorer: str) -> int:
    """Write the list of all cases, and the cases in chunks. Return the number of cases."""
    selected = Filter(scorer)
    rows, known = indices(run, selected), annotations.read(run.folder)
    listed = lines(run, selected, 0, len(rows))
    _write_script(
        folder / f"{number}.js",
        "lines",
        number,
        [(line.case, line.subset, line.outcome, line.margin, line.prompt) for line in listed],
    )
    for chunk, start in enumerate(range(0, len(rows), CHUNK)):
        pages = [
            case_html(item, raw=False) + annotations_html(item, known)
            for item in items(run, scorer, rows[start : start + CHUNK])
        ]
        _write_script(folder / f"{number}-{chunk}.js", "cases", f"{number}-{chunk}", pages)
    return len(rows)


def _write_script(path: Path, function: str, *arguments: Any) -> None:
    """Write a script that calls a function of `bundle`."""
    path.write_text(f"bundle.{function}(...{json.dumps(arguments)});\n", encoding="utf-8")
