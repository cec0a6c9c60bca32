"""Report and figure of the study `cdrrm`."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ...statistics.estimates import Estimate, t_interval
from ...statistics.fronts import COLOURS, CONTROL
from .._study import Criterion
from .claims import share, shown
from .plan import BARE, MASKED, MASKS, MIDDLE, MODEL, ORACLE, OTHER_PROMPT, POINTS, TRAINED, Results

PLAIN = ("slope", "rules")
HEADER = {
    "hard": "hard",
    "normal": "normal",
    "easy": "easy",
    "both_hard": "hard, won in both orders",
    "consistent": "same winner in both orders",
    "first_slot": "first slot, normal",
    "slope": "log-odds per doubling of words",
    "coverage": "verdicts read",
    "without": "no rubric",
    "rules": "rules",
}


def text(results: Results, judged_claims: Sequence[Criterion]) -> str:
    """Return the report in Markdown."""
    parts = (_head(results, judged_claims), _middle(results), _sweep(results), _masked(results), _leaks(results))
    return "\n".join(line for part in (*parts, _filter(results), _limits(results)) for line in [*part, ""])


def _head(results: Results, judged_claims: Sequence[Criterion]) -> list[str]:
    plan = results.plan
    lines = [[claim.claim, claim.measured, "yes" if claim.holds else "**no**"] for claim in judged_claims]
    return [
        "# CDRRM: rubrics from contrast, with a simulated judge and teacher",
        "",
        "In the world of checks, where which answer is better is a function of the text. Judge and teacher are "
        "**simulated** with known biases and errors; the language model is real and small, trained by TRL's "
        f"SFTTrainer. {plan.seeds} seeds of {plan.items} held-out prompts, nine comparisons each (three styles of the "
        "chosen answer against three of the rejected one), both orders of every pair. Differences are in points, "
        "paired over seeds; brackets are Student's 95 % intervals over seeds, of equal pairs the normal interval over "
        f"pairs. The claims were written down before the first run; 'k of {len(POINTS)}' counts points of the sweep.",
        "",
        table(["claim", "found", "holds"], lines),
    ]


def _middle(results: Results) -> list[str]:
    arms = [BARE, "prompt only", "one step", "contrast"]
    arms += [f"{TRAINED} {n}" for n in results.plan.sizes] + [MODEL, ORACLE]
    lines = [[arm, *(_cell(results, arm, name) for name in HEADER)] for arm in arms]
    return [
        f"## The sweep's middle point: {_constants(MIDDLE)}",
        "",
        "Accuracy over the verdicts that could be read, in per cent. Hard: the chosen answer is the plainer one.",
        "",
        table(["rubric", *HEADER.values()], lines),
        "",
        "![Hard accuracy](accuracy.png)",
    ]


def _sweep(results: Results) -> list[str]:
    arms = list(dict.fromkeys(arm for arm, _ in results.sweep))
    parts = ["## The sweep over the judge's biases", ""]
    parts += [f"- {point}: {_constants(point)}" for point in POINTS]
    for measure in ("hard", "normal", "first_slot"):
        lines = [[arm, *(_cell(results, arm, measure, point) for point in POINTS)] for arm in arms]
        parts += ["", f"{HEADER[measure].capitalize()}:", "", table(["rubric", *POINTS], lines)]
    return parts


def _constants(point: str) -> str:
    biases = POINTS[point]
    return (
        f"κ {biases.reads:g}, first slot {biases.position:g}, length {biases.length:g} per doubling, Markdown "
        f"{biases.style:g}, rule error ε {biases.error:g}, unreadable {biases.failure:g}"
    )


def _masked(results: Results) -> list[str]:
    lines = [
        [name, _cell(results, name, "hard"), *(_cell(results, f"{name}, {mask} masked", "hard") for mask in MASKS)]
        for name in MASKED
    ]
    return [
        "## Rules taken away at random",
        "",
        "Hard accuracy; a rubric without a rule left is judged bare.",
        "",
        table(["rubric", "whole", *(f"{mask} masked" for mask in MASKS)], lines),
    ]


def _leaks(results: Results) -> list[str]:
    most = f"{TRAINED} {results.plan.most}"
    nulls = [
        [name, share(shown(won, index > 2)).formatted(".3f"), str(sum(map(len, won)))]
        for index, (name, won) in enumerate(results.nulls.items())
    ]
    arms = (most, "leak, shuffled", "leak, chosen first")
    agree = t_interval(
        np.array([_agreement(*two) for two in zip(results.won[most], results.won["written for BA"], strict=True)])
    )
    blind = [[arm, _cell(results, f"{arm}, blind judge", "normal")] for arm in ("contrast", OTHER_PROMPT)]
    return [
        "## Leaks",
        "",
        "Pairs of different answers that are both good; a coin calls one chosen. Share of verdicts for it:",
        "",
        table(["pipeline", "share", "pairs"], nulls),
        "",
        "A generator trained with the preferred answer always in slot A, against one trained on both orders:",
        "",
        table(
            ["generator", *("hard", "normal", "easy")],
            [[a, *(_cell(results, a, m) for m in ("hard", "normal", "easy"))] for a in arms],
        ),
        "",
        f"Rubrics written for A, B and for B, A give the same verdict in {agree.formatted('.3f')} of the calls "
        f"({most}).",
        "",
        "Normal pairs under the rubric of a prompt that demands none of the same checks, by a judge without a taste of "
        "its own, so that chance is ½ (one with a taste falls back on it where the rules tie):",
        "",
        table(["rubric", "normal"], blind),
    ]


def _agreement(first: np.ndarray, second: np.ndarray) -> float:
    known = ~np.isnan(first) & ~np.isnan(second)
    return float((first[known] == second[known]).mean())


def _filter(results: Results) -> list[str]:
    kept_share = t_interval(np.array([corpus["kept"] / results.plan.pairs for corpus in results.corpora]))
    useful = t_interval(np.array([corpus["useful"] for corpus in results.corpora]))
    counted: dict[str, int] = {}
    for corpus in results.corpora:
        for reason, number in corpus["rejected"].items():
            counted[reason] = counted.get(reason, 0) + number
    total = results.plan.pairs * len(results.corpora)
    lines = [[reason, f"{100 * number / total:.1f}"] for reason, number in sorted(counted.items(), key=lambda x: -x[1])]
    arms = [f"corrupted, {name}" for name in ("filtered", "unfiltered")]
    return [
        "## The filter",
        "",
        f"It keeps {kept_share.formatted('.3f')} of the teacher's pairs; of these, {useful.formatted('.3f')} are "
        "useful (the bare judge fails). Rejected, per cent of all pairs:",
        "",
        table(["reason", "share"], lines),
        "",
        f"A teacher whose rubrics are about checks drawn at random a quarter of the time; generators trained on "
        f"{results.plan.corrupt_size} of its rubrics:",
        "",
        table(
            ["training set", "hard", "normal", "rules"],
            [[a, *(_cell(results, a, m) for m in ("hard", "normal", "rules"))] for a in arms],
        ),
    ]


def _limits(results: Results) -> list[str]:
    return [
        "## Limits",
        "",
        "- The judge, the teacher and their constants are assumptions; the sweep shows what depends on the judge's. "
        "That a call which reads a prompt and two answers at once errs three times as often as a diagnosis is an "
        "assumption too, and the distance between one step and contrast follows from it.",
        "- The world has 24 checks whose tests are exact, and a rejected answer breaks exactly one demand.",
        "- The learnt generator computes what answers pass and learns what prompts demand. The language model has one "
        "token per phrase and was taught to read the world's phrases before; it writes the contrast before the rubric.",
        "- Rubrics for training were filtered by the judge of the middle point, and are used at every point.",
        f"- {results.plan.seeds} seeds; the start model of the language model is the same for all.",
    ]


def _cell(results: Results, arm: str, measure: str, point: str = MIDDLE) -> str:
    estimate = t_interval(results.values(arm, measure, point))
    return estimate.formatted(".2f") if measure in PLAIN else estimate.formatted(".1f", scale=100)


def figure(results: Results) -> Figure:
    """Plot hard accuracy: left over the sweep, right at the middle point by the number of training rubrics."""
    drawing = Figure(figsize=(9.2, 3.9), layout="constrained")
    left, right = drawing.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    arms = list(dict.fromkeys(arm for arm, _ in results.sweep))
    colours = {arm: colour for arm, colour in zip(arms, [CONTROL, *COLOURS], strict=False)}
    for shift, arm in zip(np.linspace(-0.3, 0.3, len(arms)), arms, strict=True):
        estimates = [t_interval(100 * results.values(arm, "hard", point)) for point in POINTS]
        _points(left, np.arange(len(POINTS)) + shift, estimates, colours.get(arm, CONTROL), arm)
    left.set_xticks(range(len(POINTS)), [*POINTS], fontsize=7)
    left.set_ylabel("hard accuracy, per cent", fontsize=8)
    left.legend(fontsize=6, frameon=False, ncols=2)
    sizes = results.plan.sizes
    learnt = [t_interval(100 * results.values(f"{TRAINED} {n}", "hard")) for n in sizes]
    _points(right, np.array(sizes), learnt, colours.get(f"{TRAINED} {sizes[-1]}", CONTROL), TRAINED, line="-")
    for arm, at in zip((BARE, "contrast", MODEL, ORACLE), (sizes[0], sizes[-1], sizes[0], sizes[0]), strict=True):
        level = 100 * results.values(arm, "hard").mean()
        right.axhline(level, color=colours.get(arm, CONTROL), linewidth=1, linestyle="--")
        alignment = ("left", "bottom") if at == sizes[0] else ("right", "top")
        right.text(at, level, arm, fontsize=6, ha=alignment[0], va=alignment[1], color=colours.get(arm, CONTROL))
    right.set_xscale("log")
    right.set_xlabel("rubrics that the generator learnt from", fontsize=8)
    for panel in (left, right):
        panel.tick_params(labelsize=7)
    return drawing


def _points(panel, x: np.ndarray, estimates: Sequence[Estimate], colour: str, label: str, line: str = "") -> None:
    values, low, high = np.array(estimates).T
    error = np.nan_to_num(np.stack([values - low, high - values]))
    panel.errorbar(x, values, error, color=colour, fmt="o" + line, markersize=3, linewidth=1, label=label)
