"""Routing by a small sequence classifier, trained on labels or on the decisions of a guideline."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....rm.errors import DataError
from ....rm.types import Example, content_hash
from .features import REWARDS, CaseFeatures, describe_features
from .rule import Need, save_rule

if TYPE_CHECKING:
    from ....rm.kinds.scalar.model import ScalarRewardModel
    from ....rm.training.trainer import RewardArguments


class Distilled:
    """Estimate p = P(the strong judge is needed) with a sequence classifier r(prompt, metadata), clipped to [0, 1].

    Training minimises E (r - z)², the Brier score, so that r estimates P(z = 1). The targets z are labels
    (`strong_needed`), or the decisions of a guideline, which are thereby distilled (Pre-Route, arXiv:2605.10235). The
    classifier is a scalar reward model that reads the metadata as the completion.
    """

    name = "distilled"

    def __init__(self, model: "ScalarRewardModel", needs: Sequence[str] = ()):
        from ....rm.backbones.loading import fingerprint

        self.model, self.needs = model, tuple(needs)
        self.contract = content_hash(["distilled", model.contract.hash(), fingerprint(model.model), self.needs])

    def __call__(self, features: Sequence[CaseFeatures]) -> list[Need]:
        """Return the probabilities. If a case lacks a feature that the training cases had, its probability is NaN."""
        probabilities = self.outputs(features)[:, 0].clip(0, 1)
        return [self._need(each, float(p)) for each, p in zip(features, probabilities, strict=True)]

    def outputs(self, features: Sequence[CaseFeatures]) -> np.ndarray:
        """Return the classifier's outputs [N, K]. The first one is the probability before clipping."""
        return self.model.rate([metadata_example(each) for each in features])

    def _need(self, features: CaseFeatures, probability: float) -> Need:
        if missing := [name for name in self.needs if name not in features.rewards]:
            return Need(float("nan"), f"The case has no {missing[0]}.")
        return Need(probability, f"A small classifier predicts {probability:.2f} from the prompt and its metadata.")

    def save(self, folder: Path) -> None:
        """Save the classifier as a reward model, and the settings of the rule."""
        self.model.save(folder)
        save_rule(folder, self.name, {"needs": self.needs})


def metadata_example(features: CaseFeatures) -> Example:
    """Return the classifier's input: the prompt, with the metadata as its completion."""
    return Example(features.case.prompt, describe_features(features))


def distil(
    model: "ScalarRewardModel", features: Sequence[CaseFeatures], targets: np.ndarray, arguments: "RewardArguments"
) -> Distilled:
    """Train a classifier on targets z [N], or [N, K] for K outputs, in [0, 1]. NaN is an unknown target.

    `arguments.per_device_train_batch_size` counts cases. Raise `DataError` if only some cases have a margin or a
    spread.
    """
    from ....rm.data.scored_rows import ScoredCompletion
    from ....rm.kinds.multi_objective.training import ObjectivesTask, encode_scored
    from ....rm.losses.bradley_terry import bradley_terry
    from ....rm.training.trainer import RewardTrainer

    names = model.contract.objectives
    rated = [
        ScoredCompletion(str(index), metadata_example(each), dict(zip(names, np.atleast_1d(target), strict=True)))
        for index, (each, target) in enumerate(zip(features, targets, strict=True))
    ]
    task = ObjectivesTask({name: bradley_terry() for name in names})
    rows = encode_scored(model.encoder, rated, names).rows
    task.check(rows)
    needs = _known_rewards(features)
    RewardTrainer(model, arguments, task, rows).train()
    return Distilled(model, needs)


def _known_rewards(features: Sequence[CaseFeatures]) -> list[str]:
    """Return the reward features, `margin` and `spread`, that all cases have."""
    counts = {name: sum(name in each.rewards for each in features) for name in REWARDS}
    if partly := [name for name, count in counts.items() if 0 < count < len(features)]:
        raise DataError(
            f"only {counts[partly[0]]} of {len(features)} cases have a {partly[0]}; leave out the other cases, or the "
            "reward model"
        )
    return [name for name, count in counts.items() if count]


def load_distilled(folder: Path, settings: Mapping[str, Any], *, trust_remote_code: bool = False) -> Distilled:
    """Load a saved classifier."""
    from ....rm.kinds.scalar.model import load_scalar

    needs = settings.get("needs")
    if not isinstance(needs, list) or {*needs} - {*REWARDS}:
        raise DataError(
            f"{folder}: 'needs' must be a list of {', '.join(REWARDS)}, got {needs!r}; train the rule again"
        )
    return Distilled(load_scalar(str(folder), trust_remote_code=trust_remote_code), needs)
