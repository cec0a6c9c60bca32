"""Explanations of a case's score: stored replies of judges, an editable rubric, and attributions of a reward model."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from ......benchmarks.explanation.explain import explain
from ......benchmarks.explanation.types import Explanation
from ......judges.rubrics.rubric import lint
from ......rm.errors import UsageError
from ......rm.registry.specs import split_name
from ......rm.types import Example, Guide, RewardModel
from .....runs.run_folder import read_settings
from ....components import QUIET, SLOW, Site, button, show_errors
from ....html import note_html
from ....run_list import JUDGED
from ..cases import Item, item
from ..queries import open_run
from . import queries as views
from .criteria import grounds_html, load_grounds
from .rescore import DEFAULT_SCORE, SCORES, needs_judge, parse_rubric, rescore, rescored_html, source_of
from .similar import similar_cases, similar_html

START = "A reward model that is named at the start explains its scores:\n`rewardlab inspect {run} --model MODEL`"
Chosen = tuple[str, str, str]
"""Run id, scorer and case."""


class Section(NamedTuple):
    """The components below a case, and the function that updates them."""

    components: list[Any]
    update: Callable[[str | None, str | None, str | None], list[Any]]
    """Run id, scorer and case -> a value for each component."""


class Asked(NamedTuple):
    """The components of a model's explanation."""

    explanation: gr.State
    objective: gr.Dropdown
    shown: gr.HTML
    objectives: gr.Plot

    def nothing(self) -> list[Any]:
        """Return the values for a case that is not explained yet."""
        return [None, gr.Dropdown(visible=False), "", gr.Plot(visible=False)]


def section(site: Site) -> Section:
    """Build the components in the current page."""
    chosen = gr.State()
    judged = gr.HTML(elem_id="grounds", apply_default_css=False)
    rubric = _rubric(site, chosen)
    model, start, asked = _model(site, chosen)
    find, similar = _similar(site, chosen)

    def update(run: str | None, scorer: str | None, case: str | None) -> list[Any]:
        if not (run and scorer and case):
            return [None, "", *_no_rubric(), gr.skip(), *asked.nothing(), "", *[gr.Button(interactive=False)] * 2]
        folder = site.root.find(run, JUDGED)
        judged_values = _judgment_outputs(folder, site.root.folder, scorer, case)
        same = gr.Dropdown(value=scorer) if scorer in site.models.names else gr.skip()
        return [(run, scorer, case), *judged_values, same, *asked.nothing(), "", *[gr.Button(interactive=True)] * 2]

    return Section([chosen, judged, *rubric, model, *asked, similar, start, find], update)


def _run_and_item(site: Site, chosen: Chosen | None) -> tuple[Path, Item]:
    """Return the folder of the chosen run, and the case."""
    if chosen is None:
        raise UsageError("no item is chosen; choose one in the table")
    run, scorer, case = chosen
    folder = site.root.find(run, JUDGED)
    return folder, item(open_run(folder), scorer, case)


def _on_click(
    button: gr.Button,
    chosen: gr.State,
    inputs: list[Any],
    outputs: list[Any],
    compute: Callable[..., list[Any]],
    progress: gr.HTML,
) -> None:
    """Connect a button to a slow function of the chosen case and the inputs.

    The result is discarded if another case was chosen meanwhile.
    """
    computed = gr.State()

    def answer(chosen: Chosen | None, *values: Any) -> tuple[Chosen | None, list[Any]]:
        return chosen, compute(chosen, *values)

    def show(chosen: Chosen | None, computed: tuple[Chosen | None, list[Any]] | None) -> list[Any]:
        if computed is None or computed[0] != chosen:  # refused, or the reader has gone on to another case
            return [gr.skip() for _ in outputs]
        return computed[1]

    begun = button.click(lambda: None, None, computed, **QUIET)  # after the events that choose the case
    done = begun.then(show_errors(answer), [chosen, *inputs], computed, **SLOW, show_progress_on=progress)
    done.then(show, [chosen, computed], outputs, **QUIET)


# ---- judges ----


def _rubric(site: Site, chosen: gr.State) -> list[Any]:
    """Build the editor of a rubric: group, note, text, score function and new scores."""
    with gr.Accordion("Rubric: edit it, and score the stored verdicts again", open=False, visible=False) as group:
        status_html = gr.HTML(apply_default_css=False)
        text = gr.Textbox(lines=10, max_lines=30, label="Rubric (TOML or JSON)", elem_id="rubric")
        with gr.Row(elem_classes="bar"):
            score = gr.Dropdown(list(SCORES), label="Score", scale=1)
            again = button("Score again")
        new = gr.HTML(elem_id="rescored", apply_default_css=False)

    def rescored(chosen: Chosen | None, text: str, score: str) -> str:
        return _rescored(site, chosen, text, score)

    again.click(show_errors(rescored), [chosen, text, score], new, **QUIET)
    return [group, status_html, text, score, new]


def _no_rubric() -> list[Any]:
    return [gr.Accordion(visible=False), "", "", DEFAULT_SCORE, ""]


