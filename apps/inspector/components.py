"""Components shared by the tabs: the context `Site`, lists of runs, and error messages."""

import functools
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, NamedTuple, ParamSpec, TypeVar

import gradio as gr

from ...rm.errors import DataError, UsageError
from ..runs.summaries import read_heading
from .html import note_html
from .models import Models
from .run_list import ANSWERS, JUDGED, STUDY, TRAINED, Entry, Root, is_whole
from .settings import InspectConfig

P = ParamSpec("P")
R = TypeVar("R")
WORLD = "rewardlab world --output world"
EMPTY = {
    JUDGED: (
        "No run with judgments is here yet. These commands write one:",
        WORLD,
        "rewardlab eval --model rewardlab.benchmarks.garden:gold --data world/test.jsonl --output {folder}/eval",
    ),
    TRAINED: (
        "No training of a policy is here yet. These commands write one:",
        WORLD,
        "rewardlab train --kind linear --data world/train.jsonl --output {folder}/rm",
        "rewardlab rl --model world/policy --data world/train.jsonl --reward rm={folder}/rm --max_steps 20 "
        "--max_completion_length 16 --rollout_steps 5 --output {folder}/policy",
    ),
    STUDY: (
        "No study is here yet. This command writes one:",
        "python -m rewardlab.research.studies guide_recipes --output {folder}/guide_recipes",
    ),
    ANSWERS: (
        "No decoded file is here yet. This command writes one:",
        "rewardlab decode --base MODEL --arm GUIDE --data PROMPTS --sweep 11 --output {folder}/completions.jsonl",
    ),
}
"""Kind of run -> message for a folder without such a run: a sentence, and commands that write one."""
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_id": "in turn"}
EACH: dict[str, Any] = QUIET | {"trigger_mode": "multiple"}
"""Options of events that carry data. By default Gradio drops an event while the previous event is processed."""
DIMMED: dict[str, Any] = QUIET | {"show_progress": "minimal", "trigger_mode": "always_last"}
"""Options of choices that update much of a tab: outputs are dimmed during the update, and the last choice wins."""
SLOW: dict[str, Any] = {"show_progress": "minimal", "api_visibility": "private", "concurrency_id": "models"}
"""Options of events that run a model: one at a time, in a queue separate from other events."""
ALL = 1_000_000
"""Maximum number of choices in a list. Gradio 6.31 reads None as its default of 100."""


class Site(NamedTuple):
    """Context of the tabs."""

    page: gr.Blocks
    root: Root
    config: InspectConfig
    models: Models
    tab: gr.Tab | None = None
    """Tab that is being built."""

    def nothing_yet(self, kind: str) -> UsageError:
        """Return the error for a folder without a run of a kind: a sentence, and commands for `note_html`.

        The commands contain the path of the folder, so that they can be copied without a change.
        """
        sentence, *commands = EMPTY[kind]
        folder = shlex.quote(str(self.root.folder))
        return UsageError("\n".join([sentence, *(f"`{command.format(folder=folder)}`" for command in commands)]))

    def opening(self, name: str, function: Callable[..., list[Any]], inputs: list[Any], outputs: list[Any]) -> Any:
        """Return the event at which the tab `name` is first shown: a hidden tab computes nothing.

        `function` receives the inputs, and the query of the address if the address names this tab.
        """
        assert self.tab is not None
        seen = gr.State(False)

        def select(request: gr.Request, seen: bool, *values: Any) -> list[Any]:
            if seen:
                return [True, *(gr.skip() for _ in outputs)]
            asked = dict(request.query_params)
            return [True, *function(asked if asked_tab(asked) == name else {}, *values)]

        return self.tab.select(select, [seen, *inputs], [seen, *outputs], **QUIET)

    def chooser(self, kind: str, *, label: str = "Run", index: int = 0, **options: Any) -> gr.Dropdown:
        """Return a dropdown list of the runs of a kind. The list is updated as runs are written.

        The initial value is the run at `index` among the readable runs, or the last run.
        """
        entries = self.root.entries(kind)
        value = _select_run(None, entries, index)
        dropdown = gr.Dropdown(_choices(entries), value=value, label=label, num_choices_shown=ALL, **options)

        def look(chosen: str | None) -> Any:
            now = self.root.entries(kind)
            known = _select_run(chosen, now, index)
            value = {} if known == chosen else {"value": known}  # the reader may have chosen another one meanwhile
            return gr.Dropdown(_choices(now), **value)

        dropdown.focus(look, dropdown, dropdown, **QUIET)
        return dropdown

    def pick(self, preferred: str | None, kind: str) -> str | None:
        """Return the id of the preferred run if it exists, else of the first complete run. None if there is no run."""
        return _select_run(preferred, self.root.entries(kind), 0)

    def run_list(self, run: str | None, kind: str) -> gr.Dropdown:
        """Return an update of a `chooser` with the current runs."""
        return gr.Dropdown(_choices(self.root.entries(kind)), value=run)

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


