"""Comparison of agents that learn from each other or jointly with the plain loops that they extend."""

from collections.abc import Sequence
from pathlib import Path

from ...benchmarks.types import Log, Study
from .seeds import Plan, compare_with_plain

TITLE = "Agents that learn from each other beside the plain loops that they extend"


def agents(
    cache: Path,
    *,
    seed: int = 0,
    workers: int = 2,
    rows: int | None = None,
    only: Sequence[str] = (),
    log: Log = print,
) -> Study:
    """Run every recipe of `research/recipes/agents`: HACPO, CCPO and DACR; see `seeds`."""
    plan = Plan(seed) if rows is None else Plan.short(seed, rows)
    return compare_with_plain("agents", TITLE, plan, cache, workers=workers, only=only, log=log)
