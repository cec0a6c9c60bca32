"""Explanations below a case: a judge's reasons and rubric, a reward model's attributions, and similar cases."""

import shlex
from collections.abc import Callable, Mapping
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from ......benchmarks.explanation.explain import explain
from ......benchmarks.explanation.types import Explanation
from ......judges.rubrics.rubric import lint
from ......rm.errors import UsageError
from ......rm.registry.specs import split_name
from ......rm.types import Example, Guide, RewardModel
from .....runs.run_folder import read_settings
from .....runs.tables import ITEMS, SCORES
from ....components import Function, Site, controls, encoded, parse_query
from ....html import note_html, select_html
from ....run_list import JUDGED, stamp
from ..cases import Item, item
from ..queries import open_run
from . import queries as views
from .criteria import grounds_html, load_grounds
from .rescore import SCORES as FORMULAS
from .rescore import Source, needs_judge, parse_rubric, rescore, rescored_html, source_of
from .similar import similar_cases, similar_html

START = "To explain scores, start the inspector with a reward model:\n`rewardlab inspect {run} --model MODEL`"
FIND = '<button type="button" id="similar-find" class="button">Find similar cases</button>'
KEPT = 4
"""Number of cached explanations, so that another objective can be selected without a new computation."""


class Chosen(NamedTuple):
    """The case that a request is about."""

    run: str
    scorer: str
    case: str


