"""The context of the tabs, functions that build tabs, and wrappers and options of Gradio's events.

A tab that shows data is one `gr.HTML`; the script `store.js` calls the tab's functions with the values of the address.
"""

import functools
import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from importlib import import_module
from typing import Any, NamedTuple, ParamSpec, TypeVar

import gradio as gr

from ...rm.errors import DataError, UsageError
from ..runs.summaries import read_heading
from .html import note_html, select_html
from .models import Models
from .run_list import ANSWERS, JUDGED, STUDY, TRAINED, Root, is_whole
from .settings import InspectConfig

P = ParamSpec("P")
R = TypeVar("R")
WORLD = "rewardlab world --output world"
EMPTY = {
    JUDGED: (
        "This folder has no run with judgments yet. These commands write one:",
        WORLD,
        "rewardlab eval --model rewardlab.benchmarks.garden:gold --data world/test.jsonl --output {folder}/eval",
    ),
    TRAINED: (
        "This folder has no policy training yet. These commands write one:",
        WORLD,
        "rewardlab train --kind linear --data world/train.jsonl --output {folder}/rm",
        "rewardlab rl --model world/policy --data world/train.jsonl --reward rm={folder}/rm --max_steps 20 "
        "--max_completion_length 16 --rollout_steps 5 --output {folder}/policy",
    ),
    STUDY: (
        "This folder has no study yet. This command writes one:",
        "python -m rewardlab.research.studies guide_recipes --output {folder}/guide_recipes",
    ),
    ANSWERS: (
        "This folder has no decoded file yet. This command writes one:",
        "rewardlab decode --base MODEL --arm GUIDE --data PROMPTS --sweep 11 --output {folder}/completions.jsonl",
    ),
}
"""Kind of run -> message for a folder without such a run: a sentence, and commands that write one."""
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_id": "in turn"}
EACH: dict[str, Any] = QUIET | {"trigger_mode": "multiple"}
"""Options of events that carry data. By default Gradio drops an event while the previous event is processed."""


class Site(NamedTuple):
    """Context of the tabs."""

    page: gr.Blocks
    root: Root
    config: InspectConfig
    models: Models

    def nothing_yet(self, kind: str) -> UsageError:
        """Return the error for a folder that has no run of this kind, in the format of `note_html`.

        Its commands write such a run. They contain the path of the folder, so that they can be copied without a change.
        """
        sentence, *commands = EMPTY[kind]
        folder = shlex.quote(str(self.root.folder))
        return UsageError("\n".join([sentence, *(f"`{command.format(folder=folder)}`" for command in commands)]))

    def pick(self, preferred: str | None, kind: str) -> str | None:
        """Return the current id of the preferred run, or if it does not exist, the id of a complete run.

        None if there is no run.
        """
        entries, chosen = self.root.entries(kind), self.root.followed(preferred, kind)
        if chosen in [entry.id for entry in entries]:
            return chosen
        complete = (entry.id for entry in entries if entry.kind != JUDGED or is_whole(entry.path))
        return next(complete, entries[0].id if entries else None)

    def scorers(self, run: str | None, preferred: str | None) -> tuple[list[tuple[str, str]], str | None]:
        """Return a run's scorers as choices with their roles, and the preferred scorer or the first model.

        Return no choices and None for a run that cannot be read. The view reports the error.
        """
        try:
            heading = read_heading(self.root.find(run, JUDGED))
        except ValueError:
            return [], None
        names = [(f"{name} ({role})", name) for name, role in heading.scorers.items()]
        return names, preferred if preferred in heading.scorers else heading.first()


# ---- tabs that show data ----


Query = Mapping[str, str]
"""Values of an address: tab, run, scorer, and further values of the tab."""
Function = Callable[[Mapping[str, Any]], dict[str, Any]]


class View(NamedTuple):
    """What a tab shows for an address."""

    query: Mapping[str, Any]
    """Values of the address, with missing values added and invalid values replaced."""
    parts: Mapping[str, Any]
    """Id of an element of the tab's template -> HTML or a Plotly figure. Other elements become empty."""
    growing: bool = False
    """Whether the page requests the tab again every few seconds."""
    later: tuple[str, ...] = ()
    """Ids of elements that are slow to compute; the page requests them afterwards by the tab's function `later`."""


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
        answered = {"query": query, "parts": encoded(shown.parts), "growing": shown.growing, "later": [*shown.later]}
        stamp = hashlib.sha256(json.dumps(answered, sort_keys=True, default=str).encode()).hexdigest()
        return {"same": True} if stamp == request.get("seen") else answered | {"stamp": stamp}

    def rest(request: Mapping[str, Any]) -> dict[str, Any]:
        return {"parts": encoded(functions().later(site, parse_query(request["query"])))}

    return gr.HTML(
        html_template=f'<div class="rl pane" id="{name}">{template}</div>',
        js_on_load=f"rewardlab.pane({json.dumps(name)}, element, server)",
        server_functions=server_functions(view=answer, later=rest),
        apply_default_css=False,
    )


def parse_query(values: Any) -> Query:
    """Return the query parameters of an address. Raise a `UsageError` if a value is not a string."""
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


def encoded(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return parts as JSON values: strings of HTML, or specifications of Plotly figures."""
    return {id: part if isinstance(part, str) else json.loads(part.to_json()) for id, part in parts.items()}


def noted(parts: Callable[[], Mapping[str, Any]], element: str) -> Mapping[str, Any]:
    """Return the parts. If computing them fails, return only a note with the reason, for the given element."""
    try:
        return parts()
    except (UsageError, DataError) as error:
        return {element: note_html(str(error))}


def run_select(site: Site, kind: str, run: str | None, label: str = "Run", name: str = "run") -> str:
    """Return a drop-down list of the runs of a kind."""
    return select_html(name, label, [(entry.label, entry.id) for entry in site.root.entries(kind)], run)


def controls(parts: Iterable[str]) -> str:
    """Return a row of controls."""
    return f'<div class="controls">{"".join(parts)}</div>'


# ---- events of Gradio ----


def show_errors(function: Callable[P, R]) -> Callable[P, Any]:
    """Wrap an event handler: an error in its input is shown as a sentence and leaves the outputs unchanged.

    `gr.Error` would put the word "Error" in place of every output.
    """

    @functools.wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return function(*args, **kwargs)
        except (UsageError, DataError) as error:
            return _warn(error)

    return answer


def stream_updates(function: Callable[P, Iterator[R]]) -> Callable[P, Iterator[Any]]:
    """Wrap a generator that handles an event. Errors are shown as in `show_errors`. Yielded values update the page."""

    @functools.wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
        try:
            yield from function(*args, **kwargs)
        except (UsageError, DataError) as error:
            yield _warn(error)

    return answer


def _warn(error: Exception) -> Any:
    """Show the error as a warning, and return the value that leaves the outputs unchanged."""
    gr.Warning(escape(str(error)), title="Not done")
    return gr.skip()


def number(value: float | None, name: str) -> float:
    """Return the number in a field. Raise `UsageError` if the field is empty."""
    if value is None:
        raise UsageError(f"{name} is empty; fill in a number")
    return value


def button(text: str, **options: Any) -> gr.Button:
    """Return a small button."""
    return gr.Button(text, **{"size": "sm", "scale": 0, "min_width": 90} | options)
