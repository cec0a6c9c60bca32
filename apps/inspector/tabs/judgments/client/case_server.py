"""Functions that the script of the judgments tab calls: rows of the list, one case, and an annotation of it."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ......rm.errors import DataError, UsageError
from ....components import Site
from ....html import text_html as shown_text
from ....run_list import JUDGED
from .. import queries as views
from ..annotation import annotations
from ..annotation.annotation_html import annotations_html, choices, progress
from ..case_html import case_html
from ..cases import Item, item
from ..filters import FilterValues, filter_of, parse_filter_values

MOST_ROWS = 200
LAST = 2**31 - 1
"""Largest position of a case, which fits the integers of the database."""
OUTCOME_MARKS = {"right": "✓", "wrong": "✕", "tie": "=", "abstained": "–"}
Request = Mapping[str, Any]
Response = dict[str, Any]


class View(NamedTuple):
    """View of a request: the run, the filter of cases, and display options."""

    run: views.Run
    filter: views.Filter
    asked: FilterValues
    blind: bool


def server_functions(site: Site) -> list[Callable[[Request], Response]]:
    """Return the functions that the script calls. A response to an invalid request has a message in `error`."""

    def rows(request: Request) -> Response:
        return _rows(_view(site, request), _position(request["start"]), min(_position(request["size"]), MOST_ROWS))

    def case(request: Request) -> Response:
        return _case(_view(site, request), request)

    def annotate(request: Request) -> Response:
        return _annotate(_view(site, request), request)

    return [_handler(function) for function in (rows, case, annotate)]


def _handler(function: Callable[[Request], Response]) -> Callable[[Request], Response]:
    @functools.wraps(function)
    def answer(request: Request) -> Response:
        try:
            return function(request)
        except (UsageError, DataError) as error:
            return {"error": str(error)}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return {"error": f"the request of the page is malformed: {error!r}; reload the page"}

    return answer


def _view(site: Site, request: Request) -> View:
    """Return the view of a request. In blind mode it ignores scores: all outcomes, in the order of the data."""
    asked, blind = parse_filter_values(request["query"]), bool(request.get("blind"))
    if blind:
        asked = asked._replace(outcome="all", margin="", order="items", only=[*{*asked.only} - {"baseline"}])
    run = views.open_run(site.root.find(asked.run, JUDGED))
    return View(run, filter_of(run, asked, [str(case) for case in request.get("marked", ())]), asked, blind)


def _position(value: Any) -> int:
    return min(max(0, int(value)), LAST)


def _rows(view: View, start: int, size: int) -> Response:
    lines = views.lines(view.run, view.filter, start, size, order=view.asked.order)
    scale = views.margin_scale(view.run, view.filter.scorer)
    counts = views.outcomes(view.run, view.filter)
    return {
        "start": start,
        "total": counts[view.filter.outcome],
        "counts": counts,
        "rows": [row_html(line, scale, blind=view.blind) for line in lines],
        "cases": [line.case for line in lines],
    }


def row_html(line: views.Line, scale: float, *, blind: bool = False) -> str:
    """Return the inner HTML of a row. `scale` is the |margin| of a full bar; `blind` hides everything from scores.

    >>> "✕" in row_html(views.Line("c", "chat", "wrong", -1.0, 0.0, 1.0, "Name a tree"), 2.0)
    True
    """
    prompt = f'<span class="row-prompt" dir="auto">{shown_text(line.prompt) or "(empty prompt)"}</span>'
    subset = f'<span class="row-subset">{shown_text(line.subset, 60)}</span>'
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


def _case(view: View, request: Request) -> Response:
    """Return the case that a request selects by position or by name."""
    name = request.get("case")
    if name is None:
        position = _position(request["position"])
        lines = views.lines(view.run, view.filter, position, 1, order=view.asked.order)
        name = lines[0].case if lines else None
    else:
        position = views.position(view.run, view.filter, str(name), order=view.asked.order) or 0
    if name is None:
        return {"case": None, "position": position}
    shown = item(view.run, view.filter.scorer, str(name))
    html = case_html(shown, diff=bool(request.get("diff")), raw=bool(request.get("raw")), blind=view.blind)
    return {"case": shown.case, "position": position, "html": html, **_annotation(view, shown, request)}


def _annotation(view: View, shown: Item, request: Request) -> Response:
    """Return the question about a case, its annotations, and the progress of this reader."""
    known, reader = annotations.read(view.run.folder), str(request.get("reader") or "").strip()
    question, options = choices(shown, blind=view.blind)
    own_annotations = [
        annotation for annotation in annotations.case_annotations(shown, known) if annotation.who == reader
    ]
    visible = known if not view.blind else own_annotations
    total = sum(views.subsets(view.run).values())
    return {
        "question": question,
        "choices": options,
        "said": annotations_html(shown, visible),
        "progress": progress(annotations.current_annotations(view.run, known), reader, total),
    }


def _annotate(view: View, request: Request) -> Response:
    """Store a reader's verdict, which in blind mode is the index of the better response."""
    shown = item(view.run, view.filter.scorer, str(request["case"]))
    verdict, reader = str(request["verdict"]), str(request.get("reader") or "")
    if verdict.isdecimal():
        verdict = "agree" if int(verdict) in shown.best else "disagree"
    note = str(request.get("note") or "")
    annotations.add(view.run.folder, annotations.annotate(shown, verdict, reader, note, blind=view.blind))
    return _annotation(view, shown, request)
