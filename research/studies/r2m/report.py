"""Claims about R2M, and their measurement in the garden world.

Records are those of `overoptimisation`, with a `proxy` on gold's scale (`feedback_runs`), `accuracy` and
`frozen_accuracy`: accuracy of the current and of the frozen reward model on pairs of the current policy's
completions, with gold as truth. All arms of a seed share the start policy, the proxy and the prompts, so differences
are paired by seed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....benchmarks.report import table
from ....benchmarks.statistics.cluster_bootstrap import Estimate, percentile_interval, t_interval
from ...statistics.gold_peaks import peak_columns
from ...statistics.overoptimisation import Curve, Record, at_kl, curves

GRID = np.array([3.0, 6.0, 10.0, 15.0, 20.0, 25.0])
FINE = np.linspace(0, 25, 101)
NEAR, FAR = 10.0, 20.0  # KL that nearly all runs reach, and the registered maximum
LATE, BUDGET = 15.0, 6.0
DRAWS = 10_000
MOVED = 7.0  # KL at which the frozen reward model's labels are checked again
UNSETTLED = "not shown either way"
BySeed = dict[int, float]
"""Value by seed; NaN for a seed that did not reach the KL."""


# ---- measures of a run ----


def gap_area(run: Curve, upto: float) -> float:
    """Compute ∫ (proxy - gold) dKL from 0, the reward model's overestimation, in standard deviations times nats."""
    grid = FINE[upto >= FINE]
    return float(np.trapezoid(at_kl(run.kl, run.proxy - run.gold, grid), grid))


def gold_at(run: Curve, kl: float) -> float:
    """Return the gold gain where the run first reaches a KL."""
    return float(at_kl(run.kl, run.gold, np.array([kl]))[0])


def areas(records: Sequence[Record], arm: str, upto: float) -> BySeed:
    """Return `gap_area` of every seed."""
    return {seed: gap_area(run, upto) for seed, run in curves(records)[arm].items()}


def golds(records: Sequence[Record], arm: str, kl: float) -> BySeed:
    """Return `gold_at` of every seed."""
    return {seed: gold_at(run, kl) for seed, run in curves(records)[arm].items()}


def late_gains(records: Sequence[Record], arm: str, than: str = "frozen") -> BySeed:
    """Return gold in the last third of a run minus the gold of arm `than` where it first reached the same KL.

    Unlike `gold_at`, this shows changes at constant KL while the reward model learns, and it does not favour an arm
    that hardly moves.
    """
    others = curves(records)[than]
    gains_by_seed = {}
    for seed, run in curves(records)[arm].items():
        if seed in others:
            late = run.step >= 2 / 3 * run.step[-1]
            gains = run.gold[late] - at_kl(others[seed].kl, others[seed].gold, run.kl[late])
            gains_by_seed[seed] = float(np.nanmean(gains)) if not np.isnan(gains).all() else np.nan
    return gains_by_seed


def value_at(records: Sequence[Record], arm: str, name: str, kl: float) -> BySeed:
    """Return another value of the records, by seed, where the run first reaches a KL."""
    rows: dict[int, list[Record]] = {}
    for record in records:
        if record["arm"] == arm:
            rows.setdefault(record["seed"], []).append(record)
    values_by_seed = {}
    for seed, seed_records in rows.items():
        ordered = sorted(seed_records, key=lambda record: record["step"])
        kls, values = (np.array([record[key] for record in ordered], float) for key in ("kl", name))
        values_by_seed[seed] = float(at_kl(kls, values, np.array([kl]))[0])
    return values_by_seed


class Peak(NamedTuple):
    """An arm's highest gold, and the KL there."""

    gold: Estimate
    kl: float


def peak(records: Sequence[Record], arm: str) -> Peak:
    """Return each seed's gold at the KL where the other seeds' mean is highest, and the KL of the overall maximum."""
    gold = np.stack([at_kl(run.kl, run.gold, FINE) for run in curves(records)[arm].values()])
    gold = gold[:, ~np.isnan(gold).any(0)]
    return Peak(t_interval(gold[np.arange(len(gold)), peak_columns(gold)]), float(FINE[gold.mean(0).argmax()]))


# ---- differences ----


