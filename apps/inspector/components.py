"""Components shared by the tabs: the site, a list of runs that is kept up to date, and error messages."""

import functools
import json
from collections.abc import Callable, Iterator
from html import escape
from typing import Any, NamedTuple, ParamSpec, TypeVar

import gradio as gr

from ...rm.errors import DataError, UsageError
from ..commands.inspect.settings import InspectConfig
from ..runs.summaries import read_heading
from .html import note_html
from .models import Models
from .run_list import JUDGED, Root

P = ParamSpec("P")
R = TypeVar("R")
NO_JUDGMENTS = "No run with judgments here yet: `rewardlab eval` and `rewardlab judge` write one with `--output`."
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_id": "in turn"}
SLOW: dict[str, Any] = {"show_progress": "minimal", "api_visibility": "private", "concurrency_id": "models"}
"""Of events that ask a model: one at a time, and readers do not wait for them."""


class Site(NamedTuple):
    """Context of the tabs."""

    page: gr.Blocks
    root: Root
    config: InspectConfig
    models: Models
    tab: gr.Tab | None = None
    """The one that is being built."""


def sentences(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap an event's function so that an error about its input is shown on the page."""

    @functools.wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (UsageError, DataError) as error:
            raise gr.Error(escape(str(error)), print_exception=False) from error

    return answer


def streamed(function: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """`sentences` for a function that yields one state of the page after the other."""

    @functools.wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            yield from function(*args, **kwargs)
        except (UsageError, DataError) as error:
            raise gr.Error(escape(str(error)), print_exception=False) from error

    return answer


def number(value: float | None, name: str) -> float:
    """What is in a field; one that was emptied is reported."""
    if value is None:
        raise UsageError(f"{name} is empty; fill in a number")
    return value


def noted(function: Callable[P, list[Any]], empty: Callable[[], list[Any]]) -> Callable[P, list[Any]]:
    """An event's function with one more output before its own: a sentence where there is nothing to show.

    `empty` gives the other outputs then.
    """

    @functools.wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> list[Any]:
        try:
            return [gr.HTML("", visible=False), *function(*args, **kwargs)]
        except (UsageError, DataError) as error:
            return [gr.HTML(note_html(str(error)), visible=True), *empty()]

    return answer


def opening(site: Site, name: str, function: Callable[..., list[Any]], inputs: list[Any], outputs: list[Any]) -> Any:
    """The event at which the tab `name` first comes into sight: a tab that is not visible computes nothing.

    `function` gets what the address asks of this tab, and the inputs.
    """
    assert site.tab is not None
    seen = gr.State(False)

    def select(request: gr.Request, seen: bool, *values: Any) -> list[Any]:
        if seen:
            return [True, *(gr.skip() for _ in outputs)]
        asked = dict(request.query_params)
        return [True, *function(asked if asked.get("tab") == name else {}, *values)]

    return site.tab.select(select, [seen, *inputs], [seen, *outputs], **QUIET)


def chooser(
    site: Site, *kinds: str, label: str = "Run", name: str = "run", index: int = 0, **options: Any
) -> gr.Dropdown:
    """A list of the runs of some kinds, which grows as runs are written; the address may name one: `?run=ID`.

    Until one is chosen it is the one at `place`, or the last.
    """
    choices = _choices(site, kinds)
    dropdown = gr.Dropdown(choices, value=_known(None, choices, index), label=label, **options)

    def look(chosen: str | None) -> Any:
        now = _choices(site, kinds)
        return gr.Dropdown(now, value=_known(chosen, now, index))

    def arrive(request: gr.Request) -> Any:
        return look(request.query_params.get(name))

    site.page.load(arrive, None, dropdown, **QUIET)
    dropdown.focus(look, dropdown, dropdown, **QUIET)
    return dropdown


def _known(chosen: str | None, choices: list[tuple[str, str]], index: int) -> str | None:
    ids = [id for _, id in choices]
    return chosen if chosen in ids else (ids[min(index, len(ids) - 1)] if ids else None)


def pick(site: Site, preferred: str | None, *kinds: str, index: int = 0) -> str | None:
    """The id of the run that is wanted if it is there, else of the one at `place` or the last; None for no run."""
    return _known(preferred, _choices(site, kinds), index)


def scorers(site: Site, run: str | None, preferred: str | None) -> tuple[list[tuple[str, str]], str | None]:
    """A list of a run's scorers with their roles, and the one that is wanted, or the first model.

    Both are empty for a run that cannot be read: the view reports why.
    """
    try:
        heading = read_heading(site.root.find(run, JUDGED))
    except ValueError:
        return [], None
    names = [(f"{name} ({role})", name) for name, role in heading.scorers.items()]
    return names, preferred if preferred in heading.scorers else heading.first()


def run_list(site: Site, run: str | None, *kinds: str) -> gr.Dropdown:
    """Return an update of a `chooser` with the current runs."""
    return gr.Dropdown(_choices(site, kinds), value=run)


def filled_list(label: str, **options: Any) -> gr.Dropdown:
    """An empty list that another choice fills.

    Any value is taken from it: while it is filled anew an event may still bring the old one, which its reader
    replaces.
    """
    return gr.Dropdown([], label=label, allow_custom_value=True, **options)


def address(tab: str, *names: str) -> str:
    """JavaScript of an event that writes the tab and its inputs, by these names, into the address bar."""
    return (
        f"(...values) => {{const query = new URLSearchParams({{tab: {json.dumps(tab)}}}); {json.dumps(names)}.forEach("
        "(name, place) => {if (values[place] != null && String(values[place]) !== '') "
        "query.set(name, values[place])}); history.replaceState(null, '', '?' + query)}"
    )


def _choices(site: Site, kinds: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(entry.label, entry.id) for entry in site.root.entries(*kinds)]


def button(text: str, **options: Any) -> gr.Button:
    """Return a small button."""
    return gr.Button(text, **{"size": "sm", "scale": 0, "min_width": 140} | options)
