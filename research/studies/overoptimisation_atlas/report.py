"""Report of the atlas: its page of curves, the peaks against accuracy, tables and claims."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ....benchmarks.statistics.cluster_bootstrap import t_interval
from ...statistics.fronts import COLOURS, CONTROL
from ...statistics.gold_peaks import GoldPeak, gold_lost, gold_peak
from ...statistics.overoptimisation import BEST_OF_N, UNITS, Record, at_matched_kl, curves, gains_at_kl, percent_range
from .._design import Assessment, Design, claims_table, design_markdown
from .._runs.proxies import HELD_OUT, LEVELS, MEMBERS, OWN_SAMPLES, RANDOM
from .guided import UNIARM
from .measures import END, FAR, GOLD, GRID, NEAR, last_gold
from .runs import METHODS, PESSIMISM

Records = Mapping[str, Sequence[Record]]
Accuracies = Mapping[str, Mapping[str, Sequence[float]]]
ARMS = (*METHODS, UNIARM, BEST_OF_N)
STYLES = {
    arm: (CONTROL, "--") if arm == BEST_OF_N else (colour, "-") for arm, colour in zip(ARMS, COLOURS, strict=False)
}
"""Colour and line of every method, the same in all panels."""


def peaks_of(records: Sequence[Record]) -> dict[str, GoldPeak]:
    """Return the peak of every arm."""
    return {arm: gold_peak(gains.gold, GRID) for arm, gains in gains_at_kl(records, GRID).items()}


# ---- figures ----


def atlas_figure(records: Records, accuracies: Accuracies) -> Figure:
    """Plot gold against √KL, a panel for each level; bands are intervals over seeds, dots the peaks.

    The distance √KL is that of Gao et al. 2023, arXiv:2210.10760; tick labels are KL.
    """
    drawing = Figure(figsize=(10.5, 6.4), layout="constrained")
    panels = drawing.subplots(2, 3, sharex=True, sharey=True).flat
    handles: dict[str, object] = {}
    for panel, level in zip(panels, [level for level in LEVELS if level in records], strict=False):
        handles |= _draw_level(panel, records[level], {})
        panel.set_title(f"proxy of {percent_range(accuracies[level][HELD_OUT])}", fontsize=9)
    last = drawing.axes[-1]
    for control, dash in ((GOLD, "-"), (RANDOM, ":")):
        _draw_level(last, [record for record in records[control]], {"linestyle": dash, "color": "#444444"})
    last.set_title(f"GRPO: {GOLD} (solid), {RANDOM} (dotted)", fontsize=8)
    drawing.supxlabel("KL from the start policy, nats a completion", fontsize=9)
    drawing.supylabel(f"gold: gain in {UNITS}", fontsize=9)
    drawing.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    return drawing


def _draw_level(panel: Axes, records: Sequence[Record], style: dict[str, str]) -> dict[str, object]:
    lines, peaks = {}, peaks_of(records)
    for arm, matched in at_matched_kl(records, GRID).items():
        colour, dash = STYLES[arm]
        every = matched.seeds == matched.seeds.max()
        mean, low, high = np.array(matched.gold)[every].T
        line = {"color": colour, "linestyle": dash} | style
        lines[arm] = panel.plot(GRID[every], mean, linewidth=1.2, **line)[0]
        panel.fill_between(GRID[every], low, high, color=line["color"], alpha=0.12, linewidth=0)
        top = np.flatnonzero(peaks[arm].kl.value == GRID)[0]
        panel.plot(GRID[top], matched.gold[top].value, "o", color=line["color"], markersize=5)
    panel.axhline(0, color="#444444", linewidth=0.6)
    panel.set_xlim(0, GRID[-1])
    panel.set_ylim(-1.5, 2.0)
    panel.set_xscale("function", functions=(np.sqrt, np.square))
    panel.set_xticks([0, 0.5, 2, 4, 6, 8, 12])
    panel.tick_params(labelsize=8)
    return lines


def peaks_figure(records: Records, accuracies: Accuracies) -> Figure:
    """Plot the KL at which gold peaks, and the gold gained there, against the proxies' mean accuracy."""
    drawing = Figure(figsize=(9.0, 3.8), layout="constrained")
    panels = drawing.subplots(1, 2)
    levels = [level for level in LEVELS if level in records]
    peaks = {level: peaks_of(records[level]) for level in levels}
    for index, arm in enumerate(ARMS):
        measured = [level for level in levels if arm in peaks[level]]
        if not measured:
            continue
        x = [100 * float(np.mean(accuracies[level][HELD_OUT])) + 0.25 * (index - 3) for level in measured]
        estimates = (
            [peaks[level][arm].kl for level in measured],
            [t_interval(peaks[level][arm].gold) for level in measured],
        )
        for panel, values in zip(panels, estimates, strict=True):
            mean, low, high = np.array(values).T
            colour, dash = STYLES[arm]
            panel.plot(x, mean, color=colour, linestyle=dash, marker="o", markersize=4, linewidth=1.2, label=arm)
            panel.vlines(x, low, high, color=colour, linewidth=0.8)
    for panel, label in zip(panels, ("KL at which gold peaks, nats", f"gold there, {UNITS}"), strict=True):
        panel.set_xlabel("accuracy of the proxy on held-out pairs, %", fontsize=8)
        panel.set_ylabel(label, fontsize=8)
        panel.tick_params(labelsize=8)
    panels[0].legend(fontsize=7, frameon=False)
    return drawing


# ---- text ----