def paired(first: BySeed, second: BySeed, seed: int = 0) -> tuple[Estimate, int]:
    """Return the mean of first - second over common seeds, its bootstrap interval over seeds, and their number.

    With few seeds the interval is slightly too short: its coverage is about 92 % with ten, less with five.
    """
    both = sorted(first.keys() & second.keys())
    differences = np.array([first[seed_in_both] - second[seed_in_both] for seed_in_both in both])
    known = differences[~np.isnan(differences)]
    if not len(known):
        return Estimate(np.nan, np.nan, np.nan), 0
    random = np.random.default_rng(seed)
    drawn = known[random.integers(len(known), size=(DRAWS, len(known)))].mean(1)
    low, high = percentile_interval(drawn) if len(known) > 1 else (np.nan, np.nan)
    return Estimate(float(known.mean()), float(low), float(high)), len(known)


class Claim(NamedTuple):
    """A falsifiable claim, the difference that decides it, and the required sign."""

    name: str
    sentence: str
    measured: Estimate
    seeds: int
    sign: int
    """-1: below 0, +1: above 0, 0: not above 0."""

    @property
    def is_control(self) -> bool:
        """Return whether it tests the design and not R2M."""
        return self.name.endswith("control")

    @property
    def verdict(self) -> str:
        """Return the verdict by the interval, for controls; claims about R2M are unsettled, see `design_note`."""
        low, high = self.measured.low, self.measured.high
        if np.isnan(low):
            return "unknown"
        if not self.is_control:
            return UNSETTLED
        if self.sign == 0:
            return "**no**" if low > 0 else "yes"
        if (low if self.sign > 0 else -high) > 0:
            return "yes"
        return "**no, the opposite**" if (high if self.sign > 0 else -low) < 0 else "**not shown**"


def claims(records: Sequence[Record]) -> list[Claim]:
    """Evaluate C1 to C3, C5, C6 and the two control sets; C4, time and memory, is measured by `bench r2m`."""

    def area(name: str, sentence: str, first: str, second: str) -> list[Claim]:
        return [
            Claim(
                name,
                f"gap area to KL {upto:g}: {sentence}",
                *paired(areas(records, first, upto), areas(records, second, upto)),
                -1,
            )
            for upto in (FAR, NEAR)
        ]

    def late(name: str, sentence: str, first: str, second: str, sign: int) -> Claim:
        zero = dict.fromkeys(curves(records)["frozen"], 0.0)
        against = zero if second == "frozen" else late_gains(records, second)
        return Claim(name, sentence, *paired(late_gains(records, first), against), sign)

    accuracy, frozen = (value_at(records, "R2M", name, LATE) for name in ("accuracy", "frozen_accuracy"))
    return [
        *area("C1", "R2M below the frozen model", "R2M", "frozen"),
        *area("C2", "R2M below the head that is refitted alike and reads no states", "R2M", "iterative head"),
        *area("C3", "own, present states below those of the start policy", "R2M", "stale states"),
        *area("C3", "own states below another answer's", "R2M", "shuffled states"),
        *area("C5", "1 group in 12 labelled, R2M below head only", "R2M, gold 1/12", "head, gold 1/12"),
        *area("C5", "1 group in 4 labelled, R2M below head only", "R2M, gold 1/4", "head, gold 1/4"),
        late("C5", "late gain, 1 group in 12 labelled: R2M above head only", "R2M, gold 1/12", "head, gold 1/12", 1),
        late("C5", "late gain, 1 group in 4 labelled: R2M above head only", "R2M, gold 1/4", "head, gold 1/4", 1),
        Claim(
            "C6",
            f"pairs of its own policy at KL {LATE:g}: right more often than the frozen model",
            *paired(accuracy, frozen),
            1,
        ),
        late("positive control", "late gain on gold's labels: R2M above the frozen model", "R2M, gold", "frozen", 1),
        late("positive control", "late gain on gold's labels: head only above it", "head, gold", "frozen", 1),
        late("negative control", "late gain on random labels: R2M not above it", "R2M, random labels", "frozen", 0),
    ]


