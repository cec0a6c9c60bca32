"""Construction of rubrics from preference pairs with a filter, and generation of rubrics for cases."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...rm.io.markdown import table
from ..backends.chat import Chat
from ..rubrics.files import rubric_row
from ..rubrics.rubric import Rubric
from ..types import Case
from .filter import FilteredRubric, FilterLimits, verify
from .generator import generate
from .requests import Rejected
from .synthesise import Sides, synthesise

Outcomes = Mapping[str, FilteredRubric | Rejected]
"""Pair id -> rubric of the pair, or the reason why the pair has no rubric."""


def build_rubrics(
    pairs: Mapping[str, Sides],
    writer: Chat,
    judge: Chat,
    *,
    limits: FilterLimits | None = None,
    names: tuple[str, str],
    log: Callable[[str], None],
) -> Outcomes:
    """Diagnose both responses of every pair, write a rubric from the diagnoses and filter it.

    `names` are the models' names in the log.
    """
    sides = [*pairs.values()]
    log(f"diagnosing both answers of {len(sides)} pairs and writing their rubrics with {names[0]}")
    syntheses = synthesise(writer, sides)
    count = sum(isinstance(synthesis.rubric, Rubric) for synthesis in syntheses)
    log(f"judging under {count} rubrics with {names[1]}")
    return dict(zip(pairs, verify(judge, sides, syntheses, limits), strict=True))


def generate_rubrics(writer: Chat, cases: Sequence[Case]) -> dict[str, Rubric | Rejected]:
    """Generate a rubric for each case. The responses keep the case's order, which does not depend on the label."""
    sides = [Sides(case.prompt, *case.texts, preferred="A") for case in cases]
    return dict(zip([case.id for case in cases], generate(writer, sides), strict=True))


def accepted_rubrics(outcomes: Outcomes) -> dict[str, FilteredRubric]:
    """Return the rubrics that passed the filter."""
    return {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, FilteredRubric)}


def count_reasons(outcomes: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of outcomes without a rubric by reason, the most frequent first."""
    return dict(Counter(outcome.reason for outcome in outcomes.values() if isinstance(outcome, Rejected)).most_common())


def filter_summary(outcomes: Outcomes) -> dict[str, Any]:
    """Return the number of accepted rubrics, and of dropped pairs by reason."""
    accepted = [*accepted_rubrics(outcomes).values()]
    rules = sum(len(pair.rubric.rules) for pair in accepted)
    return {
        "kept": len(accepted),
        "useful": sum(pair.useful for pair in accepted),
        "mean_rules": rules / len(accepted) if accepted else None,
        "dropped": count_reasons(outcomes),
    }


def rubric_rows(outcomes: Outcomes) -> list[dict[str, Any]]:
    """Return a row for each accepted rubric, with its pair and the diagnoses behind it."""
    rows = []
    for name, pair in accepted_rubrics(outcomes).items():
        diagnoses = [diagnosis.as_json() for diagnosis in pair.diagnoses] if pair.diagnoses else None
        sides = pair.sides._asdict() | {"prompt": list(pair.sides.prompt)}
        rows.append(rubric_row(name, pair.rubric, useful=pair.useful, **sides, diagnoses=diagnoses))
    return rows


def dropped_rows(outcomes: Outcomes) -> list[dict[str, Any]]:
    """Return a row for each pair without a rubric, with the reason."""
    return [{"case": name, **outcome._asdict()} for name, outcome in outcomes.items() if isinstance(outcome, Rejected)]


def build_report(facts: Mapping[str, Any]) -> str:
    """Return the report of a build as Markdown."""
    rows = [[reason, str(count)] for reason, count in facts["dropped"].items()]
    return (
        f"# Rubrics from contrast\n\n{facts['kept']} of {facts['pairs']} pairs have a rubric under which the judge "
        f"finds the preferred answer in both orders; for {facts['useful']} of them, the judge errs without the rubric. "
        f"{facts['without_preference']} pairs had no preference.\n\n{table(['dropped because', 'pairs'], rows)}\n"
    )
