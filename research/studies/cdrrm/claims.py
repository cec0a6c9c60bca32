"""Claims about rubrics from contrast, registered before the first run, and whether they hold."""

from collections.abc import Callable, Iterable

import numpy as np

from ...statistics.estimates import Estimate, t_interval
from .._study import Criterion
from .plan import BARE, MASKS, MIDDLE, MODEL, ORACLE, POINTS, TRAINED, Results

PLATEAU = 0.03
Test = Callable[[Estimate], bool]


def claims(results: Results) -> list[Criterion]:
    """Evaluate the six claims in parts, and the claim about the language model."""
    return [
        *_ladder(results),
        *_trained(results),
        *_biases(results),
        *_masking(results),
        *_nulls(results),
        *_model(results),
    ]


def above(estimate: Estimate) -> bool:
    """Return whether the interval lies above 0."""
    return bool(estimate.low > 0)


def not_below(estimate: Estimate) -> bool:
    """Return whether the interval does not lie below 0."""
    return bool(estimate.high >= 0)


def format_estimate(estimate: Estimate, scale: float = 100.0) -> str:
    """Format an estimate with its interval, by default in percentage points."""
    return estimate.formatted("+.1f" if scale == 100 else "+.2f", scale)


def difference(results: Results, better: str, worse: str, measure: str = "hard", point: str = MIDDLE) -> Estimate:
    """Return the difference of two arms, paired over seeds."""
    return t_interval(results.values(better, measure, point) - results.values(worse, measure, point))


def everywhere(claim: str, estimate_at: Callable[[str], Estimate], test: Test, scale: float = 100.0) -> Criterion:
    """Return a claim that has to hold at every point of the sweep."""
    estimates = {point: estimate_at(point) for point in POINTS}
    fails = [f"{point} {format_estimate(at, scale)}" for point, at in estimates.items() if not test(at)]
    rest = f"; not at {', '.join(fails)}" if fails else ""
    middle = format_estimate(estimates[MIDDLE], scale)
    return Criterion(claim, f"{MIDDLE} {middle}; {len(POINTS) - len(fails)} of {len(POINTS)}{rest}", not fails)


def _ladder(results: Results) -> Iterable[Criterion]:
    for name, better, worse, test in (
        ("1a hard: prompt only above bare", "prompt only", BARE, above),
        ("1b hard: one step not below prompt only", "one step", "prompt only", not_below),
        ("1c hard: contrast above one step", "contrast", "one step", above),
        ("1d hard: oracle above contrast", ORACLE, "contrast", above),
    ):
        yield everywhere(name, lambda point, b=better, w=worse: difference(results, b, w, "hard", point), test)


def _trained(results: Results) -> Iterable[Criterion]:
    most, before = (f"{TRAINED} {n}" for n in results.plan.sizes[:-3:-1])
    name = f"2a hard: {most} not below its teacher (contrast)"
    yield everywhere(name, lambda point: difference(results, most, "contrast", "hard", point), not_below)
    gain = difference(results, most, before)
    name = f"2b hard: less than {100 * PLATEAU:g} points from {before} to {most}"
    yield Criterion(name, format_estimate(gain), bool(gain.high < PLATEAU))


def _biases(results: Results) -> Iterable[Criterion]:
    most = f"{TRAINED} {results.plan.most}"
    name = "3a the same winner in both orders more often than bare"
    yield everywhere(name, lambda point: difference(results, most, BARE, "consistent", point), above)

    def closer(measure: str, ideal: float) -> Callable[[str], Estimate]:
        return lambda point: t_interval(
            abs(results.values(BARE, measure, point) - ideal) - abs(results.values(most, measure, point) - ideal)
        )

    yield everywhere("3b first-slot rate closer to ½ than bare", closer("first_slot", 0.5), above)
    yield everywhere("3c slope of length closer to 0 than bare", closer("slope", 0.0), above, scale=1.0)


def _masking(results: Results) -> Iterable[Criterion]:
    for mask in MASKS:
        falls = [
            results.values(arm, "hard") - results.values(f"{arm}, {mask} masked", "hard")
            for arm in ("contrast", "prompt only")
        ]
        extra_cost = t_interval(falls[0] - falls[1])
        name = f"4 hard: {mask} masked costs contrast more than prompt only"
        yield Criterion(name, format_estimate(extra_cost), above(extra_cost))


def share(won: Iterable[np.ndarray]) -> Estimate:
    """Estimate how often the randomly chosen response won: over pairs, mean of the orders, with a 95 % interval."""
    verdicts = np.concatenate([*won])
    pairs = np.nanmean(verdicts[~np.isnan(verdicts).all(1)], axis=1)
    half = 1.96 * pairs.std(ddof=1) / np.sqrt(len(pairs))
    return Estimate(float(pairs.mean()), float(pairs.mean() - half), float(pairs.mean() + half))


def shown(won: list[np.ndarray], leaky: bool) -> list[np.ndarray]:
    """Return both orders; with a leak, only the order in which the generator saw the pair."""
    return [array[:, :1] if leaky else array for array in won]


def _nulls(results: Results) -> Iterable[Criterion]:
    for index, (name, won) in enumerate(results.nulls.items()):
        leaky = index > 2
        rate = share(shown(won, leaky))
        contains = rate.low <= 0.5 <= rate.high
        claim = f"6 equal pairs, {name}: not ½" if leaky else f"5 equal pairs, {name}: ½"
        yield Criterion(claim, rate.formatted(".3f"), bool(contains != leaky))


def _model(results: Results) -> Iterable[Criterion]:
    for other in (BARE, "prompt only", "one step"):
        name = f"7 {MODEL} above {other}, all nine comparisons"
        yield everywhere(name, lambda point, o=other: difference(results, MODEL, o, "accuracy", point), above)
