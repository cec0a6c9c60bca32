"""How often comparisons of equal scorers are significant.

Every cell draws data sets in which nothing differs. A prompt's chance of a right response is Beta-distributed and the
same for all scorers. A comparison of two scorers has `tests` subsets of so many prompts each; a leaderboard has
`tests` scorers beside its best, on the same prompts. A data set counts if anything in it is significant at 5 % after
the adjustment.
"""

import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from ...benchmarks.statistics.cluster_bootstrap import LEVEL, Clusters, Draws, cluster_draws, difference_p, least_p
from ...benchmarks.statistics.multiple_tests import holm, tied_groups
from ._scripts import argument_parser, write

ACCURACY, ICC = 0.7, 0.3
MOST_OF_CELL, MOST_OF_ALL = 0.1, 0.057


@dataclass(frozen=True)
class Cell:
    """Numbers of prompts and of tests of a data set."""

    prompts: int
    tests: int


def grid() -> Iterator[Cell]:
    """Yield every cell."""
    for prompts in (8, 30, 100, 400):
        for tests in (2, 27, 98):
            yield Cell(prompts, tests)


def equal_scorers(prompts: int, sets: int, scorers: int, random: np.random.Generator) -> np.ndarray:
    """Draw the credits [prompts, sets, scorers] of equally good scorers that find the same prompts hard."""
    odds = (1 - ICC) / ICC
    chance = random.beta(ACCURACY * odds, (1 - ACCURACY) * odds, (prompts, sets, 1))
    return random.binomial(1, chance, (prompts, sets, scorers)).astype(float)


def p_value(gained: np.ndarray, draws: Draws) -> float:
    """Return p of a difference from its value for each prompt [prompts], as `compare` computes it."""
    number = len(gained)
    samples = draws.counts @ gained / number
    return max(difference_p(float(gained.mean()), samples, Clusters(number, number)), least_p(int((gained != 0).sum())))


def subsets_differ(cell: Cell, random: np.random.Generator, draws: Draws) -> bool:
    """Return whether a comparison of two equal scorers has a significant subset."""
    credits = equal_scorers(cell.prompts, cell.tests, 2, random)
    gained = credits[..., 0] - credits[..., 1]
    return bool((holm(np.array([p_value(column, draws) for column in gained.T])) < 1 - LEVEL).any())


def board_differs(cell: Cell, random: np.random.Generator, draws: Draws) -> bool:
    """Return whether a leaderboard of equal scorers has more than one group."""
    credits = equal_scorers(cell.prompts, 1, cell.tests + 1, random)[:, 0]
    values = {str(index): float(value) for index, value in enumerate(credits.mean(0))}

    def p_of_pair(first: str, second: str) -> float:
        return p_value(credits[:, int(first)] - credits[:, int(second)], draws)

    return len(tied_groups(values, p_of_pair)) > 1


def measure(data_sets: int, samples: int, seed: int = 0) -> dict[str, Any]:
    """Return the number of data sets of each cell with a false positive, with the settings and versions."""
    cells = []
    for cell in grid():
        random, draws = np.random.default_rng(seed), cluster_draws(np.arange(cell.prompts), samples, seed)
        draws = draws._replace(counts=draws.counts.astype(np.float64))
        counts = {
            "compare": sum(subsets_differ(cell, random, draws) for _ in range(data_sets)),
            "board": sum(board_differs(cell, random, draws) for _ in range(data_sets)),
        }
        cells.append({**asdict(cell), **counts})
    facts = {"machine": platform.machine(), "numpy": version("numpy"), "scipy": version("scipy")}
    return {"data_sets": data_sets, "samples": samples, "accuracy": ACCURACY, "icc": ICC, **facts, "cells": cells}


def pooled(measurements: dict[str, Any]) -> float:
    """Return the share of data sets with a false positive over all cells."""
    counts = [cell[name] for cell in measurements["cells"] for name in ("compare", "board")]
    return sum(counts) / (len(counts) * measurements["data_sets"])


def markdown(measurements: dict[str, Any]) -> str:
    """Return the counts as a table."""
    lines = ["| prompts | tests | compare | leaderboard |", "|---" * 4 + "|"]
    for cell in measurements["cells"]:
        lines.append(f"| {' | '.join(str(cell[name]) for name in ('prompts', 'tests', 'compare', 'board'))} |")
    sets = f"Data sets of {measurements['data_sets']} with a false positive; pooled {100 * pooled(measurements):.1f} %."
    return "\n".join([*lines, "", sets])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 5 if there are too many false positives."""
    parser = argument_parser(__doc__)
    parser.add_argument("--data_sets", type=int, default=200, help="of each cell (default 200)")
    parser.add_argument("--samples", type=int, default=1000, help="bootstrap samples (default 1000)")
    options = parser.parse_args(arguments)
    measurements = measure(options.data_sets, options.samples)
    write(measurements, options.output, indent=1)
    print(markdown(measurements))
    most = MOST_OF_CELL * options.data_sets
    out = [cell for cell in measurements["cells"] if max(cell["compare"], cell["board"]) > most]
    print("\n".join(f"too many: {cell}" for cell in out), file=sys.stderr, end="\n" if out else "")
    return 5 if out or pooled(measurements) > MOST_OF_ALL else 0


if __name__ == "__main__":
    sys.exit(main())