def text(
    design: Design,
    assessments: Mapping[str, Assessment],
    records: Records,
    accuracies: Accuracies,
) -> str:
    """Return the report in Markdown."""
    head = (
        "In the garden, whose true (gold) reward is a function of the text, every method optimises the same proxies of "
        "graded accuracy, from the same start policies of 100,000 weights and without a KL penalty, until the KL from "
        "the start policy passes 12 nats. Gains are in standard deviations of the start policy's completions."
    )
    parts = [
        "# Atlas of over-optimisation",
        head,
        "![Gold against KL by proxy accuracy and method](atlas.png)",
        f"Bands are Student's 95 % intervals over seeds, dots mark the peaks. {_reached(accuracies)}",
        "![KL at which gold peaks, and gold there](peaks.png)",
        "## Claims",
        claims_table(assessments),
        "![Effects](claims.png)",
        design_markdown(design),
        "## Proxies",
        accuracy_table(accuracies),
        "## Peaks",
        peak_table(records),
        "## How it was measured",
        _methods(design),
        "## What this cannot say",
        _limits(design),
    ]
    return "\n\n".join(parts) + "\n"


def _reached(accuracies: Accuracies) -> str:
    top = [*LEVELS][-1]
    if top not in accuracies:
        return ""
    mean = 100 * float(np.mean(accuracies[top][HELD_OUT]))
    return f"For the most accurate proxies 95 % on held-out pairs was sought; they reached {mean:.1f} %."


def accuracy_table(accuracies: Accuracies) -> str:
    """Return the table of accuracies; means and ranges over seeds."""
    lines = [
        [
            level,
            *(
                f"{100 * np.mean(by_kind[kind]):.1f} ({percent_range(by_kind[kind])})"
                for kind in (HELD_OUT, OWN_SAMPLES)
            ),
        ]
        for level, by_kind in accuracies.items()
    ]
    return table(["proxy", HELD_OUT, OWN_SAMPLES], lines)


def peak_table(records: Records) -> str:
    """Return the table of every cell's peak, of the gold lost behind it, and of gold at two KLs."""
    lines = []
    for level, of_level in records.items():
        peaks, gains = peaks_of(of_level), gains_at_kl(of_level, GRID)
        for arm, run in gains.items():
            peak, furthest = peaks[arm], min(curve.kl.max() for curve in curves(of_level)[arm].values())
            at = [t_interval(run.gold[:, kl == GRID][:, 0]).formatted() for kl in (NEAR, FAR)]
            lost = t_interval(gold_lost(run.gold, last_gold(of_level, arm), GRID, END)).formatted()
            kl = peak.kl.formatted(".1f") + (" or more" if peak.last else "")
            lines.append(
                [level, arm, str(len(run.gold)), kl, t_interval(peak.gold).formatted(), lost, *at, f"{furthest:.1f}"]
            )
    header = ["proxy", "method", "seeds", "KL at the peak", "gold at the peak", f"gold lost to KL {END:g} or the end"]
    header += [f"gold at KL {NEAR:g}", f"gold at KL {FAR:g}", "KL that all seeds reached"]
    note = (
        "A seed's gold at the peak is read where the mean of the other seeds is highest. Intervals of the KL at the "
        "peak are of a bootstrap over seeds; 'or more': gold was highest at the last KL that all seeds reached."
    )
    return table(header, lines, right={*header[2:]}) + "\n\n" + note


def _methods(design: Design) -> str:
    lines = [
        "GRPO, RLOO and PPO: 8 prompts of 8 completions a cycle, one pass, AdamW at 2e-4. PPO: whitened GAE, λ = 0.95,"
        " with a critic on the policy's states. KL grows with training.",
        "Best of n: n = 1 to 64, of 128 completions to each of 48 prompts. Its KL is log n - (n-1)/n, an upper bound, "
        "and the curve lies too far right if anything.",
        f"Pessimistic ensemble: mean - {PESSIMISM:g} standard deviation of {MEMBERS} proxies (own heads, own pairs, "
        "one start policy), each standardised on the start policy's completions, by GRPO. BRME's own rule mixes in the "
        "minimum. The highest level has no ensemble.",
        "R2M with 25 % gold labels: the proxy with an attention to the policy's states; each cycle its head learns "
        "gold's label of the best and the worst completion in 2 of the 8 groups; the other groups are left out. By "
        "GRPO.",
        "UniARM-guided decoding: a guide of one objective on pairs *labelled by the proxy*, so that it optimises the "
        "same reward as the other methods and sees no further gold label; the KL is set by the guidance weight.",
        f"Every measured point has {design.completions // 4:,} completions to prompts that training does not see; a "
        "run has a point every 3 cycles, and a value at a KL is interpolated between two points. The start policy is "
        "measured on 6,144. The proxy of a curve is the single proxy of the level, also for the ensemble and R2M.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _limits(design: Design) -> str:
    lines = [
        "A toy: word-level text of at most 32 words. Excess flourish is rare in the proxies' training pairs, so that "
        "their reward extrapolates; the shapes carry over at most, the KLs do not.",
        "Levels differ in the number and in the noise of labels at once, as cheap and expensive proxies do.",
        f"{len(design.seeds)} seeds. Peaks of flat curves move a lot from seed to seed; read the KL at the peak with "
        "its interval.",
        "Learning rates, cycles and the proxies' training were chosen on the pilot's seeds, for GRPO; no method was "
        "tuned to win.",
    ]
    return "\n".join(f"- {line}" for line in lines)
