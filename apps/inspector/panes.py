"""Tabs that show data: one `gr.HTML` each, whose functions the page's store calls with the values of the address."""

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import gradio as gr

from ...rm.errors import DataError, UsageError
from .components import Site
from .html import note_html, select_html

Query = Mapping[str, str]
"""Values of an address: tab, run, scorer, and what the tab has more."""
Function = Callable[[Mapping[str, Any]], dict[str, Any]]


class View(NamedTuple):
    """What a tab shows for an address."""

    query: Mapping[str, Any]
    """Values that are shown: those of the address, completed and corrected."""
    parts: Mapping[str, Any]
    """Id of an element of the tab's template -> HTML or a Plotly figure. Other elements become empty."""
    growing: bool = False
    """Whether the page asks again every few seconds."""
    later: tuple[str, ...] = ()
    """Elements whose content takes longer: the page asks the tab's second function for them."""


def pane(site: Site, name: str, template: str, module: str) -> gr.HTML:
    """Build a tab. `template` is HTML with an empty element of class `part` for each part of the view.

    `module` below `tabs` has `view(site, query) -> View` and perhaps `later(site, query) -> parts`. It is imported when
    the tab is first shown, as some tabs need libraries that take seconds to import.
    """

    def functions() -> Any:
        return import_module(f".tabs.{module}", __package__)

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        shown = functions().view(site, parse_query(request["query"]))
        query = {key: str(value) for key, value in shown.query.items() if value not in (None, "")}
        answered = {"query": query, "parts": _encoded(shown.parts), "growing": shown.growing, "later": [*shown.later]}
        stamp = hashlib.sha256(json.dumps(answered, sort_keys=True, default=str).encode()).hexdigest()
        return {"same": True} if stamp == request.get("seen") else answered | {"stamp": stamp}

    def rest(request: Mapping[str, Any]) -> dict[str, Any]:
        return {"parts": _encoded(functions().later(site, parse_query(request["query"])))}

    return gr.HTML(
        html_template=f'<div class="rl pane" id="{name}">{template}</div>',
        js_on_load=f"rewardlab.pane({json.dumps(name)}, element, server)",
        server_functions=server_functions(view=answer, later=rest),
        apply_default_css=False,
    )


def parse_query(values: Any) -> Query:
    """Return the values of an address. Raise a `UsageError` if one is no text."""
    if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
        raise UsageError("the values of an address must be strings")
    return {str(name): value for name, value in values.items()}


def server_functions(**functions: Function) -> list[Function]:
    """Return functions for a page's script. A response to an invalid request has a sentence in `error`."""

    def handler(name: str, function: Function) -> Function:
        @functools.wraps(function)
        def answer(request: Mapping[str, Any]) -> dict[str, Any]:
            try:
                return function(request)
            except (UsageError, DataError) as error:
                return {"error": str(error)}
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                return {"error": f"the request of the page is malformed: {error!r}; reload the page"}

        answer.__name__ = name
        return answer

    return [handler(*item) for item in functions.items()]


def _encoded(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {id: part if isinstance(part, str) else json.loads(part.to_json()) for id, part in parts.items() if part}


def noted(parts: Callable[[], Mapping[str, Any]], element: str) -> Mapping[str, Any]:
    """Return the parts, or the reason why there are none as a note in an element."""
    try:
        return parts()
    except (UsageError, DataError) as error:
        return {element: note_html(str(error))}


def run_select(site: Site, kind: str, run: str | None, label: str = "Run", name: str = "run") -> str:
    """Return a list of the runs of a kind."""
    return select_html(name, label, [(entry.label, entry.id) for entry in site.root.entries(kind)], run)


def controls(parts: Iterable[str]) -> str:
    """Return a row of controls."""
    return f'<div class="controls">{"".join(parts)}</div>'
