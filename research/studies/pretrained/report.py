"""The report of the study: results, choices, uncertainty, calibration, length, lint, truncation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar
from sklearn.metrics import roc_auc_score

from ....benchmarks.evaluate import Evaluation
from ....benchmarks.report import table
from ....benchmarks.statistics.calibration import reliability
from ....benchmarks.types import Row
from ....rm.data.conversation_split import first_turn
from ....rm.data.lint import lint
from ....rm.types import PreferencePair
from .._runs.job_cache import Arrays
from .finals import Final
from .models import Recipe, accuracy

TITLES = {
    "human": "held-out human pairs",
    "held-out": "all held-out pairs",
    "rewardbench": "RewardBench",
    "rm_bench": "RM-Bench, half",
    "judgebench": "JudgeBench",
    "llmbar": "LLMBar",
    "rmb": "RMB sample",
}
COLOURS = {"MiniLM": "#1f5fa8", "frozen MiniLM": "#3a8f5c", "TF-IDF": "#9a9a9a"}
SAMPLES = 1_000


def document(parts: Sequence[str], counts: Mapping[str, Any]) -> str:
    """Return the report: data, then the parts."""
    rows = [
        [source, str(count["read"]), str(count["in a suite"]), str(count["kept"])]
        for source, count in counts.items()
        if isinstance(count, dict) and "read" in count
    ]
    head = [
        "# Reward models on pretrained weights",
        "",
        "all-MiniLM-L6-v2 (22.7 million parameters, all trained) and SmolLM2-135M-Instruct (4-bit weights, "
        "dequantised; "
        "LoRA of rank 16). Bradley-Terry on the reward of the whole conversation, sequences cut on the left at 512 "
        "tokens, batches of 16 pairs. Prompts are divided by their hash: 70 % train, 10 % choose recipes, 20 "
        "% are held "
        "out; pairs whose prompt is in a benchmark are left out.",
        "",
        table(["source", "pairs read", "in a benchmark", "used (at most 8 a prompt)"], rows),
    ]
    return "\n".join([*head, *parts]) + "\n"


def results(finals: Sequence[Final], evaluations: Mapping[str, Evaluation]) -> str:
    """Format overall figures with intervals over prompts, and the paired differences to TF-IDF on the same pairs."""
    by_area = {area: {row.scorer: row for row in found.report.rows} for area, found in evaluations.items()}
    names = [model.name for model in finals]
    names += [row.scorer for row in evaluations["rewardbench"].report.rows if row.role == "baseline"]
    names = list(dict.fromkeys(names))
    overall = [[name, *(_overall(rows.get(name)) for rows in by_area.values())] for name in names]
    gaps = [
        [model.name, *(_gap(rows[model.name], model.beside) for rows in by_area.values())]
        for model in finals
        if model.beside
    ]
    seeds = [
        [model.name, str(len(model.results)), *(_spread(model, part) for part in ("held-out", "rewardbench"))]
        for model in finals
        if len(model.results) > 1
    ]
    sections = [
        [model.name, *(str(interval) for interval in by_area["rewardbench"][model.name].sections.values())]
        for model in finals
    ]
    titles = [TITLES[area] for area in evaluations]
    return "\n".join(
        [
            "",
            "## Results",
            "",
            "Overall figures in per cent as each benchmark aggregates them, of the first seed, with 95 % "
            "intervals over "
            "prompts. **Bold**: significantly above 50 %.",
            "",
            table(["", *titles], overall),
            "",
            "Minus TF-IDF that was fitted on the same pairs, in points, paired. **Bold**: the interval excludes 0.",
            "",
            table(["", *titles], gaps),
            "",
            "RewardBench by section.",
            "",
            table(["", *next(iter(by_area["rewardbench"].values())).sections], sections),
            "",
            "Pairs won over seeds (each has its own head, order and choice of pairs): mean, least and most.",
            "",
            table(["", "seeds", "all held-out pairs", "RewardBench, every pair alike"], seeds),
            "",
            "![learning curves](learning_curves.png)",
            "",
            "Lines are means over seeds, bands their least and most.",
        ]
    )


def _overall(row: Row | None) -> str:
    if row is None:
        return "–"
    return f"**{row.overall}**" if row.overall.low > 0.5 else str(row.overall)


def _gap(row: Row, baseline: str) -> str:
    gap = row.minus_baseline[baseline]["overall"]
    text = f"{100 * gap.value:+.1f} [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"
    return f"**{text}**" if gap.real else text


def _spread(model: Final, part: str) -> str:
    shares = [100 * accuracy(arrays, part) for arrays in model.results]
    return f"{np.mean(shares):.1f}, {min(shares):.1f} to {max(shares):.1f}"


def choices(tried: Sequence[tuple[Recipe, str, Arrays]]) -> str:
    """Format every recipe that was tried."""
    rows = [
        [backbone, recipe.mix, f"{recipe.learning_rate:g}", str(recipe.epochs), f"{100 * accuracy(arrays):.1f}"]
        for recipe, backbone, arrays in tried
    ]
    return "\n".join(
        [
            "",
            "## Recipes that were tried",
            "",
            "Accuracy on the validation pairs after 2,000 pairs (SmolLM2: 1,000), one seed. The best of each "
            "backbone is "
            "the recipe of its final models.",
            "",
            table(["backbone", "mix", "learning rate", "epochs", "validation"], rows),
        ]
    )


def uncertainty(ensemble: Final, pairs: Sequence[PreferencePair]) -> str:
    """Format how well the members' spread finds the mistakes of their mean, beside the mean's own margin."""
    assert ensemble.members is not None
    gaps = np.array([arrays["held-out"][::2] - arrays["held-out"][1::2] for arrays in ensemble.members])  # [members, N]
    mean, wrong = gaps.mean(axis=0), gaps.mean(axis=0) < 0
    doubts = {
        "spread of the members": gaps.std(axis=0),
        "small margin of the mean": -np.abs(mean),
        "spread / margin": gaps.std(axis=0) / (np.abs(mean) + 1e-9),
    }
    samples = list(_samples(pairs))
    rows = [[name, _area(wrong, doubt, samples), _selected(wrong, doubt)] for name, doubt in doubts.items()]
    return "\n".join(
        [
            "",
            "## Does the ensemble's spread find mistakes?",
            "",
            f"The mean of {len(gaps)} members is wrong on {100 * wrong.mean():.1f} % of {len(wrong):,} held-out pairs. "
            "AUROC of finding them, with a 95 % interval over prompts, and the accuracy on the half with the "
            "least doubt.",
            "",
            table(["doubt", "AUROC", "accuracy on the surer half"], rows),
        ]
    )


def _area(wrong: np.ndarray, doubt: np.ndarray, samples: Iterable[np.ndarray]) -> str:
    """Return the area under the curve with its bootstrap interval."""
    areas = [roc_auc_score(wrong[some], doubt[some]) for some in samples if 0 < wrong[some].mean() < 1]
    if not areas:
        return "–"
    low, high = np.percentile(areas, [2.5, 97.5])
    return f"{roc_auc_score(wrong, doubt):.3f} [{low:.3f}, {high:.3f}]"


def _selected(wrong: np.ndarray, doubt: np.ndarray) -> str:
    surer = doubt <= np.median(doubt)
    return f"{100 * (1 - wrong[surer].mean()):.1f}"


def temperature(gaps: np.ndarray) -> float:
    """Return T that maximises the likelihood of the labels, P(chosen is better) = σ(gap / T)."""

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0, -gaps / np.exp(log_temperature)).mean())

    found: Any = minimize_scalar(loss, bounds=(-5, 5), method="bounded")
    return float(np.exp(found.x))


def calibration(finals: Sequence[Final]) -> str:
    """Format calibration errors and likelihoods on the held-out pairs before and after a temperature."""
    rows = []
    for model in finals:
        validation, held_out = (
            model.rewards(part)[::2] - model.rewards(part)[1::2] for part in ("validation", "held-out")
        )
        t = temperature(validation.astype(float))
        numbers = [f"{t:.2f}"]
        for gaps in (held_out.astype(float), held_out / t):
            numbers += [f"{reliability(gaps)[1]:.3f}", f"{np.logaddexp(0, -gaps).mean():.3f}"]
        rows.append([model.name, *numbers])
    return "\n".join(
        [
            "",
            "## Calibration",
            "",
            "T is fitted on the validation pairs; error and negative log-likelihood (0.693 knows nothing) on the "
            "held-out "
            "pairs, before and after the division by T.",
            "",
            table(["", "T", "error", "likelihood", "error after", "likelihood after"], rows),
        ]
    )


def length_control(controlled: Arrays, plain: Arrays, pairs: Sequence[PreferencePair]) -> str:
    """Format the loss `length_controlled` beside the plain model of as many pairs and the same seed."""
    won = [arrays["held-out"][::2] > arrays["held-out"][1::2] for arrays in (controlled, plain)]
    points = 100 * (won[0].astype(float) - won[1])
    low, high = np.percentile([points[sample].mean() for sample in _samples(pairs)], [2.5, 97.5])
    return "\n".join(
        [
            "",
            "## Length control",
            "",
            "MiniLM on 2,000 pairs by `length_controlled`, minus the plain model of the same seed, on the held-out "
            f"pairs: {points.mean():+.1f} [{low:+.1f}, {high:+.1f}] points, paired, over prompts.",
        ]
    )


def _samples(pairs: Sequence[PreferencePair]) -> Iterator[np.ndarray]:
    """Yield bootstrap samples of indices, of whole prompts."""
    clusters = np.unique([first_turn(pair.prompt) for pair in pairs], return_inverse=True)[1]
    generator, members = np.random.default_rng(0), [np.flatnonzero(clusters == c) for c in range(clusters.max() + 1)]
    for _ in range(SAMPLES):
        yield np.concatenate([members[c] for c in generator.integers(len(members), size=len(members))])


def lint_of(pairs: Sequence[PreferencePair]) -> str:
    """Tell what `rewardlab lint --fix` leaves out of the training pairs."""
    linted = lint(pairs)
    reasons = "; ".join(f"{reason} {number}" for reason, number in linted.reasons.items())
    leaks = [f"- {leak.sentence}" for leak in linted.leaks]
    return "\n".join(
        [
            "",
            "## Lint",
            "",
            f"`lint --fix` leaves out {len(linted.left_out())} of {len(pairs):,} training pairs ({reasons}), too few "
            "to change an accuracy that could be measured here, so no model was trained without them. It warns of:",
            "",
            *leaks,
        ]
    )


def cuts(finals: Sequence[Final]) -> str:
    """Tell how many training pairs were cut."""
    cut = [f"{model.name} {int(model.results[0]['cut']):,}" for model in finals if "cut" in model.results[0]]
    return f"\nTraining pairs with a sequence beyond 512 tokens, of which the beginning was cut: {'; '.join(cut)}."


def learning_curves(finals: Sequence[Final], evaluations: Mapping[str, Evaluation]) -> Figure:
    """Plot the share of pairs won against the number of training pairs, on held-out pairs and on RewardBench."""
    drawing = Figure(figsize=(9, 3.6), layout="constrained")
    for panel, part in zip(drawing.subplots(1, 2), ("held-out", "rewardbench"), strict=True):
        for kind, colour in COLOURS.items():
            of_kind = [model for model in finals if model.name.split(",")[0] == kind and len(model.results) > 1]
            models = sorted(of_kind, key=lambda model: model.pairs)
            shares = [[100 * accuracy(arrays, part) for arrays in model.results] for model in models]
            numbers = [model.pairs for model in models]
            panel.plot(numbers, [np.mean(some) for some in shares], "o-", color=colour, markersize=4, label=kind)
            panel.fill_between(
                numbers, [min(some) for some in shares], [max(some) for some in shares], color=colour, alpha=0.15
            )
        panel.axhline(50, color="black", linewidth=0.6, linestyle=":")
        panel.set_xscale("log")
        panel.set_xticks(numbers, [f"{number:,}" for number in numbers], minor=False)
        panel.set_xticks([], minor=True)
        panel.set_xlabel("training pairs")
        panel.set_title(TITLES[part], fontsize=9)
    drawing.axes[0].set_ylabel("pairs won, %")
    drawing.axes[0].legend(fontsize=8)
    return drawing
