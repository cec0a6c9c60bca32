"""Server functions for the script of the judgments tab: open an address, load rows or a case, and annotate."""

import getpass
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ......rm.errors import DataError, UsageError
from ....components import Function, Site, parse_query, server_functions
from ....html import line_text, note_html
from ....html import text_html as shown_text
from ....run_list import JUDGED
from .. import queries as views
from ..annotation import annotations
from ..annotation.annotation_html import LABELS, annotations_html, choices, guidelines_html, progress
from ..annotation.exchange import import_annotations
from ..case_html import case_html
from ..cases import Item, item
from ..explanation import view as why
from ..filters import FilterValues, complete, filter_of, parse_filter_values, subset_choices
from ..toolbar import toolbar_html

MOST_ROWS = 200
LAST = 2**31 - 1
"""Largest position of a case: the maximum integer of the database."""
OUTCOME_MARKS = {"right": "✓", "wrong": "✕", "tie": "=", "abstained": "–"}
BEING_WRITTEN = "This run is still being written, or was interrupted; it is read again every few seconds. "
Request = Mapping[str, Any]
Response = dict[str, Any]


class View(NamedTuple):
    """View of a request: the run, the filter of cases, and display options."""

    run: views.Run
    filter: views.Filter
    filter_values: FilterValues
    blind: bool


def functions(site: Site) -> list[Callable[[Request], Response]]:
    """Return the functions that the script calls. A response to an invalid request has a message in `error`."""

    by_name: dict[str, Callable[[View, Request], Response]] = {
        "rows": lambda view, request: _rows(view, _position(request["start"]), _size(request)),
        "case": lambda view, request: _case(view, request),
        "annotate": lambda view, request: _annotate(view, request),
        "add_annotations": lambda view, request: _import(view.run, str(request["name"]), str(request["text"])),
        "give_annotations": lambda view, _request: _export(view.run),
    }

    def of_view(function: Callable[[View, Request], Response]) -> Function:
        return lambda request: function(_view(site, request), request)

    functions = {name: of_view(function) for name, function in by_name.items()}
    return server_functions(open=lambda request: _open(site, request), **functions, **why.functions(site))


def _view(site: Site, request: Request, filter_values: FilterValues | None = None) -> View:
    """Return the view of a request. In blind mode, filters and orders by scores are ignored."""
    filter_values, blind = filter_values or parse_filter_values(request["query"]), bool(request.get("blind"))
    if blind:
        only = ",".join({*filter_values.only.split(",")} - {"baseline", "against"})
        filter_values = filter_values._replace(outcome="all", margin="", order="items", only=only)
    run = views.open_run(site.root.find(site.root.followed(filter_values.run, JUDGED), JUDGED))
    return View(
        run, filter_of(run, filter_values, [str(case) for case in request.get("marked", ())]), filter_values, blind
    )


def _position(value: Any) -> int:
    return min(max(0, int(value)), LAST)


def _size(request: Request) -> int:
    return min(_position(request["size"]), MOST_ROWS)


# ---- an address ----


