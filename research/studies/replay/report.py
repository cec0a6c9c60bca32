"""Report of the replay study: work of every arm, headroom, claims and limits."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._design import Assessment, Design, claims_table, design_markdown
from .._runs.job_cache import Arrays
from .runs import EXTRA_PASS, PLAIN

WORK = {"kl": "KL at the end, nats", "updates": "updates", "replayed": "replayed completions", "cpu": "CPU-seconds"}
DASHED = ("random", "extra")


def text(
    design: Design,
    assessments: Mapping[str, Assessment],
    values: Mapping[str, Mapping[str, np.ndarray]],
    results: Mapping[str, Sequence[Arrays]],
    pilot: Mapping[str, Sequence[Arrays]],
) -> str:
    """Return the report in Markdown."""
    parts = [
        "# PIPO and CBS against random replay with as many updates",
        _introduction(results),
        design_markdown(design),
        "## Arms",
        _arms_table(values, results),
        "Means over seeds; brackets are Student's 95 % intervals. Updates are optimizer steps; CPU-seconds are those "
        "of sampling and training, without measurements.",
        "![Gold by cycle](curves.png)",
        "## Headroom",
        _headroom(results, pilot),
        "## Claims",
        claims_table(assessments),
        "![Effects](effects.png)",
        *_limits(),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(results: Mapping[str, Sequence[Arrays]]) -> str:
    run = results[PLAIN][0]
    return (
        "In the garden, whose gold reward is a function of the text; policies of 100,000 weights are trained on gold "
        f"by GRPO with a KL in the loss (β = 0.1) for {run['cycle'][-1]} cycles. Every arm has the same start policy, "
        "prompts, number of new completions and one pass over them in each cycle, and all but the plain loop take a "
        "second update in each cycle. Extra pass: on the new completions again. Random: on completions of the last "
        "batches, drawn uniformly, all 64 of the last one or 32 of the last two. PIPO: on the last batch, scaled by "
        "the progress since then. PIPO, random gains: the scale is drawn from those of the cycles so far, so that it "
        "is as large on average and says nothing about progress. CBS: a bandit selects 32 of the last two batches. "
        "Shuffled advantages: random, 32 of the last two batches, with each other's advantages. Settings of PIPO and "
        "CBS are those of `research/studies/replay/runs.py`."
    )


def _arms_table(values: Mapping[str, Mapping[str, np.ndarray]], results: Mapping[str, Sequence[Arrays]]) -> str:
    header = ["arm", *values, *WORK.values()]
    lines = [
        [
            arm,
            *(t_interval(arms[arm]).formatted(".3f") for arms in values.values()),
            *(_work(runs, name) for name in WORK),
        ]
        for arm, runs in results.items()
    ]
    return table(header, lines, right={*header[1:]})


def _work(runs: Sequence[Arrays], name: str) -> str:
    mean = np.mean([run[name].reshape(-1)[-1] for run in runs])
    return f"{mean:.2f}" if name == "kl" else f"{mean:,.0f}"


def _headroom(results: Mapping[str, Sequence[Arrays]], pilot: Mapping[str, Sequence[Arrays]]) -> str:
    """Return what the plain loop still gains late and what one more pass adds: without either no effect could show."""
    shown = {"pilot": pilot, "counted seeds": results}
    lines = []
    for name, by_arm in shown.items():
        plain, extra = (np.stack([run["gold"] for run in by_arm[arm]]) for arm in (PLAIN, EXTRA_PASS))
        late = plain.shape[1] * 3 // 4
        estimates = [plain[:, -1] - plain[:, late], plain[:, -1] - plain[:, 0], extra[:, -1] - plain[:, -1]]
        lines.append([name, *(t_interval(estimate).formatted("+.3f") for estimate in estimates)])
    header = ["seeds", "plain loop's gain in the last quarter", "in all cycles", "extra pass minus plain at the end"]
    return table(header, lines, right={*header[1:]})


def curves_figure(results: Mapping[str, Sequence[Arrays]]) -> Figure:
    """Plot mean gold by cycle of every arm; controls are dashed."""
    drawing = Figure(figsize=(7.2, 4.2), layout="constrained")
    panel = drawing.subplots()
    for index, (arm, runs) in enumerate(results.items()):
        style = "--" if any(word in arm for word in DASHED) else "-"
        gold = np.mean([run["gold"] for run in runs], axis=0)
        panel.plot(runs[0]["cycle"], gold, style, label=arm, color=f"C{index}", linewidth=1.2)
    panel.set_xlabel("cycle", fontsize=8)
    panel.set_ylabel("gold on unseen prompts", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.legend(fontsize=7, frameon=False, ncols=2)
    return drawing


def _limits() -> list[str]:
    return [
        "## What this cannot say",
        "- A toy: word-level text of at most 32 words, 64 completions in a cycle, exact rewards. PIPO's and CBS's "
        "papers train large models on sparse rewards of reasoning, where a batch's mean reward may be a better or "
        "worse measure of progress than here.\n"
        "- One learning rate and one KL coefficient, chosen on pilot seeds for the plain loop's speed; replays might "
        "gain or lose at others.\n"
        "- CBS's features, model and constants are ours, since the paper's are not known to us; with other constants "
        "its selection may differ.\n"
        "- Equal updates are not equal cost: CBS also needs the entropies of new completions, see CPU-seconds.",
    ]