def _judgment_outputs(folder: Path, root: Path, scorer: str, case: str) -> list[Any]:
    """Return the explanation of a judgment, and the rubric if there are verdicts on criteria."""
    grounds = load_grounds(folder, scorer, case)
    if grounds is None:
        return ["", *_no_rubric()]
    shown = grounds_html(grounds, item(open_run(folder), scorer, case).texts)
    if not grounds.criteria:
        return [shown, *_no_rubric()]
    source = source_of(folder, root, case)
    note = note_html(source.note) if source.note else ""
    return [shown, gr.Accordion(visible=True), note, source.text, source.score, ""]


def _rescored(site: Site, chosen: Chosen | None, text: str, score: str) -> str:
    folder, shown = _run_and_item(site, chosen)
    grounds = load_grounds(folder, shown.scorer, shown.case)
    if grounds is None:
        raise UsageError(f"'{shown.scorer}' left no verdicts on criteria; choose a judge that goes by a rubric")
    edited, values = parse_rubric(text), grounds.values(len(shown.answers))
    judged = source_of(folder, site.root.folder, shown.case).rubric
    recorded = shown.verdict.scores if shown.verdict else ()
    rows = rescore(edited, judged, values, recorded, score)
    return rescored_html(rows, needs_judge(edited, judged, values), lint(edited, shown.texts))


# ---- models ----


def _model(site: Site, chosen: gr.State) -> tuple[gr.Dropdown, gr.Button, Asked]:
    """Build the list of models, the button that computes an explanation of the chosen case, and its components."""
    names = site.models.names
    if not names:
        gr.HTML(note_html(START.format(run=shlex.quote(site.config.run))), apply_default_css=False)
    with gr.Row(elem_classes="bar", visible=bool(names)):
        model = gr.Dropdown(names, value=names[0] if names else None, label="Explain with", scale=2)
        start = button("Explain", interactive=False)
        objective = gr.Dropdown([], label="Objective", type="index", visible=False, scale=2)
    shown = gr.HTML(elem_id="why", apply_default_css=False)
    asked = Asked(gr.State(), objective, shown, gr.Plot(visible=False, show_label=False))
    _on_click(start, chosen, [model], list(asked), lambda chosen, name: _explained(site, chosen, name), shown)
    objective.input(show_errors(_redrawn), [asked.explanation, objective], shown, **QUIET)
    return model, start, asked


def _similar(site: Site, chosen: gr.State) -> tuple[gr.Button, gr.HTML]:
    """Build the table of similar cases, and the button that computes it for the chosen case."""
    with gr.Row(elem_classes="bar"):
        find = button("Find similar cases", interactive=False)
    table = gr.HTML(elem_id="similar", apply_default_css=False)

    def compute(chosen: Chosen | None) -> list[Any]:
        folder, shown = _run_and_item(site, chosen)
        similar = similar_cases(open_run(folder), shown.scorer, shown.case, site.config.retriever)
        assert chosen is not None
        return [similar_html(chosen[0], shown.scorer, similar)]

    _on_click(find, chosen, [], [table], compute, table)
    return find, table


def _explained(site: Site, chosen: Chosen | None, name: str | None) -> list[Any]:
    folder, shown = _run_and_item(site, chosen)
    settings, indices = read_settings(folder), _pair(shown)
    completions = [shown.answers[index] for index in indices]
    first, second = (f"response {index + 1}" for index in indices)
    pair = tuple(Example(shown.messages, completion) for completion in completions)
    with site.models.reward_model(name) as model:
        read = _read_at(model, settings.get("preference"))
        explanation = explain(str(name), read, shown.messages, completions, (first, second))
        trained = Path(dict(map(split_name, site.config.model))[str(name)])
        notes = [views.length_term_note(trained, read, (pair[0], pair[1]), float(explanation.margin[0]))]
    scores = {
        verdict.scorer.name: [verdict.scores[index] for index in indices]
        for verdict in shown.verdicts
        if verdict.scores
    }
    recorded = views.stored_scores_note(explanation, views.contracts_of(folder), scores, settings.get("objective"))
    explained = explanation, [recorded, *filter(None, notes)]
    several = len(explanation.objectives) > 1
    return [
        explained,
        gr.Dropdown(list(explanation.objectives), value=explanation.objectives[0], visible=several),
        _redrawn(explained, 0),
        gr.Plot(views.objectives_figure(explanation) if several else None, visible=several),
    ]


def _pair(shown: Item) -> tuple[int, int]:
    """Return the indices, in order, of the two responses whose margin is explained: the case's margin if it has one."""
    if len(shown.answers) < 2:
        raise UsageError("this case has one response; a margin between two is what can be explained")
    first, second = sorted(shown.pair or (0, 1))
    return first, second


def _read_at(model: RewardModel, preference: Any) -> RewardModel:
    """Return the model at the preference vector of the run. A model without preferences is returned unchanged."""
    from ......rm.data.preference_vectors import parse_preference

    if not isinstance(preference, str) or not isinstance(model, Guide) or model.adapter is None:
        return model
    return model.at(parse_preference(preference)) if model.adapter.settings.follows_preference else model


def _redrawn(explained: tuple[Explanation, list[str]] | None, objective: int | None) -> str:
    if explained is None:
        raise UsageError("nothing is explained yet; press Explain")
    explanation, notes = explained
    return views.explanation_html(explanation, objective or 0, notes)