def functions(site: Site) -> dict[str, Function]:
    """Return the functions that the script calls. Each returns `parts`: element -> HTML or a figure."""

    @lru_cache(maxsize=KEPT)
    def explained(chosen: Chosen, name: str, _stamp: Any) -> tuple[Explanation, list[str]]:
        return _explained(site, *_case(site, chosen), name)

    def explanation(request: Mapping[str, Any]) -> Mapping[str, Any]:
        chosen = _chosen(request)
        now = stamp(_folder(site, chosen), (ITEMS, SCORES))
        return _explanation_parts(*explained(chosen, str(request["model"]), now), str(request.get("objective")))

    def similar(request: Mapping[str, Any]) -> Mapping[str, Any]:
        chosen = _chosen(request)
        cases = similar_cases(open_run(_folder(site, chosen)), chosen.scorer, chosen.case, site.config.retriever)
        return {"similar": similar_html(chosen.run, chosen.scorer, cases)}

    def parts_of(function: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Function:
        return lambda request: {"parts": encoded(function(request))}

    named = {
        "grounds": lambda request: _parts_below_case(site, _chosen(request)),
        "explain": explanation,
        "similar": similar,
        "rescore": lambda request: _rescored(site, _chosen(request), str(request["text"]), str(request["score"])),
    }
    return {name: parts_of(function) for name, function in named.items()}


def _chosen(request: Mapping[str, Any]) -> Chosen:
    """Return the run, scorer and case that a request names."""
    query = parse_query(request["query"])
    return Chosen(query["run"], query["scorer"], str(request["case"]))


def _folder(site: Site, chosen: Chosen) -> Path:
    """Return the current folder of the run, which changes when the run is finished."""
    return site.root.find(site.root.followed(chosen.run, JUDGED), JUDGED)


def _case(site: Site, chosen: Chosen) -> tuple[Path, Item]:
    """Return the run's folder and the case with its judgments."""
    folder = _folder(site, chosen)
    return folder, item(open_run(folder), chosen.scorer, chosen.case)


# ---- judges ----


def _parts_below_case(site: Site, chosen: Chosen) -> Mapping[str, str]:
    """Return a judge's reasons and rubric, a list of models for explanations, and a button for similar cases."""
    folder, models = _folder(site, chosen), site.models.names
    grounds = load_grounds(folder, chosen.scorer, chosen.case)
    model = chosen.scorer if chosen.scorer in models else next(iter(models), None)
    button = '<button type="button" id="explain" class="button">Explain</button>'
    lists = [select_html("model", "Explain with", [(name, name) for name in models], model), button]
    parts = {
        "why-controls": controls(lists) if models else note_html(START.format(run=shlex.quote(site.config.run))),
        "similar-bar": controls([FIND]),
    }
    if grounds is None:
        return parts
    rubric = _rubric_html(source_of(folder, site.root.folder, chosen.case)) if grounds.criteria else ""
    return parts | {"grounds": grounds_html(grounds, _case(site, chosen)[1].texts), "rubric-part": rubric}


def _rubric_html(source: Source) -> str:
    """Return the editor of a rubric: note, text, score function, and an element for the new scores."""
    note = note_html(source.note) if source.note else ""
    again = '<button type="button" id="rescore" class="button">Score again</button>'
    lists = controls([select_html("score", "Score", [(name, name) for name in FORMULAS], source.score), again])
    return (
        f"<details><summary>Rubric: edit it, and score the stored verdicts again</summary>{note}<textarea "
        f'id="rubric" aria-label="Rubric (TOML or JSON)" rows="12">{escape(source.text)}</textarea>{lists}'
        '<div class="part" id="rescored"></div></details>'
    )


def _rescored(site: Site, chosen: Chosen, text: str, score: str) -> Mapping[str, str]:
    """Return a table of scores under the edited rubric, computed from stored verdicts."""
    folder, shown = _case(site, chosen)
    grounds = load_grounds(folder, shown.scorer, shown.case)
    if grounds is None:
        raise UsageError(f"'{shown.scorer}' has no verdicts on criteria; choose a judge with a rubric")
    edited, values = parse_rubric(text), grounds.values(len(shown.answers))
    judged = source_of(folder, site.root.folder, shown.case).rubric
    recorded = shown.verdict.scores if shown.verdict else ()
    rows = rescore(edited, judged, values, recorded, score)
    return {"rescored": rescored_html(rows, needs_judge(edited, judged, values), lint(edited, shown.texts))}


# ---- models ----


def _explained(site: Site, folder: Path, shown: Item, name: str) -> tuple[Explanation, list[str]]:
    """Return a model's explanation of the margin, with sentences on the run's scores and the model's training."""
    settings, indices = read_settings(folder), _pair(shown)
    completions = [shown.answers[index] for index in indices]
    first, second = (f"response {index + 1}" for index in indices)
    pair = Example(shown.messages, completions[0]), Example(shown.messages, completions[1])
    with site.models.reward_model(name) as model:
        read = _model_at_preference(model, settings.get("preference"))
        explanation = explain(name, read, shown.messages, completions, (first, second))
        trained = Path(dict(map(split_name, site.config.model))[name])
        notes = [views.length_term_note(trained, read, pair, float(explanation.margin[0]))]
    judged = [verdict for verdict in shown.verdicts if verdict.scores]
    scores = {verdict.scorer.name: [verdict.scores[index] for index in indices] for verdict in judged}
    recorded = views.stored_scores_note(explanation, views.contracts_of(folder), scores, settings.get("objective"))
    return explanation, [recorded, *filter(None, notes)]


def _explanation_parts(explanation: Explanation, notes: list[str], objective: str) -> Mapping[str, Any]:
    """Return the explanation for one objective, by default the first. For several, add a list and a figure of all."""
    names = explanation.objectives
    chosen = objective if objective in names else names[0]
    html = views.explanation_html(explanation, names.index(chosen), notes)
    if len(names) < 2:
        return {"why": html, "why-objectives": ""}
    from .figures import objectives_figure

    lists = controls([select_html("objective", "Objective", [(name, name) for name in names], chosen)])
    return {"why": lists + html, "why-objectives": objectives_figure(explanation)}


def _pair(shown: Item) -> tuple[int, int]:
    """Return the indices, in order, of the two responses whose margin is explained: the case's margin if it has one."""
    if len(shown.answers) < 2:
        raise UsageError("this case has only one response and thus no margin; choose a case with two or more")
    first, second = sorted(shown.pair or (0, 1))
    return first, second


def _model_at_preference(model: RewardModel, preference: Any) -> RewardModel:
    """Return the model at the preference vector of the run. A model without preferences is returned unchanged."""
    from ......rm.data.preference_vectors import parse_preference

    if not isinstance(preference, str) or not isinstance(model, Guide) or model.adapter is None:
        return model
    return model.at(parse_preference(preference)) if model.adapter.settings.follows_preference else model
