"""Construction of an `Algorithm` from the names of its formulas."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from ...kernels.policy_loss import ClipRule
from ...rm.errors import UsageError
from ...rm.registry.specs import accepts_argument, build, parse_spec, signatures
from ..losses._kinds import CompletionLossInputs, TokenLoss
from ..types import AdvantageEstimator, Transform
from .algorithm import Algorithm, Penalty
from .check import RunInputs, check_composition


class AlgorithmSettings(Protocol):
    """Settings of an algorithm: names of its formulas, such as `ppo(epsilon=0.1)`, and numeric coefficients."""

    advantage: str
    loss: str
    aggregation: str
    reward_transform: Sequence[str]
    advantage_transform: Sequence[str]
    scheduler: str | None
    weight: Sequence[str]
    """Weights of reward components as NAME=NUMBER. Components that are not named have weight 1."""
    kl: float
    kl_place: str
    kl_kind: str | None
    kl_corrected: bool
    entropy: float
    on_missing: str
    agents: int
    """Number of agents, for formulas that distinguish them."""


def build_algorithm(settings: AlgorithmSettings, components: Sequence[str]) -> Algorithm:
    """Build the algorithm from the named formulas and the weights of the reward components."""
    shares = _shares(settings, components)
    apart = accepts_argument("policy.advantages", settings.advantage, "weights")
    on_missing, _ = _missing_reward_rule(settings, separate=apart)
    kind = settings.kl_kind or ("k3" if settings.kl_place == "loss" else "k1")
    try:
        return Algorithm(
            _estimator(settings, shares, separate=apart),
            _rule(settings.loss, settings.agents),
            build("policy.aggregations", settings.aggregation),
            shares=shares,
            apart=apart,
            on_missing=on_missing,
            penalty=Penalty(settings.kl, settings.kl_place, kind, settings.kl_corrected),
            entropy=settings.entropy,
            reward_transforms=_transforms(settings.reward_transform, settings.agents),
            advantage_transforms=_transforms(settings.advantage_transform, settings.agents),
            scheduler=build("policy.schedulers", settings.scheduler) if settings.scheduler else None,
            formulas={
                "advantage": settings.advantage,
                "rule": settings.loss,
                "aggregation": settings.aggregation,
                "scheduler": settings.scheduler or "",
            },
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def with_components(algorithm: Algorithm, settings: AlgorithmSettings, components: Sequence[str]) -> Algorithm:
    """Return the algorithm with weights for the components of all reward sources. A source may have several."""
    shares = _shares(settings, components)
    if [*shares.items()] == [*algorithm.shares.items()]:
        return algorithm
    try:
        advantage = _estimator(settings, shares, separate=True) if algorithm.apart else algorithm.advantage
        return replace(algorithm, shares=shares, advantage=advantage)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _estimator(settings: AlgorithmSettings, shares: Mapping[str, float], *, separate: bool) -> AdvantageEstimator:
    """Return the advantage estimator. With `separate`, the estimator also gets the weights of the reward components."""
    weights = {"weights": [share for share in shares.values() if share]} if separate and settings.weight else {}
    return build(
        "policy.advantages", settings.advantage, **weights, **_missing_reward_rule(settings, separate=separate)[1]
    )


def _missing_reward_rule(settings: AlgorithmSettings, *, separate: bool) -> tuple[str, dict[str, bool]]:
    """Return `Algorithm.on_missing` and the argument `partial` of the estimator.

    If the estimator gets the components separately and has no argument `partial`, as `laser`, it requires all of them.
    """
    if not separate:
        return settings.on_missing, {}
    if accepts_argument("policy.advantages", settings.advantage, "partial"):
        return settings.on_missing, {"partial": settings.on_missing != "strict"}
    if settings.on_missing == "sum":
        raise UsageError(
            f"--advantage {settings.advantage} needs all rewards of a completion, so there is no sum of those that it "
            "has; leave --on_missing out"
        )
    return "strict", {}


def _shares(settings: AlgorithmSettings, components: Sequence[str]) -> dict[str, float]:
    shares = dict.fromkeys(components, 1.0)
    for text in settings.weight:
        name, _, number = text.rpartition("=")
        try:
            shares[name] = float(number)
        except ValueError as error:
            raise UsageError(f"--weight is NAME=number, got '{text}'") from error
        if not math.isfinite(shares[name]):
            raise UsageError(f"--weight is NAME=number, a finite one, got '{text}'")
    return shares


def _build_formula(folder: str, text: str, agents: int) -> Any:
    """Build a formula from its text. A formula with a parameter `agents` gets the number of agents."""
    return build(folder, text, **({"agents": agents} if accepts_argument(folder, text, "agents") else {}))


def _rule(text: str, agents: int) -> Any:
    rule = _build_formula("policy.losses", text, agents)
    if isinstance(rule, ClipRule | TokenLoss):
        return rule
    more = signatures("policy.losses") if ":" in text else ""
    column, index = torch.tensor([-1.0, -2.0, -1.0, -2.0]), torch.arange(4)
    try:
        loss = rule(CompletionLossInputs(column, column, column, index // 2, index + 1, index % 2, size=2, base=column))
    except Exception as error:  # user functions raise arbitrary errors
        raise UsageError(
            f"--loss {text} is neither a clip rule nor a loss of whole completions ({error}){more}"
        ) from error
    if not (isinstance(loss, torch.Tensor) and loss.shape == (4,)):
        raise UsageError(
            f"--loss {text} is neither a clip rule nor a loss of whole completions: it returns {loss!r} for four{more}"
        )
    return rule


def _transforms(texts: Sequence[str], agents: int) -> dict[str, Transform]:
    """Return the transforms by name. A second transform of the same name is called `name_2`."""
    transforms: dict[str, Transform] = {}
    for text in texts:
        transform, short = _build_formula("policy.transforms", text, agents), parse_spec(text).short
        if not isinstance(transform, Transform):
            raise UsageError(f"{text} returns {transform!r}, not a policy.types.Transform")
        often = 1 + sum(name.rpartition("_")[0] == short or name == short for name in transforms)
        transforms[short if often == 1 else f"{short}_{often}"] = transform
    return transforms


def check_formulas(algorithm: Algorithm, sizes: Sequence[int], fields: Collection[str]) -> None:
    """Check the formulas that do not depend on the reward components, before reward models are loaded."""
    if not algorithm.apart:
        bare = replace(algorithm, shares={}, reward_transforms={})
        check_composition(bare, RunInputs(("reward",), sizes, fields))
