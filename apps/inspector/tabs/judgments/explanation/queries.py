"""Explanation of a margin as HTML: causes, responses coloured by their contributions, and rewards of objectives."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ......benchmarks.explanation.exact import term_of_length
from ......benchmarks.explanation.types import Cause, Explanation, Pieces
from ......rm.errors import UNREADABLE
from ......rm.types import Example, ReadsTokens, RewardModel
from ....html import box_html, number, text_html
from ....run_list import read_manifest
from ....texts import tokens
from ....texts.tokens import Scale, heat_html, legend_html, scale_of, shades
from ...metrics import row_html, table_html

TOLERANCE = 1e-4


# ---- the score in the run ----


def contracts_of(folder: Path) -> dict[str, str]:
    """Load the hash of every scorer's scoring contract from the manifest of a run. Empty if the manifest has none."""
    try:
        return {str(name): str(contract) for name, contract in read_manifest(folder)["contracts"].items()}
    except UNREADABLE:
        return {}


def stored_scores_note(
    explanation: Explanation,
    contracts: Mapping[str, str],
    scores: Mapping[str, Sequence[float]],
    objective: str | None = None,
) -> str:
    """Return a sentence that compares the rewards with the stored scores of a scorer with the same contract.

    The run's score is the reward for its `objective`, or the mean over all objectives.
    """
    same = [name for name, contract in contracts.items() if contract == explanation.contract and scores.get(name)]
    if not same:
        return f"No score in this run has the scoring contract of '{explanation.model}'."
    column = explanation.objectives.index(objective) if objective in explanation.objectives else None
    now = explanation.rewards.mean(1) if column is None else explanation.rewards[:, column]
    off = {name: float(np.abs(np.array(scores[name]) - now).max()) for name in same}
    name = min(off, key=off.__getitem__)
    if off[name] <= TOLERANCE * max(1.0, float(np.abs(now).max())):
        return f"These are the scores of '{name}' in the run (up to {off[name]:.1g})."
    return f"The scores of '{name}' in the run differ by {off[name]:.4g}: the model has other weights."


def length_term_note(folder: Path, model: RewardModel, pair: tuple[Example, Example], margin: float) -> str:
    """Return a sentence on the length term of a length-controlled training, from the manifest of the model's folder."""
    try:
        (term,) = read_manifest(folder)["length_term"].values()
        weight, scale = float(term["weight"]), float(term["scale"])
    except UNREADABLE:
        return ""
    if not isinstance(model, ReadsTokens):
        return ""
    first, second = (len(row.ids) for row in model.encoder.encode_all(pair))
    value = term_of_length(weight, scale, first - second)
    return (
        f"In training, length alone explained {_signed(value)} of this pair's margin ({first:,} against {second:,} "
        f"tokens); the score excludes this term; with it the margin is {_signed(margin + value)}."
    )


# ---- what is shown ----


def explanation_html(explanation: Explanation, objective: int, notes: Sequence[str] = ()) -> str:
    """Return the main cause in a sentence, all causes, and the responses coloured by their parts' contributions.

    All contributions to the margin share one colour scale: positive ones favour the first response, negative ones
    the second.
    """
    attribution = explanation.attribution
    scale = scale_of([part.values[objective] for part in attribution.pieces])
    first, second = explanation.labels
    legend = legend_html(scale, unit="reward", low=f"for {second}", high=f"for {first}")
    boxes = "".join(
        box_html(
            f'<span>{text_html(label.capitalize())}</span><span class="end">{number(reward)}</span>',
            _part_html(part, objective, scale),
        )
        for label, reward, part in zip(
            explanation.labels, explanation.rewards[:, objective], attribution.pieces, strict=True
        )
    )
    return (
        f'<div class="rl"><p class="lead"><strong>{text_html(explanation.lead(objective))}'
        f"</strong></p>{_causes_html(explanation, objective)}{_faint_html(_sum_sentences(explanation, objective))}"
        f"{''.join(map(_faint_html, notes))}{legend}"
        f'<div class="answers">{boxes}</div></div>'
    )


def _causes_html(explanation: Explanation, objective: int) -> str:
    """Return the causes with their contributions to the margin, in the colours of their side, and the remainder."""
    causes = explanation.ranked(objective)
    scale = Scale(0.0, float(max([abs(cause.values[objective]) for cause in causes], default=0.0)) or 1.0)
    rows = [_cause_html(cause, cause.values[objective], scale) for cause in causes]
    remainder, margin = explanation.remainder[objective], explanation.margin[objective]
    if not _is_exact(explanation, objective):
        rows.append(_cause_html(Cause("not explained", explanation.remainder), remainder, scale))
    rows.append(row_html(["margin", _signed(margin)], kind="mine"))
    first, second = explanation.labels
    heads = ["Cause", f"Contribution to {first} minus {second}"]
    return f'<div class="box scores heat causes">{table_html(heads, rows)}</div>'


def _cause_html(cause: Cause, value: float, scale: Scale) -> str:
    (shade,) = shades([value], scale)
    detail = f' <span class="faint">{text_html(cause.detail)}</span>' if cause.detail else ""
    colour = f"--c:{shade.colour};--v:{shade.strength * tokens.STRONGEST:.0f}%"
    return row_html([f"{text_html(cause.name)}{detail}", f'<i style="{colour}">{_signed(value)}</i>'])


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{number(float(value))}"


def _is_exact(explanation: Explanation, objective: int) -> bool:
    """Return whether the causes sum to the margin within the tolerance."""
    size = max(1.0, float(np.abs(explanation.rewards[:, objective]).max()))
    return abs(float(explanation.remainder[objective])) <= TOLERANCE * size


def _sum_sentences(explanation: Explanation, objective: int) -> str:
    """Return sentences on how the contributions are defined, and how closely their sum matches the margin."""
    off = abs(float(explanation.remainder[objective]))
    sums = f"The causes sum to the margin (up to {off:.1g})." if _is_exact(explanation, objective) else ""
    return f"{explanation.attribution.method} {sums}".strip()


def _faint_html(text: str) -> str:
    return f'<div class="faint">{text_html(text)}</div>'


def _part_html(part: Pieces, objective: int, scale: Scale) -> str:
    """Return a response as HTML with each piece coloured by its contribution."""
    values = part.values[objective]
    titles = ["not removed" if np.isnan(value) else _signed(value) for value in values]
    note = _faint_html(part.note) if part.note else ""
    return note + heat_html(part.texts, shades(values.tolist(), scale), titles)
