"""`rewardlab compare`: differences between two runs, and a check of the rules of `--gate`."""

from dataclasses import asdict
from typing import Any

from ....benchmarks.compare import ScorerComparison, broken_rules, check_areas, markdown, read_gate
from ....benchmarks.evaluate import OVERALL
from ....rm.errors import CheckFailed, UsageError
from ...runs.finished import compare_runs
from ...runs.run_folder import log_report, run_folder, write_json
from .settings import CompareConfig


def checked_comparison(config: CompareConfig) -> ScorerComparison:
    """Compare two runs and write the comparison. Raise `CheckFailed` for a drop beyond the rules of `--gate`."""
    gate = read_gate(config.gate) if config.gate else []
    if len(config.runs) != 2:
        raise UsageError(f"compare takes two runs, got {len(config.runs)}: rewardlab compare BEFORE AFTER")
    comparison = compare_runs(*config.runs, scorers=config.scorer, samples=config.bootstrap_samples, seed=config.seed)
    check_areas(gate, comparison)
    text = markdown(comparison)
    log_report(text)
    if config.output:
        with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
            (work / "comparison.md").write_text(text, encoding="utf-8")
            write_json(work / "comparison.json", asdict(comparison))
    if broken := broken_rules(gate, comparison):
        raise CheckFailed("; ".join(broken))
    return comparison


def run_compare(config: CompareConfig) -> dict[str, Any]:
    """Compare two runs and return a summary: the overall difference, its p-value, and numbers of cases."""
    comparison = checked_comparison(config)
    overall = comparison.areas[OVERALL]
    names = ("first", "second", "cases", "left_out", "only_first", "only_second")
    return {
        **{name: vars(comparison)[name] for name in names},
        "difference": overall.difference._asdict(),
        "p": overall.p,
        "real": overall.significant,
        "flips": len(comparison.flips),
    }
