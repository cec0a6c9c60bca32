"""What was claimed of rubrics from contrast before anything was run, and whether it is so."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ...statistics.cluster_bootstrap import Estimate, t_interval
from .plan import BARE, MASKS, MIDDLE, MODEL, ORACLE, POINTS, TRAINED, Results

PLATEAU = 0.03
Test = Callable[[Estimate], bool]


class Claim(NamedTuple):
    """Something that was to hold, what was found, and whether it does."""

    claim: str
    found: str
    holds: bool


def claims(results: Results) -> list[Claim]:
    """Six claims in parts, and that of the language model."""
    return [
        *_ladder(results),
        *_trained(results),
        *_biases(results),
        *_masking(results),
        *_nulls(results),
        *_model(results),
    ]


def above(one: Estimate) -> bool:
    """Surely above 0."""
    return bool(one.low > 0)


def not_below(one: Estimate) -> bool:
    """Not surely below 0."""
    return bool(one.high >= 0)


def told(one: Estimate, scale: float = 100.0) -> str:
    """An estimate with its interval; in points of a hundred unless told otherwise."""
    if np.isnan(one.value):
        return "–"
    digits = 1 if scale == 100 else 2
    interval = "" if np.isnan(one.low) else f" [{scale * one.low:+.{digits}f}, {scale * one.high:+.{digits}f}]"
    return f"{scale * one.value:+.{digits}f}{interval}"


def difference(results: Results, better: str, worse: str, measure: str = "hard", point: str = MIDDLE) -> Estimate:
    """Paired over seeds."""
    return t_interval(results.values(better, measure, point) - results.values(worse, measure, point))


def everywhere(claim: str, at: Callable[[str], Estimate], test: Test, scale: float = 100.0) -> Claim:
    """A claim that is to hold at every point of the sweep."""
    found = {point: at(point) for point in POINTS}
    fails = [f"{point} {told(one, scale)}" for point, one in found.items() if not test(one)]
    rest = f"; not at {', '.join(fails)}" if fails else ""
    return Claim(
        claim, f"{MIDDLE} {told(found[MIDDLE], scale)}; {len(POINTS) - len(fails)} of {len(POINTS)}{rest}", not fails
    )


def _ladder(results: Results) -> Iterable[Claim]:
    for name, better, worse, test in (
        ("1a hard: prompt only above bare", "prompt only", BARE, above),
        ("1b hard: one step not below prompt only", "one step", "prompt only", not_below),
        ("1c hard: contrast above one step", "contrast", "one step", above),
        ("1d hard: oracle above contrast", ORACLE, "contrast", above),
    ):
        yield everywhere(name, lambda point, b=better, w=worse: difference(results, b, w, "hard", point), test)


def _trained(results: Results) -> Iterable[Claim]:
    most, before = (f"{TRAINED} {n}" for n in results.plan.sizes[:-3:-1])
    name = f"2a hard: {most} not below its teacher (contrast)"
    yield everywhere(name, lambda point: difference(results, most, "contrast", "hard", point), not_below)
    one = difference(results, most, before)
    yield Claim(
        f"2b hard: less than {100 * PLATEAU:g} points from {before} to {most}", told(one), bool(one.high < PLATEAU)
    )


def _biases(results: Results) -> Iterable[Claim]:
    most = f"{TRAINED} {results.plan.most}"
    name = "3a the same winner in both orders more often than bare"
    yield everywhere(name, lambda point: difference(results, most, BARE, "consistent", point), above)

    def closer(measure: str, ideal: float) -> Callable[[str], Estimate]:
        return lambda point: t_interval(
            abs(results.values(BARE, measure, point) - ideal) - abs(results.values(most, measure, point) - ideal)
        )

    yield everywhere("3b first-slot rate closer to ½ than bare", closer("first_slot", 0.5), above)
    yield everywhere("3c slope of length closer to 0 than bare", closer("slope", 0.0), above, scale=1.0)


def _masking(results: Results) -> Iterable[Claim]:
    for mask in MASKS:
        falls = [
            results.values(name, "hard") - results.values(f"{name}, {mask} masked", "hard")
            for name in ("contrast", "prompt only")
        ]
        one = t_interval(falls[0] - falls[1])
        yield Claim(f"4 hard: {mask} masked costs contrast more than prompt only", told(one), above(one))


def share(won: Iterable[np.ndarray]) -> Estimate:
    """How often the answer that a coin called chosen won: over pairs, mean of the orders, with a 95 % interval."""
    verdicts = np.concatenate([*won])
    pairs = np.nanmean(verdicts[~np.isnan(verdicts).all(1)], axis=1)
    half = 1.96 * pairs.std(ddof=1) / np.sqrt(len(pairs))
    return Estimate(float(pairs.mean()), float(pairs.mean() - half), float(pairs.mean() + half))


def shown(won: list[np.ndarray], leaky: bool) -> list[np.ndarray]:
    """Both orders; of a leak only the one in which the pair was shown to the generator."""
    return [one[:, :1] if leaky else one for one in won]


def _nulls(results: Results) -> Iterable[Claim]:
    for index, (name, won) in enumerate(results.nulls.items()):
        leaky = index > 2
        one = share(shown(won, leaky))
        contains = one.low <= 0.5 <= one.high
        claim = f"6 null pairs, {name}: not ½" if leaky else f"5 null pairs, {name}: ½"
        interval = f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]"
        yield Claim(claim, interval, bool(contains != leaky))


def _model(results: Results) -> Iterable[Claim]:
    for other in (BARE, "prompt only", "one step"):
        name = f"7 {MODEL} above {other}, all nine comparisons"
        yield everywhere(name, lambda point, o=other: difference(results, MODEL, o, "accuracy", point), above)
