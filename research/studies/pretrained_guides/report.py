"""Report of the study: guides on held-out pairs, ratings of their completions by preference, fluency, and texts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from ....benchmarks.report import table
from ...statistics.estimates import Estimate, t_interval
from ...statistics.fronts import front_figure
from ...statistics.pareto import hypervolume
from ..pretrained_policies.report import table_cell
from .models import ALPHAS
from .plan import BASE, SHUFFLED, TEMPERATURES, UNIARM
from .texts import OBJECTIVES

Key = tuple[str, float]
"""A method and the temperature of its completions."""


class Measured(NamedTuple):
    """What the report is computed from."""

    counts: Mapping[str, Mapping[str, int]]
    """Rows by source."""
    pair_accuracy: Mapping[str, tuple[int, int]]
    """Held-out pairs that a guide (at its objective's vertex) or a rater decides as labelled, and all, by name."""
    ratings: Mapping[tuple[str, str], Mapping[Key, np.ndarray]]
    """Rewards [A, P] by rater (kind, objective) and completions."""
    lengths: Mapping[Key, np.ndarray]
    fluency: Mapping[Key, np.ndarray]
    texts: Mapping[Key, np.ndarray]
    prompts: Sequence[str]
    control_lengths: np.ndarray
    """Tokens [A, P] of the positive control's completions."""


# ---- figures ----


def without_length(rewards: Mapping[Key, np.ndarray], lengths: Mapping[Key, np.ndarray]) -> dict[Key, np.ndarray]:
    """Return rewards minus their least-squares fit by log(1 + tokens), which one slope over all completions makes.

    Both sides are centred per prompt and temperature, so that the slope is not that of easy and hard prompts.
    """
    logs = {key: np.log1p(lengths[key]) for key in rewards}
    x, y = (np.concatenate([_centred(values[key]).ravel() for key in rewards]) for values in (logs, rewards))
    slope = float(x @ y / (x @ x)) if x.any() else 0.0
    return {key: rewards[key] - slope * logs[key] for key in rewards}


def _centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean(axis=0)


def slopes(rewards: np.ndarray, toward: np.ndarray) -> np.ndarray:
    """Return the least-squares slope [P] of rewards [A, P] over the weights [A] of the rater's objective."""
    weights = toward - toward.mean()
    return weights @ rewards / (weights @ weights)


def weights_of(objective: str) -> np.ndarray:
    """Return the weight of an objective at each of `ALPHAS`."""
    harmless = np.array(ALPHAS)
    return harmless if objective == OBJECTIVES[1] else 1 - harmless


class Standardised(NamedTuple):
    """Rewards of a rater in standard deviations of the base model's, length taken out."""

    objective: str
    rewards: Mapping[Key, np.ndarray]

    def following(self, name: str, temperature: float, other: str = "") -> Estimate:
        """Return the mean slope over the preference, or its difference from another method's, paired by prompt."""
        toward = weights_of(self.objective)
        values = slopes(self.rewards[name, temperature], toward)
        if other:
            values = values - slopes(self.rewards[other, temperature], toward)
        return t_interval(values)

    def shift(self, name: str, temperature: float, index: int) -> Estimate:
        """Return the mean difference from the base model at one preference, paired by prompt."""
        return t_interval(self.rewards[name, temperature][index] - self.rewards[BASE, temperature][index])


def standardised(measured: Measured) -> dict[tuple[str, str], Standardised]:
    """Return the rewards of every rater in units of the base model's greedy completions."""
    result = {}
    for (kind, objective), rewards in measured.ratings.items():
        plain = without_length(rewards, measured.lengths)
        scale = plain[BASE, 0.0].std(ddof=1) or 1.0
        result[kind, objective] = Standardised(objective, {key: values / scale for key, values in plain.items()})
    return result


# ---- text ----


def text(measured: Measured) -> str:
    """Return the report in Markdown."""
    raters = standardised(measured)
    parts = [_head(measured), _following(measured, raters), _ends(measured, raters), _control(measured)]
    parts += [_side_by_side(measured), LIMITS]
    return "\n\n".join(parts) + "\n"


def _head(measured: Measured) -> str:
    rows = [[source, str(count["read"]), str(count["kept"])] for source, count in measured.counts.items()]
    shares = [[name, _share(*counts)] for name, counts in measured.pair_accuracy.items()]
    return "\n\n".join(
        [
            "# Guides on SmolLM2-135M-Instruct",
            "SmolLM2-135M-Instruct (4-bit weights, dequantised) is guided by adapters that were trained on pairs of "
            "preferences. Prompts are divided by their hash: half train guides, two fifths train the raters, a tenth "
            "is tested.",
            table(["source", "pairs read", "used"], rows),
            "## Held-out pairs",
            table(["model", "pairs decided as labelled"], shares),
            "Wilson's 95 % intervals over pairs.",
        ]
    )


def _share(count: int, total: int) -> str:
    low, high = stats.binomtest(count, total).proportion_ci(method="wilson")
    return f"{count / total:.3f} [{low:.3f}, {high:.3f}]"


def _following(measured: Measured, raters: Mapping[tuple[str, str], Standardised]) -> str:
    header = ["method", "temperature", *(f"{kind}, {name}" for kind, name in raters), "hypervolume, MiniLM"]
    rows = []
    for name, temperature in measured.lengths:
        cells = [_marked(rater.following(name, temperature)) for rater in raters.values()]
        rows.append([name, f"{temperature:g}", *cells, f"{_volume(raters, (name, temperature)):.2f}"])
    against = [
        [f"{temperature:g}", *(_marked(rater.following(UNIARM, temperature, SHUFFLED)) for rater in raters.values())]
        for temperature in TEMPERATURES
    ]
    return "\n\n".join(
        [
            "## Does the preference move the ratings?",
            "Slope of a rating over the weight of its objective from 0 to 1, in standard deviations of the base "
            "model's greedy completions, length taken out; mean over prompts with Student's 95 % interval. **Bold**: "
            "the interval excludes 0. The hypervolume is above one standard deviation below the base model.",
            table(header, rows),
            "UniARM minus the guide with shuffled labels, paired by prompt:",
            table(["temperature", *header[2:-1]], against),
        ]
    )


def _marked(estimate: Estimate) -> str:
    shown = estimate.formatted("+.2f")
    return f"**{shown}**" if estimate.low > 0 or estimate.high < 0 else shown


def _front(raters: Mapping[tuple[str, str], Standardised], key: Key) -> np.ndarray:
    """Return mean ratings [A, 2] of MiniLM's raters minus the base model's."""
    base = BASE, key[1]
    columns = [raters["scalar", name].rewards for name in OBJECTIVES]
    return np.stack([rewards[key].mean(1) - rewards[base].mean() for rewards in columns], axis=1)


def _volume(raters: Mapping[tuple[str, str], Standardised], key: Key) -> float:
    return float(hypervolume(_front(raters, key), np.array([-1.0, -1.0])))


def figure(measured: Measured) -> Figure:
    """Plot the fronts of all methods with greedy decoding."""
    raters = standardised(measured)
    fronts = {name: _front(raters, (name, at)) for name, at in measured.lengths if at == 0}
    return front_figure(fronts, OBJECTIVES, "MiniLM's rating minus the base model's, in its standard deviations")


def _ends(measured: Measured, raters: Mapping[tuple[str, str], Standardised]) -> str:
    header = ["method", "α harmless", *(f"{kind}, {name}" for kind, name in raters), "tokens", "nats a token"]
    return "\n\n".join(
        [
            "## At each preference, greedy",
            table(header, list(_rows(measured, raters))),
            "Mean rating minus the base model's on the same prompts, in its standard deviations, length taken out. "
            "Nats a token: mean log-probability of the completions under the base model.",
        ]
    )


def _rows(measured: Measured, raters: Mapping[tuple[str, str], Standardised]) -> Iterator[list[str]]:
    for name, temperature in measured.lengths:
        if temperature or name == BASE:
            continue
        key = name, temperature
        for index, alpha in enumerate(ALPHAS):
            shifts = [_marked(rater.shift(name, temperature, index)) for rater in raters.values()]
            numbers = f"{measured.lengths[key][index].mean():.1f}", f"{measured.fluency[key][index].mean():.2f}"
            yield [name, f"{alpha:g}", *shifts, *numbers]


def _control(measured: Measured) -> str:
    """Return the positive control's lengths by preference, and their slope."""
    lengths = measured.control_lengths
    slope = t_interval(slopes(lengths, weights_of(OBJECTIVES[1])))
    rows = [[f"{alpha:g}", f"{row.mean():.1f}"] for alpha, row in zip(ALPHAS, lengths, strict=True)]
    return "\n\n".join(
        [
            "## Positive control: longer or shorter",
            f"The base model's completions have {measured.lengths[BASE, 0.0].mean():.1f} tokens on average, cut at the "
            f"study's limit. From all weight on `longer` to all on `shorter` the length changes by "
            f"{_marked(slope)} tokens.",
            table(["weight of shorter", "tokens"], rows),
        ]
    )


def _side_by_side(measured: Measured, number: int = 20) -> str:
    """Return the first prompts with the base model's completion and UniARM's at both ends."""
    base, guided = measured.texts[BASE, 0.0], measured.texts[UNIARM, 0.0]
    columns = [base[0], guided[0], guided[-1]]
    rows = [
        [table_cell(cell) for cell in (prompt, *texts)]
        for prompt, *texts in zip(measured.prompts[:number], *(column[:number] for column in columns), strict=False)
    ]
    header = ["prompt", BASE, f"{UNIARM}, {OBJECTIVES[0]}", f"{UNIARM}, {OBJECTIVES[1]}"]
    return "\n\n".join(["## Texts", table(header, rows)])


LIMITS = """## Limits

- One base model of 135 million parameters with 4-bit weights, one seed a guide, one split of the prompts.
- Raters agree with held-out labels as the first table says: a shift is what they count, not what people prefer.
- Methods, temperatures and raters beside the primary question are compared without correction."""
