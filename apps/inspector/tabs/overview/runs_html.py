"""HTML cards of policy trainings with curves, of runs in progress, and of unreadable runs."""

import math
import time
from html import escape
from urllib.parse import urlencode

from ...html import PALETTE, note_html, number, text_html
from ..metrics import link_html
from .queries import Curve, Job, Overview, Training, Unreadable

WIDTH, HEIGHT = 120.0, 34.0
COLOURS = {"reward": PALETTE[0], "KL": PALETTE[1]}


def runs_html(listed: Overview, empty: str) -> str:
    """Return the overview as HTML without the leaderboard. `empty` is the note for a folder without a run."""
    parts = [
        _part("Training", [_training_html(training) for training in listed.trainings]),
        _part("In progress", [_job_html(job) for job in listed.jobs]),
        _part("Cannot be read", [_unreadable_html(run) for run in listed.unreadable]),
    ]
    others = [_others_html(kind, count) for kind, count in listed.others.items()]
    parts += [f'<h2 class="part">Other runs</h2><p>{", ".join(others)}</p>'] if others else []
    note = "" if listed.boards or any(parts) else note_html(empty)
    return "".join(parts) + note


def _part(title: str, cards: list[str]) -> str:
    """Return a heading with cards below it. Empty without cards."""
    return f'<h2 class="part">{title}</h2><div class="cards">{"".join(cards)}</div>' if cards else ""


def _others_html(kind: str, count: int) -> str:
    tab, name = {"study": ("studies", "study"), "answers": ("playground", "decoded file")}[kind]
    plural = {"study": "studies"}.get(name, f"{name}s")
    return link_html(f"?tab={tab}", f"{count:,} {name if count == 1 else plural}")


def _card(title: str, note: str, body: str) -> str:
    return (
        f'<section class="box"><div class="head"><span>{title}</span><span class="faint end">{note}</span></div>'
        f'<div class="card-body">{body}</div></section>'
    )


# ---- trainings ----


def _training_html(training: Training) -> str:
    link = link_html("?" + urlencode({"tab": "training", "run": training.run}), text_html(training.run, 80))
    steps = f"step {training.step:,}" + (f" of {training.steps:,}" if training.steps else "")
    state = f"{steps}, {'running or cut off' if training.growing else 'finished'}"
    share = training.step / training.steps if training.growing and training.steps else None
    curves = "".join(_curve_html(curve) for curve in training.curves)
    body = f'{_bar(share)}<div class="curves">{curves}</div>' if curves else "No step is logged yet."
    return _card(link, state, body)


def _curve_html(curve: Curve) -> str:
    label = f"{curve.name} (watched)" if curve.watched else curve.name
    colour = COLOURS.get(curve.name, PALETTE[2])
    first, last = curve.ends[:2] if curve.ends else (curve.values[0], curve.values[-1])
    ends = f"{number(first)} to {number(last)}"
    return (
        f'<figure><figcaption><button type="button" class="metric" data-definition="{escape(curve.definition)}">'
        f'{text_html(label, 30)}</button><span class="faint">{ends}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)} from {ends}"><polyline points="{points(curve.values)}" fill="none" '
        f'stroke="{colour}" stroke-width="1.8" vector-effect="non-scaling-stroke"/></svg></figure>'
    )


def points(values: tuple[float, ...], width: float = WIDTH, height: float = HEIGHT) -> str:
    """Return the points of a polyline that fills a rectangle. If all values are equal, the line is in the middle.

    >>> points((1.0, 3.0, 2.0), 10.0, 4.0), points((5.0,), 10.0, 4.0)
    ('0.0,4.0 5.0,0.0 10.0,2.0', '0.0,2.0 10.0,2.0')
    """
    values = values * 2 if len(values) == 1 else values
    low, high = min(values), max(values)
    span = high - low
    heights = [height * (high - value) / span if 0 < span < math.inf else height / 2 for value in values]
    return " ".join(f"{width * index / (len(values) - 1):.1f},{y:.1f}" for index, y in enumerate(heights))


# ---- runs in progress, and damaged ones ----


def _job_html(job: Job) -> str:
    link = "?" + urlencode({"tab": "benchmarks", "run": job.run})
    title = link_html(link, text_html(job.run, 80)) if job.kind == "evaluation" else text_html(job.run, 80)
    progress = f"<p>{text_html(job.progress or 'No result is stored yet.')}</p>{_bar(job.share)}"
    return _card(title, _age_text(job.changed), progress)


def _bar(share: float | None) -> str:
    """Return a progress bar for a fraction in [0, 1]. Empty for None."""
    if share is None:
        return ""
    return f'<progress max="100" value="{100 * share:.0f}" aria-label="progress">{100 * share:.0f} %</progress>'


def _age_text(changed: float) -> str:
    """Return the time since the last change of a run as text, to recognise interrupted runs."""
    seconds = max(0.0, time.time() - changed)
    if not changed:
        return "running or cut off"
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"last written {seconds / size:,.0f} {unit} ago"
    return "written just now"


def _unreadable_html(run: Unreadable) -> str:
    return _card(text_html(run.run, 80), '<span class="wrong">damaged</span>', f"<p>{text_html(run.reason, 1000)}</p>")
