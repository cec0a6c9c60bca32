"""Audit of a judge with attacks: measures of its biases, with intervals."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...rm.errors import DataError, UsageError
from ..judge import POINTWISE_KINDS, Judging
from ..kinds.reward_model import RewardScorer
from ..types import BatchJudge, Case, Judgment
from . import measures
from .agreement import cohen_kappa, krippendorff_alpha
from .attacks import ATTACKS, Attack
from .confidence_intervals import Estimate, estimate, mean_estimate
from .plan import AS_GIVEN, MASKED, SIGNED, SWAPPED, TIES, TWINS, AuditPlan, Names, plan

Chance = Callable[[float, float], float]
"""Function that maps two scores to the P(first is better) that they imply."""
BOTH_WAYS = (-1.0, 1.0)
LEAST_LOSSES = 10
"""Minimum number of losses, and of wins, for a slope.

With fewer, logistic regression is biased (Peduzzi et al. 1996).
"""


class Attacked(NamedTuple):
    """Win rates of the wrong response against the right one, without and with an attack. A tie counts one half."""

    before: Estimate
    after: Estimate
    gain: Estimate
    """Win rate with the attack minus win rate without, over the pairs that have both verdicts."""
    replaces: bool


@dataclass(frozen=True)
class Audit:
    """Measures of a judge. Abstentions are counted separately and left out of the measures."""

    judge: str
    contract: str
    pairs: int
    ties: int
    clusters: int
    figures: Mapping[str, Estimate]
    """Figures by name. `report.FIGURES` explains each."""
    attacks: Mapping[str, Attacked]
    bounds: tuple[float, float]
    """Bounds of the accuracy, with all abstentions counted as wrong and as right."""
    asked: Mapping[str, int]
    """Number of judgments by probe."""
    unanswered: Mapping[str, Mapping[str, int]]
    """Number of abstentions by probe and reason."""
    tokens: tuple[int, int]
    cost: float
    estimated: int
    """Number of requests whose tokens and cost are upper bounds."""
    samples: int
    seed: int
    names: Names | None = None
    """Author names for the measure of self-preference."""


def check_chance(name: str | None, judges: Sequence[BatchJudge]) -> None:
    """Raise a `UsageError`, before any request, if the judges' scores cannot be shares that sum to 1."""
    for judge in judges if name == "shares" else ():
        kind = judge.settings["kind"] if isinstance(judge, Judging) else ""
        if kind in POINTWISE_KINDS or isinstance(judge, RewardScorer):
            raise UsageError(
                f"--chance shares: the scores of {judge.name} do not sum to 1; use bradley_terry, or remove this option"
            )


def chance_of(name: str) -> Chance:
    """Return `measures.shares` or `measures.bradley_terry`, changed to raise a `UsageError` for invalid scores."""
    convert = measures.shares if name == "shares" else measures.bradley_terry

    def chance(first: float, second: float) -> float:
        try:
            return convert(first, second)
        except ValueError as error:
            raise UsageError(f"--chance {name}: {error}; use another value, or remove this option") from error

    return chance


def probes(cases: Sequence[Case], names: Names | None, seed: int) -> list[Sequence[Case]]:
    """Return the cases of all probes of an audit with the default attacks."""
    return [*plan(cases, ATTACKS, names, seed).probes.values()]