def show_errors(function: Callable[P, R]) -> Callable[P, Any]:
    """Wrap an event's function to show an error about its input as a sentence and leave the outputs unchanged.

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
    """Wrap an event's generator function like `show_errors` does. Each yielded value updates the page."""

    @functools.wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
        try:
            yield from function(*args, **kwargs)
        except (UsageError, DataError) as error:
            yield _warn(error)

    return answer


def _warn(error: Exception) -> Any:
    gr.Warning(escape(str(error)), title="Not done")
    return gr.skip()


def number(value: float | None, name: str) -> float:
    """Return the number in a field. Raise `UsageError` if the field is empty."""
    if value is None:
        raise UsageError(f"{name} is empty; fill in a number")
    return value


def with_note(function: Callable[P, list[Any]], empty: Callable[[], list[Any]]) -> Callable[P, list[Any]]:
    """Wrap an event's function to return a note as an additional first output. The note contains the error, if any.

    After an error, `empty` supplies the other outputs.
    """

    @functools.wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> list[Any]:
        try:
            return [gr.HTML("", visible=False), *function(*args, **kwargs)]
        except (UsageError, DataError) as error:
            return [gr.HTML(note_html(str(error)), visible=True), *empty()]

    return answer


def asked_tab(query: Mapping[str, str]) -> str | None:
    """Return the tab that an address names, as in `?tab=compare`. With only a run or item: `judgments`."""
    return query.get("tab") or ("judgments" if query.keys() & {"run", "item"} else None)


def _select_run(chosen: str | None, entries: Sequence[Entry], index: int) -> str | None:
    """Return the chosen run, else the run at `index` of the complete runs, or of all runs if none is complete."""
    ids = [entry.id for entry in entries]
    if chosen in ids or not ids:
        return chosen if ids else None
    readable = (entry.id for entry in entries if entry.kind != JUDGED or is_whole(entry.path))
    return ([*islice(readable, index + 1)] or ids[:1])[-1]


def filled_list(label: str, **options: Any) -> gr.Dropdown:
    """Return an empty dropdown list whose choices depend on another component.

    It accepts any value, because an event may still carry the old value while the list is updated.
    """
    return gr.Dropdown([], label=label, allow_custom_value=True, num_choices_shown=ALL, **options)


def address_script(tab: str, *names: str) -> str:
    """Return JavaScript that writes the tab and the inputs of an event, named `names`, into the address bar."""
    return (
        f"(...values) => {{const query = new URLSearchParams({{tab: {json.dumps(tab)}}}); {json.dumps(names)}.forEach("
        "(name, place) => {if (values[place] != null && String(values[place]) !== '') "
        "query.set(name, values[place])}); window.rewardlabHistory?.go(query)}"
    )


def _choices(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    return [(entry.label, entry.id) for entry in entries]


def button(text: str, **options: Any) -> gr.Button:
    """Return a small button."""
    return gr.Button(text, **{"size": "sm", "scale": 0, "min_width": 90} | options)