def _open(site: Site, request: Request) -> Response:
    """Return what an address selects: the parsed filter, numbers of cases, and the first rows.

    The toolbar and the report are omitted if the page already shows the run (`known`). An error of the run or the
    filter is a note in `refused`.
    """
    query = parse_query(request["query"])
    run, wanted, case = site.pick(query.get("run"), JUDGED), query.get("run"), query.get("item")
    missing = wanted and run != site.root.followed(wanted, JUDGED)
    notes = [f"There is no run '{wanted}' here; another run is shown."] if missing else []
    filter_values = parse_filter_values({"outcome": "all" if case else "", **query, "run": run})
    names, scorer = site.scorers(run, filter_values.scorer)
    filter_values, subsets = filter_values._replace(scorer=scorer), []
    answered: Response = {"total": 0, "counts": {}, "position": 0, "rows": [], "cases": [], "start": 0}
    report = ""
    try:
        if run is None:
            raise site.nothing_yet(JUDGED)
        opened = views.open_run(site.root.find(run, JUDGED))
        subsets, report = subset_choices(opened), opened.report
        filter_values = complete(filter_values, subsets)
        view = _view(site, request, filter_values)
        position = views.position(opened, view.filter, case, order=view.filter_values.order) if case else 0
        if position is None:
            notes.append(f"The case '{case}' does not pass this filter, or is not in this run.")
        size = _size(request)
        answered |= _rows(view, max(0, (position or 0) - size // 2), size) | {"position": position or 0}
    except (DataError, UsageError) as error:
        growing = BEING_WRITTEN if site.root.growing(run) else ""
        answered["refused"] = note_html(f"{growing}{error}")
    if request.get("known") != (run or "-"):
        answered |= {"toolbar": toolbar_html(site, filter_values, names, subsets), "report": report}
    values = {name: value or "" for name, value in filter_values._asdict().items()}
    notes_of = {"growing": site.root.growing(run), "note": " ".join(notes), "reader": reader_of(site)}
    return answered | {"query": values, **notes_of}


def reader_of(site: Site) -> str:
    """Return the initial name of the reader: the user of this machine, or empty if other machines have access."""
    try:
        return "" if site.config.token else getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return ""


# ---- the list ----


def _rows(view: View, start: int, size: int) -> Response:
    """Return one page of the list with the numbers of cases by outcome."""
    lines = views.lines(view.run, view.filter, start, size, order=view.filter_values.order)
    scale = views.margin_scale(view.run, view.filter, largest=view.filter_values.order == "worst")
    counts = views.outcomes(view.run, view.filter)
    badges = badges_of(view.run)
    return {
        "start": start,
        "total": counts[view.filter.outcome],
        "counts": counts | {"annotated": len(badges)},
        "rows": [row_html(line, scale, badges.get(line.case, ""), blind=view.blind) for line in lines],
        "cases": [line.case for line in lines],
    }


def badges_of(run: views.Run) -> dict[str, str]:
    """Return case -> HTML badges with the newest verdict of each reader."""
    stored = annotations.current_annotations(run, annotations.read(run.folder))
    newest = {(annotation.case, annotation.who): annotation for annotation in stored}
    badges: dict[str, str] = {}
    for (case, who), annotation in newest.items():
        title = line_text(f"{who}: {annotation.note}"[:200])
        badge = f'<span class="badge" title="{title}">{LABELS[annotation.verdict]}</span>'
        badges[case] = badges.get(case, "") + badge
    return badges


def row_html(line: views.Line, scale: float, badge: str = "", *, blind: bool = False) -> str:
    """Return the inner HTML of a row. `scale` is the |margin| of a full bar; `blind` hides what depends on scores.

    >>> "✕" in row_html(views.Line("c", "chat", "wrong", -1.0, "Name a tree"), 2.0)
    True
    """
    prompt = f'<span class="row-prompt" dir="auto">{shown_text(line.prompt) or "(empty prompt)"}</span>'
    subset = f'<span class="row-subset">{"" if blind else badge}{shown_text(line.subset, 60)}</span>'
    if blind:
        return f'<span class="row-mark">·</span>{prompt}<span></span>{subset}'
    mark = (
        f'<span class="row-mark {line.outcome}" role="img" aria-label="{line.outcome}">'
        f"{OUTCOME_MARKS[line.outcome]}</span>"
    )
    return f'{mark}{prompt}<span class="row-margin">{_bar(line.margin, scale)}</span>{subset}'


def _bar(margin: float | None, scale: float) -> str:
    """Return the margin as a number and as a bar that extends from the middle."""
    if margin is None:
        return ""
    share = min(abs(margin) / scale, 1.0) * 50 if scale > 0 else 0.0
    left = 50 - share if margin < 0 else 50
    kind = "wrong" if margin < 0 else "right"
    bar = f'<i class="{kind}" style="left:{left:.1f}%;width:{share:.1f}%"></i>'
    return f'<span class="row-bar">{bar}</span><span class="row-number">{margin:.3f}</span>'


# ---- a case and its annotations ----


def _case(view: View, request: Request) -> Response:
    """Return the case that a request selects by position or by name."""
    name = request.get("case")
    if name is None:
        position = _position(request["position"])
        lines = views.lines(view.run, view.filter, position, 1, order=view.filter_values.order)
        name = lines[0].case if lines else None
    else:
        position = views.position(view.run, view.filter, str(name), order=view.filter_values.order) or 0
    if name is None:
        return {"case": None, "position": position}
    entry = item(view.run, view.filter.scorer, str(name))
    html = case_html(entry, diff=bool(request.get("diff")), raw=bool(request.get("raw")), blind=view.blind)
    return {"case": entry.case, "position": position, "html": html, **_annotation(view, entry, request)}


def _annotation(view: View, entry: Item, request: Request) -> Response:
    """Return the question about a case, its annotations, the guidelines, and the progress of this reader."""
    stored, reader = annotations.read(view.run.folder), str(request.get("reader") or "").strip()
    question, options = choices(entry, blind=view.blind)
    own_annotations = [
        annotation for annotation in annotations.case_annotations(entry, stored) if annotation.who == reader
    ]
    visible = stored if not view.blind else own_annotations
    current = annotations.current_annotations(view.run, stored)
    counted = f"{len(current):,} annotation{'' if len(current) == 1 else 's'}"
    return {
        "question": question,
        "choices": options,
        "said": annotations_html(entry, visible),
        "guidelines": guidelines_html(view.run.folder),
        "progress": progress(current, reader, sum(views.subsets(view.run).values())),
        "annotated": len({annotation.case for annotation in current}),
        "exported": len(current),
        "label": f"Export {counted} of {view.run.folder.name}",
    }


def _annotate(view: View, request: Request) -> Response:
    """Store a reader's verdict, which in blind mode is the index of the better response.

    A repeated request contains the time of the first request, and is stored only once.
    """
    entry = item(view.run, view.filter.scorer, str(request["case"]))
    verdict, reader = str(request["verdict"]), str(request.get("reader") or "")
    if verdict.isdecimal():
        verdict = "agree" if int(verdict) in entry.best else "disagree"
    note, when = str(request.get("note") or ""), str(request.get("when") or "")
    annotation = annotations.annotate(entry, verdict, reader, note, blind=view.blind, when=when)
    if annotation not in annotations.read(view.run.folder):
        annotations.add(view.run.folder, annotation)
    return _annotation(view, entry, request)


def _import(run: views.Run, name: str, text: str) -> Response:
    """Add the annotations of an uploaded file to those of a run, and return how many are new."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"annotations{Path(name).suffix}"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            return {"added": import_annotations(run, str(path))}
        except (DataError, UsageError) as error:
            raise UsageError(str(error).replace(str(path), name)) from error


def _export(run: views.Run) -> Response:
    """Return all annotations of a run's cases as JSON lines, and the name of their file."""
    stored = annotations.current_annotations(run, annotations.read(run.folder))
    text = "".join(json.dumps(asdict(annotation), ensure_ascii=False) + "\n" for annotation in stored)
    return {"name": f"{run.folder.name}.annotations.jsonl", "text": text.encode(errors="backslashreplace").decode()}
