"""How often intervals of accuracies and of paired differences hold the truth.

Each cell draws data sets whose true accuracy is known. A prompt's chance of a right item is Beta-distributed with the
accuracy as its mean, so that items of one prompt agree as much as the intraclass correlation (ICC) prescribes. The
second scorer of a difference has the same chances and then loses 0.05 of its accuracy at random. All data sets of a
cell share the bootstrap samples of prompts, as the scorers of a report do. Further cells are means of two sections of
very unequal size, which weigh alike.
"""

import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from ...benchmarks.statistics.cluster_bootstrap import (
    LEVEL,
    Clusters,
    Draws,
    Stratum,
    cluster_draws,
    difference_interval,
    share_interval,
    stratified_interval,
)
from ._scripts import argument_parser, write

LOSS = 0.05  # of the second scorer's accuracy
LEAST, MOST = 0.93, 0.98  # more than 0.97 is for cells whose few wrong items make an exact interval impossible


@dataclass(frozen=True)
class Cell:
    """A true accuracy, an intraclass correlation, and the size of a data set."""

    accuracy: float
    icc: float
    prompts: int
    items: int
    """Items of each prompt."""


@dataclass(frozen=True)
class Coverage:
    """Shares of a cell's data sets whose 95 % interval holds the truth, and the intervals' mean width."""

    accuracy: float
    percentile: float
    """Coverage of the accuracy by bootstrap percentiles alone."""
    difference: float
    width: float


@dataclass(frozen=True)
class SectionCell:
    """Prompts and true accuracies of two sections, whose mean is the overall figure."""

    prompts: tuple[int, int]
    accuracies: tuple[float, float]


@dataclass(frozen=True)
class SectionCoverage:
    """Shares of a cell's data sets whose 95 % interval holds the truth, and the intervals' mean width."""

    accuracy: float
    as_equal: float
    """Coverage of the interval that takes all prompts as of equal weight."""
    width: float


def grid() -> Iterator[Cell]:
    """Yield every cell; with one item per prompt there is no correlation."""
    for prompts in (30, 100, 350):
        for items, icc in ((1, 0.0), (4, 0.0), (4, 0.3)):
            for accuracy in (0.5, 0.7, 0.9, 0.97, 0.99):
                yield Cell(accuracy, icc, prompts, items)


