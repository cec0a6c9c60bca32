"""Leaderboards with ties: groups of scorers without significant differences, as Markdown, CSV and figure."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..judges.types import Case, Judgment
from ..rm.io.escaping import escape_formula, escape_markdown
from .evaluate import OVERALL, credits_of, filled_overall, lay_out
from .report import COLOURS, cell, table
from .statistics.figures import WEIGHTED, Figures, figures_of, pair_scorers
from .statistics.multiple_tests import tied_groups
from .types import Interval, Suite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADER = ["group", "scorer", "role", "overall", "low", "high", "scored", "unscored"]
HEADER += ["suite", "version", "cases", "runs", "part"]


@dataclass(frozen=True)
class RankedScorer:
    """One scorer's row. Group 1 has the best scorer and all scorers that do not differ significantly from it.

    The remaining scorers form the next groups in the same way; a scorer without a figure (NaN) has no group.
    """

    group: int | None
    scorer: str
    role: str
    overall: Interval
    scored: int
    unscored: int


@dataclass(frozen=True)
class Board:
    """All scorers of one suite on the same cases, best first. In this order, unscored cases count as wrong."""

    suite: str
    version: str
    cases: int
    rows: tuple[RankedScorer, ...]
    runs: tuple[str, ...] = ()
    """Names of the runs from which the scorers come."""
    note: str = ""
    """Note on the part of the benchmark that the cases form. Empty if they are the whole benchmark."""


def board(
    suite: Suite,
    cases: Sequence[Case],
    judged: Mapping[str, tuple[str, Sequence[Judgment]]],
    *,
    runs: Sequence[str] = (),
    note: str = "",
    samples: int = 1000,
    seed: int = 0,
) -> Board:
    """Rank scorers (name -> role and judgments) on one set of bootstrap samples.

    Two scorers are compared over the cases that both scored, as in `compare`. Figures are over the scored cases, but
    the order counts unscored cases as wrong, so that no scorer leads a group by abstaining. Holm's method adjusts
    p-values among models and references together, and separately among baselines.
    """
    layout = lay_out(suite, cases, samples, seed)
    credits = {name: credits_of(suite, cases, judgments) for name, (_, judgments) in judged.items()}
    figures = {name: figures_of(suite, credit, layout) for name, credit in credits.items()}

    def p_value(first: str, second: str) -> float:
        pair = (credits[first], credits[second])
        return pair_scorers(suite, pair, layout, [figures[first], figures[second]]).p(OVERALL)

    defined = {
        name: filled_overall(suite, credits[name], np.isnan(credits[name][:, 0]), 0.0, layout)
        for name in judged
        if not np.isnan(figures[name].observed[OVERALL])
    }
    groups = enumerate(tied_groups(defined, p_value, lambda name: judged[name][0] == "baseline"), start=1)
    order = [(number, name) for number, group in groups for name in group]
    order += [(None, name) for name in judged if name not in defined]
    ranks = [_ranked_scorer(number, name, judged[name][0], figures[name]) for number, name in order]
    return Board(suite.name, suite.version, len(cases), tuple(ranks), tuple(runs), note)


def _ranked_scorer(group: int | None, name: str, role: str, figures: Figures) -> RankedScorer:
    overall = Interval(figures.observed[OVERALL], *WEIGHTED.share(figures, OVERALL))
    scored = int(figures.is_scored.sum())
    return RankedScorer(group, name, role, overall, scored, len(figures.is_scored) - scored)


def markdown(boards: Sequence[Board], unfinished: Sequence[str] = ()) -> str:
    """Return the leaderboards as Markdown, with one table per suite and set of cases. Unfinished runs are listed."""
    parts = [
        "# Leaderboard",
        "",
        "The scorers of a group do not differ significantly from its first scorer over the cases that both scored "
        "(5 %, adjusted by Holm's method among models and references, and separately among baselines). Figures are "
        "over the scored cases; the order counts unscored cases as wrong.",
    ]
    parts += ["", f"Left out, because unfinished: {', '.join(map(escape_markdown, unfinished))}"] if unfinished else []
    for board in boards:
        lines = [
            [str(p.group or "–"), p.scorer, p.role, cell(p.overall), str(p.scored), str(p.unscored)] for p in board.rows
        ]
        header = ["group", "scorer", "role", "overall", "scored", "unscored"]
        runs = ["", f"Runs: {', '.join(map(escape_markdown, board.runs))}"] if board.runs else []
        part = ["", f"**{escape_markdown(board.note)}**"] if board.note else []
        parts += ["", f"## {board.suite} ({board.cases} cases)", *part, *runs, "", table(header, lines)]
    return "\n".join([*parts, ""])


def as_csv(boards: Sequence[Board]) -> str:
    """Return the leaderboards as CSV with one line per suite and scorer. Shares are in [0, 1]."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for board in boards:
        for p in board.rows:
            row = [p.group, p.scorer, p.role, *p.overall, p.scored, p.unscored, board.suite, board.version, board.cases]
            writer.writerow(map(escape_formula, [*row, "; ".join(board.runs), board.note]))
    return text.getvalue()


def figure(boards: Sequence[Board]) -> "Figure":
    """Plot overall scores with intervals: one panel per suite, separator lines between groups."""
    from matplotlib.figure import Figure

    rows = sum(len(board.rows) + 1 for board in boards)
    drawing = Figure(figsize=(7, 0.8 + 0.34 * rows), layout="constrained")
    heights = [len(board.rows) + 1 for board in boards]
    panels = drawing.subplots(len(boards), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, board_ in zip(panels, boards, strict=True):
        for index, p in enumerate(board_.rows):
            value, low, high = (100 * number for number in p.overall)
            panel.plot([low, high], [index, index], color="black", linewidth=1.2)
            panel.plot(value, index, "o", color=COLOURS[p.role])
            if index and p.group != board_.rows[index - 1].group:
                panel.axhline(index - 0.5, color="#bbbbbb", linewidth=0.8)
        panel.set_yticks(range(len(board_.rows)), [p.scorer for p in board_.rows], fontsize=8)
        panel.invert_yaxis()
        panel.set_title(f"a part of {board_.suite}" if board_.note else board_.suite, fontsize=9)
    drawing.supxlabel("overall, per cent, with 95 % interval; lines separate groups that differ", fontsize=8)
    return drawing
