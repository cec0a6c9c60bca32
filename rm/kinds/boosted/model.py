"""Boosted reward model: a weighted sum of stages, each fitted to the errors of the previous ones."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import expit

from ...contract.scoring_contract import FILE, ScoringContract, load_contract
from ...errors import UNREADABLE, DataError, UsageError
from ...io.checked_files import from_json
from ...load import load_reward_model
from ...losses._pair_losses import finite_gaps
from ...types import OVERALL, Example, PreferencePair, RewardModel, content_hash

SETTINGS = "boosted.json"
Gaps = Float[np.ndarray, " B"]


class BoostedRewardModel:
    """r(x, y) = Σ_m λ_m r_m(x, y), with stages r_m on their own scales; `fitted` sets λ_1 = 1."""

    def __init__(self, stages: Sequence[RewardModel], names: Sequence[str], weights: Sequence[float]):
        objectives = {stage.contract.objectives for stage in stages}
        if len(stages) < 2 or len(objectives) != 1:
            raise UsageError(f"boosting needs two or more stages with the same objectives, got {sorted(objectives)}")
        if len(weights) != len(stages) or not np.isfinite(weights).all():
            raise UsageError(f"{len(stages)} stages need as many finite weights, got {list(weights)}")
        self.members, self.names, self.weights = list(stages), list(names), [float(weight) for weight in weights]
        hashes = [stage.contract.hash() for stage in stages]
        self.contract = ScoringContract(
            kind="boosted", objectives=objectives.pop(), dtype="float64", backbone=content_hash([hashes, self.weights])
        )

    @classmethod
    def fitted(
        cls,
        stages: Sequence[RewardModel],
        names: Sequence[str],
        pairs: Sequence[PreferencePair],
        *,
        objective: str = OVERALL,
        shrink: float = 1e-3,
    ) -> "BoostedRewardModel":
        """Fit the weights stage by stage, to pairs on which no stage was trained; see `stage_weight`."""
        labelled, wins = _labelled_pairs(pairs, objective)
        return cls(stages, names, stage_weights(stage_gaps(stages, labelled), wins, shrink))

    def losses(self, pairs: Sequence[PreferencePair], objective: str = OVERALL) -> list[float]:
        """Return the mean Bradley-Terry loss of the first stage, of the first two, and so on, in nats."""
        labelled, wins = _labelled_pairs(pairs, objective)
        gaps = np.stack(stage_gaps(self.members, labelled)) * np.array(self.weights)[:, None]
        return [float(pair_losses(total, wins).mean()) for total in gaps.cumsum(axis=0)]

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return rewards [N, K]."""
        return sum(
            (weight * stage.rate(examples) for weight, stage in zip(self.weights, self.members, strict=True)),
            np.zeros((len(examples), len(self.contract.objectives))),
        )

    def save(self, folder: Path) -> None:
        """Save the stages' paths, their weights, and the contract, but not the stages."""
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"members": self.names, "weights": self.weights}
        (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        self.contract.save(folder)


def load_boosted(source: str, **options: Any) -> BoostedRewardModel:
    """Load the boosted reward model in a folder."""
    folder = Path(source)
    if not (folder / FILE).exists():
        raise DataError(f"{source}: not a boosted reward model; train one with rewardlab train --kind boosted")
    try:
        saved = from_json((folder / SETTINGS).read_text(encoding="utf-8"))
        names, weights = [str(name) for name in saved["members"]], [float(weight) for weight in saved["weights"]]
    except UNREADABLE as error:
        raise DataError(f"{folder / SETTINGS}: not the settings of a boosted model ({error}); retrain it") from error
    model = BoostedRewardModel([load_reward_model(name, **options) for name in names], names, weights)
    if model.contract != load_contract(folder):
        raise DataError(f"{source}: its stages have changed since it was built; build the model again")
    return model


def _labelled_pairs(pairs: Sequence[PreferencePair], objective: str) -> tuple[list[PreferencePair], Gaps]:
    """Return the pairs that are labelled for the objective, and P(chosen is better) of each."""
    labelled = [pair for pair in pairs if objective in pair.wins]
    if not labelled:
        raise DataError(f"no pair has a label for '{objective}', which the stages' weights are fitted to")
    return labelled, np.array([pair.wins[objective] for pair in labelled])


def stage_gaps(stages: Sequence[RewardModel], pairs: Sequence[PreferencePair]) -> list[Gaps]:
    """Return r(chosen) - r(rejected) of every pair for each stage; a stage has one objective."""
    examples = [example for pair in pairs for example in pair.examples]
    gaps = []
    for number, stage in enumerate(stages, start=1):
        if len(stage.contract.objectives) != 1:
            raise UsageError(f"a stage must have one objective, got {', '.join(stage.contract.objectives)}")
        gaps.append(finite_gaps(stage.rate(examples)[:, 0], pairs, f"stage {number}"))
    return gaps


def stage_weights(gaps: Sequence[Gaps], wins: Gaps, shrink: float) -> list[float]:
    """Return λ_1 = 1, then each stage's weight given the sum of the previous stages."""
    weights, total = [1.0], gaps[0]
    for stage in gaps[1:]:
        weights.append(stage_weight(total, stage, wins, shrink))
        total = total + weights[-1] * stage
    return weights


def stage_weight(before: Gaps, stage: Gaps, wins: Gaps, shrink: float) -> float:
    """Return argmin_{λ >= 0} mean_b -p log σ(Δ + λδ) - (1 - p) log σ(-Δ - λδ) + ½ s λ²

    Δ = `before`, δ = `stage`, p = `wins`; the line search of boosting, Friedman 2001, doi:10.1214/aos/1013203451. s =
    `shrink` > 0 keeps λ finite if a stage orders every pair correctly. λ is 0 if the stage contradicts the labels.
    """
    if not shrink > 0:
        raise ValueError(f"shrink must be above 0, got {shrink}")

    def slope(weight: float) -> float:
        return float(((expit(before + weight * stage) - wins) * stage).mean() + shrink * weight)

    if slope(0.0) >= 0:
        return 0.0
    return float(brentq(slope, 0.0, np.abs(stage).mean() / shrink, xtol=1e-12))


def pair_losses(before: Gaps, wins: Gaps) -> Gaps:
    """Compute -p log σ(Δ) - (1 - p) log σ(-Δ) per pair in nats, with Δ = `before` and p = `wins`."""
    return np.logaddexp(0, -before) * wins + np.logaddexp(0, before) * (1 - wins)