def right_items(cell: Cell, data_sets: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw how many items of each prompt two scorers get right, [prompts, data sets] each."""
    shape, odds = (cell.prompts, data_sets), (1 - cell.icc) / cell.icc if cell.icc else np.inf
    chance = np.full(shape, cell.accuracy)
    if cell.icc:
        chance = random.beta(cell.accuracy * odds, (1 - cell.accuracy) * odds, shape)
    second = chance * (1 - LOSS / cell.accuracy)
    return random.binomial(cell.items, chance), random.binomial(cell.items, second)


def section_grid() -> Iterator[SectionCell]:
    """Yield every cell of two sections."""
    for prompts in ((8, 100), (20, 500), (30, 1000), (100, 1000)):
        for pair in ((0.5, 0.5), (0.7, 0.7), (0.9, 0.9), (0.97, 0.97), (0.99, 0.99), (0.6, 0.95), (0.95, 0.6)):
            yield SectionCell(prompts, pair)


def measure_sections(cell: SectionCell, data_sets: int, samples: int, seed: int = 0) -> SectionCoverage:
    """Return how often the intervals of the mean of two sections hold the truth."""
    random, truth = np.random.default_rng(seed), float(np.mean(cell.accuracies))
    draws = cluster_draws(np.arange(sum(cell.prompts)), samples, seed).counts.astype(np.float64)
    values, sampled = [], []
    for size, accuracy, counts in zip(cell.prompts, cell.accuracies, np.split(draws, cell.prompts[:1], 1), strict=True):
        right = random.random((size, data_sets)) < accuracy
        values.append(right.mean(0) / 2)
        sampled.append(counts @ right / counts.sum(1, keepdims=True) / 2)
    overall = values[0] + values[1]

    def strata(index: int) -> list[Stratum]:
        others = overall[index] - np.array([value[index] for value in values])
        parts = zip(sampled, others, cell.prompts, strict=True)
        return [Stratum(part[:, index] + other, size, (other, other + 0.5)) for part, other, size in parts]

    intervals = [stratified_interval(overall[index], strata(index)) for index in range(data_sets)]
    plain = [share_interval(v, s, sum(cell.prompts)) for v, s in zip(overall, (sampled[0] + sampled[1]).T, strict=True)]
    width = float(np.mean([high - low for low, high in intervals]))
    return SectionCoverage(_holding(intervals, truth), _holding(plain, truth), width)


def measure_cell(cell: Cell, data_sets: int, samples: int, seed: int = 0) -> Coverage:
    """Return how often the intervals of a cell's data sets hold the truth."""
    first, second = right_items(cell, data_sets, np.random.default_rng(seed))
    draws = cluster_draws(np.arange(cell.prompts), samples, seed)
    sampled, of_second = (_means(right, cell, draws) for right in (first, second))
    values = first.mean(0) / cell.items
    intervals = [share_interval(v, s, cell.prompts) for v, s in zip(values, sampled.T, strict=True)]
    changes, clusters = values - second.mean(0) / cell.items, Clusters(cell.prompts, cell.prompts)
    differences = [
        difference_interval(v, s, clusters, LEVEL) for v, s in zip(changes, (sampled - of_second).T, strict=True)
    ]
    return Coverage(
        accuracy=_holding(intervals, cell.accuracy),
        percentile=_holding(_percentiles(sampled), cell.accuracy),
        difference=_holding(differences, LOSS),
        width=float(np.mean([high - low for low, high in intervals])),
    )


def _means(right: np.ndarray, cell: Cell, draws: Draws) -> np.ndarray:
    """Return the accuracies of the bootstrap samples, [samples, data sets]."""
    return draws.counts.astype(np.float64) @ right / (cell.prompts * cell.items)


def _percentiles(sampled: np.ndarray) -> np.ndarray:
    """Compute `percentile_interval` of every column at once, [data sets, 2]."""
    return np.quantile(sampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0).T


def _holding(intervals: Sequence[tuple[float, float]] | np.ndarray, truth: float) -> float:
    low, high = np.array(intervals).T
    return float(np.mean((low <= truth) & (truth <= high)))


def measure(data_sets: int, samples: int) -> dict[str, Any]:
    """Return the coverage of every cell, with the settings and versions."""
    cells = [{**asdict(cell), "coverage": asdict(measure_cell(cell, data_sets, samples))} for cell in grid()]
    sections = [
        {**asdict(cell), "coverage": asdict(measure_sections(cell, data_sets, samples))} for cell in section_grid()
    ]
    facts = {"machine": platform.machine(), "numpy": version("numpy"), "scipy": version("scipy")}
    return {
        "data_sets": data_sets,
        "samples": samples,
        "level": LEVEL,
        "loss": LOSS,
        **facts,
        "cells": cells,
        "sections": sections,
    }


def markdown(measurements: dict[str, Any]) -> str:
    """Return the grid as a table, in per cent."""
    names = ("prompts", "items", "icc", "accuracy")
    lines = ["| prompts | items each | ICC | accuracy | interval | percentiles | paired difference | mean width |"]
    lines.append("|---" * 8 + "|")
    for cell in measurements["cells"]:
        figures = " | ".join(f"{100 * value:.1f}" for value in cell["coverage"].values())
        lines.append(f"| {' | '.join(str(cell[name]) for name in names)} | {figures} |")
    lines += ["", "| prompts | accuracies | interval | prompts taken as equal | mean width |", "|---" * 5 + "|"]
    for cell in measurements["sections"]:
        figures = " | ".join(f"{100 * value:.1f}" for value in cell["coverage"].values())
        lines.append(f"| {cell['prompts']} | {cell['accuracies']} | {figures} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 5 if a cell is out of bounds."""
    parser = argument_parser(__doc__)
    parser.add_argument("--data_sets", type=int, default=4000, help="of each cell (default 4000)")
    parser.add_argument("--samples", type=int, default=1000, help="bootstrap samples (default 1000)")
    options = parser.parse_args(arguments)
    measurements = measure(options.data_sets, options.samples)
    write(measurements, options.output, indent=1)
    print(markdown(measurements))
    out = [cell for cell in measurements["cells"] if not LEAST <= cell["coverage"]["accuracy"] <= MOST]
    out += [cell for cell in measurements["sections"] if cell["coverage"]["accuracy"] < LEAST]
    print("\n".join(f"out of bounds: {cell}" for cell in out), file=sys.stderr, end="\n" if out else "")
    return 5 if out else 0


if __name__ == "__main__":
    sys.exit(main())