def design_note(records: Sequence[Record], steps: int, rate: float, cycles: int, start_std: float) -> str:
    """Return why this design settles no claim about R2M, with the figures that show it.

    A cycle has `steps` optimizer steps at the learning rate `rate`; `start_std` is that of the attention's weights.
    """
    accuracies = (value_at(records, "frozen", "accuracy", kl) for kl in (0.0, MOVED))
    right, moved = (t_interval(np.array([*by_seed.values()])) for by_seed in accuracies)
    gold, seeds = paired(golds(records, "R2M", NEAR), golds(records, "frozen", NEAR))
    random = "R2M, random labels"
    area, common = paired(areas(records, random, NEAR), areas(records, "frozen", NEAR))
    late = t_interval(np.array([*late_gains(records, random).values()]))
    return (
        "No claim about R2M is shown either way, whatever side its interval lies on, because this design cannot settle "
        "it. R2M's labels are the reward model's own, and these are chance as soon as the policy has moved: of pairs "
        f"of the policy's answers the frozen model orders {right.value:.2f} as gold does at KL 0 and {moved.value:.2f} "
        f"at KL {MOVED:g}. A cycle has {steps} AdamW steps of {rate:g}, the paper's one of 1e-6: over {cycles} cycles "
        f"a weight can move by {steps * rate * cycles:.2g}, with a standard deviation of {start_std:.3g} at the start. "
        f"And a reward model that has been destroyed can have a small gap area too: on random labels, with a late gain "
        f"of {late.formatted()}, it differs from the frozen model's by {area.formatted()} ({common} seeds). "
        f"In gold, R2M minus the frozen model at KL {NEAR:g} is {gold.formatted()} ({seeds} seeds)."
    )


# ---- tables ----


def claims_table(decided: Sequence[Claim]) -> str:
    """Return the table of all claims with their measured differences."""
    lines = [
        [claim.name, claim.sentence, claim.measured.formatted(), str(claim.seeds), claim.verdict] for claim in decided
    ]
    return table(["", "claim", "difference", "seeds", "holds"], lines)


def gold_table(records: Sequence[Record]) -> str:
    """Return the table of gold at the KLs of the grid; in parentheses the seeds that reached it, if not all."""
    lines = []
    for arm, runs in curves(records).items():
        values = np.stack([at_kl(run.kl, run.gold, GRID) for run in runs.values()]).T
        seeds = (~np.isnan(values)).sum(1)
        notes = [f" ({number})" if 0 < number < len(runs) else "" for number in seeds]
        cells = [t_interval(golds_at_kl).formatted() + note for golds_at_kl, note in zip(values, notes, strict=True)]
        lines.append([arm, str(len(runs)), *cells])
    return table(["arm", "seeds", *(f"KL {kl:g}" for kl in GRID)], lines)


def facts(records: Sequence[Record], arm: str) -> dict[str, Any]:
    """Return the figures of an arm in `facts_table`, as numbers."""
    area = areas(records, arm, NEAR)
    against, common = paired(area, areas(records, "frozen", NEAR))
    highest = peak(records, arm)
    return {
        "area": t_interval(np.array([*area.values()])),
        "against_frozen": against,
        "seeds": common,
        "peak": highest.gold,
        "peak_kl": highest.kl,
        "at_budget": t_interval(np.array([*golds(records, arm, BUDGET).values()])),
        "accuracy": t_interval(np.array([*value_at(records, arm, "accuracy", LATE).values()])),
        "late": t_interval(np.array([*late_gains(records, arm).values()])),
        "end": t_interval(np.array([run.gold[-1] for run in curves(records)[arm].values()])),
        "end_kl": t_interval(np.array([run.kl[-1] for run in curves(records)[arm].values()])),
    }


def facts_table(records: Sequence[Record], calls: Mapping[str, float]) -> str:
    """Return the table of gaps, peaks, gold at the KL budget, late gains, final gold, accuracies and labels."""
    lines = []
    for arm in curves(records):
        arm_facts = facts(records, arm)
        estimates = {name: value.formatted() for name, value in arm_facts.items() if isinstance(value, Estimate)}
        cells = [estimates["area"], f"{estimates['against_frozen']} ({arm_facts['seeds']})", estimates["peak"]]
        cells += [f"{arm_facts['peak_kl']:.1f}", estimates["at_budget"], estimates["late"], estimates["end"]]
        cells += [f"{arm_facts['end_kl'].value:.1f}", estimates["accuracy"]]
        lines.append([arm, *cells, f"{calls.get(arm, 0):.0f}"])
    header = ["arm", f"gap area to KL {NEAR:g}", "minus frozen (seeds)", "gold at its peak", "KL there"]
    header += [f"gold at KL {BUDGET:g}", "late gain", "gold at the end", "KL there", f"accuracy at KL {LATE:g}"]
    header += ["labels asked"]
    return table(header, lines)