def audit(
    judge: BatchJudge,
    cases: Sequence[Case],
    *,
    attacks: Mapping[str, Attack] = ATTACKS,
    names: Names | None = None,
    chance: Chance | None = None,
    samples: int = 1000,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Judge every probe of `plan`, in one call each, and compute the measures.

    `names` adds self-preference, measured by signatures, and also by authors if the cases state them.
    `chance` converts scores to a probability: `shares` or `bradley_terry`. Without it, calibration is not measured.
    """
    planned = plan(cases, attacks, names, seed)
    judged = {}
    for probe, probe_cases in planned.probes.items():
        progress(f"{probe}: {len(probe_cases)} judgments")
        judged[probe] = judge(probe_cases)
        if len(judged[probe]) != len(probe_cases):
            raise DataError(f"{judge.name} gave {len(judged[probe])} judgments for {len(probe_cases)} cases")
        if probe == AS_GIVEN and chance:  # scores that claim no chance are refused before the other probes are asked
            _claimed_probabilities(planned, judged[probe], chance)
    return measure(planned, judged, judge=judge, chance=chance, samples=samples, seed=seed)


def measure(
    planned: AuditPlan,
    judged: Mapping[str, Sequence[Judgment]],
    *,
    judge: BatchJudge,
    chance: Chance | None = None,
    samples: int = 1000,
    seed: int = 0,
) -> Audit:
    """Compute the audit from the judgments of every probe. All intervals use the same bootstrap samples of clusters."""
    clusters = _clusters(planned.pairs)
    mean = partial(mean_estimate, clusters=clusters, samples=samples, seed=seed)
    over_pairs = partial(estimate, clusters=clusters, samples=samples, seed=seed)
    attacks = _attack_results(planned, judged, mean)
    figures = {
        **_verdict_figures(planned, judged, mean, samples, seed),
        **_slopes(planned, judged, over_pairs),
        **_self_preference(planned, judged, mean),
        **(_calibration(planned, judged[AS_GIVEN], chance, mean, over_pairs) if chance else {}),
        **{
            figure_of(name, attacked.replaces): attacked.after if attacked.replaces else attacked.gain
            for name, attacked in attacks.items()
        },
    }
    every = [judgment for of_probe in judged.values() for judgment in of_probe]
    return Audit(
        judge=judge.name,
        contract=judge.contract,
        pairs=len(planned.pairs),
        ties=len(planned.ties),
        clusters=len(np.unique(clusters)),
        figures=figures,
        attacks=attacks,
        bounds=measures.bounds(measures.credits(judged[AS_GIVEN], planned.right)),
        asked={probe: len(of_probe) for probe, of_probe in judged.items()},
        unanswered={
            probe: dict(Counter(judgment.reason for judgment in of_probe if judgment.abstained).most_common())
            for probe, of_probe in judged.items()
        },
        tokens=(sum(judgment.tokens[0] for judgment in every), sum(judgment.tokens[1] for judgment in every)),
        cost=sum(judgment.cost for judgment in every),
        estimated=sum(judgment.estimated for judgment in every),
        samples=samples,
        seed=seed,
        names=planned.names,
    )


def figure_of(attack: str, replaces: bool) -> str:
    """Return the name of an attack's figure: `wins of ...` if it replaces the response, else `gain from ...`."""
    return f"wins of {attack}" if replaces else f"gain from {attack}"


def _clusters(cases: Sequence[Case]) -> np.ndarray:
    return np.array([case.cluster or case.id for case in cases])


def _verdict_figures(
    planned: AuditPlan, judged: Mapping, mean: Callable, samples: int, seed: int
) -> dict[str, Estimate]:
    """Estimate coverage, accuracy, effects of the order, agreement with the labels, and accuracy without the prompt."""
    straight, crossed = judged[AS_GIVEN], judged[SWAPPED]
    won, blind = measures.credits(straight, planned.right), measures.credits(judged[MASKED], planned.right)
    unlabelled = np.concatenate([measures.first_slot(judged[TWINS]), measures.first_slot(judged.get(TIES, []))])
    ratings = measures.labels([*planned.pairs, *planned.ties]), measures.verdicts([*straight, *judged.get(TIES, [])])
    everywhere = _clusters([*planned.pairs, *planned.ties])
    over_all = partial(
        estimate, clusters=everywhere, valid=~np.isnan(ratings[1]), ends=BOTH_WAYS, samples=samples, seed=seed
    )
    return {
        "coverage": mean((~np.isnan(won)).astype(float)),
        "accuracy": mean(won),
        "ties": mean(np.where(np.isnan(won), np.nan, won == 0.5)),
        "order flips": mean(measures.order_flips(straight, crossed)),
        "first slot": mean(measures.first_slots(straight, crossed)),
        "first slot of equals": mean_estimate(unlabelled, everywhere, samples=samples, seed=seed),
        "kappa": over_all(lambda indices: cohen_kappa(ratings[0][indices], ratings[1][indices])),
        "alpha": over_all(lambda indices: krippendorff_alpha(np.stack(ratings)[:, indices])),
        "accuracy without the question": mean(blind),
        "reading": mean(won - blind, ends=BOTH_WAYS),
    }


def _slopes(planned: AuditPlan, judged: Mapping, over_pairs: Callable) -> dict[str, Estimate]:
    """Estimate the effects of length and, if authors are known, of the judge's authorship on the log-odds of a win."""
    won = measures.credits(judged[AS_GIVEN], planned.right)
    of_pairs = {"length slope": measures.doublings(planned.pairs, planned.right)}
    if planned.names is not None and any(pair.authors for pair in planned.pairs):
        of_pairs["authorship slope"] = _authorship(planned, planned.names.own)

    def slope(x: np.ndarray) -> Estimate:
        valid = ~(np.isnan(won) | np.isnan(x))
        if min(won[valid].sum(), (1 - won[valid]).sum()) < LEAST_LOSSES:
            return Estimate(np.nan, np.nan, np.nan, int(valid.sum()))
        return over_pairs(lambda indices: measures.logistic_slope(won[indices], x[indices]), valid=valid)

    return {name: slope(x) for name, x in of_pairs.items()}


def _authorship(planned: AuditPlan, author_name: str) -> np.ndarray:
    """Return 1 if the judge's model wrote only the right response, -1 if only the wrong one, else 0. NaN if unknown."""
    wrote = [[author == author_name for author in pair.authors] or [np.nan, np.nan] for pair in planned.pairs]
    return np.array([pair[right] - pair[1 - right] for pair, right in zip(wrote, planned.right, strict=True)], float)


def _self_preference(planned: AuditPlan, judged: Mapping, mean: Callable) -> dict[str, Estimate]:
    """Estimate self-preference by signing responses with the judge's model and with another one.

    The estimate is the wrong response's gain in credit from the judge's signature, relative to the reversed signatures.
    """
    if planned.names is None:
        return {}
    own_credits, other = (measures.credits(judged[probe], planned.wrong) for probe in SIGNED)
    return {"self-preference": mean(own_credits - other, ends=BOTH_WAYS)}


def _calibration(
    planned: AuditPlan, judgments: Sequence[Judgment], chance: Chance, mean: Callable, over_pairs: Callable
) -> dict[str, Estimate]:
    claimed = _claimed_probabilities(planned, judgments, chance)
    error = partial(over_pairs, valid=~np.isnan(claimed), ends=(0.0, 1.0))
    return {
        "overconfidence": mean(measures.overconfidence(claimed), ends=BOTH_WAYS),
        "calibration error": error(lambda indices: measures.calibration_error(claimed[indices])),
    }


def _claimed_probabilities(planned: AuditPlan, judgments: Sequence[Judgment], chance: Chance) -> np.ndarray:
    """Return the claimed probability of each pair's right response [M]. NaN for an abstention."""
    return np.array(
        [
            np.nan if judgment.abstained else chance(judgment.scores[right], judgment.scores[1 - right])
            for judgment, right in zip(judgments, planned.right, strict=True)
        ],
        float,
    )


def _attack_results(planned: AuditPlan, judged: Mapping, mean: Callable) -> dict[str, Attacked]:
    before = measures.credits(judged[AS_GIVEN], planned.wrong)
    after = {name: measures.credits(judged[name], planned.wrong) for name in planned.attacks}
    return {
        name: Attacked(
            mean(before), mean(after[name]), mean(after[name] - before, ends=BOTH_WAYS), planned.attacks[name].replaces
        )
        for name in after
    }


def facts(audit: Audit) -> dict[str, Any]:
    """Return the audit as a dictionary of its fields. Measures without data are NaN."""
    return {name: _as_json(value) for name, value in vars(audit).items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, Attacked | Estimate | Names):
        value = value._asdict()
    return {key: _as_json(part) for key, part in value.items()} if isinstance(value, Mapping) else value
