"""Training of boosted reward models: weights of trained stages, fitted in order on pairs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...load import load_reward_model
from ...training.protocol import Prepared, TrainingData
from .._training import PairTraining
from . import BoostedSettings
from .model import BoostedRewardModel


class BoostedTraining(PairTraining):
    """Fits the weights of trained stages in order."""

    settings: BoostedSettings

    def prepare(self, data: TrainingData) -> Prepared:
        """Return the boosted model, with the weight of each stage and the loss after each stage."""
        (objective,), pairs = self.settings.objectives, data.train.pairs
        names = [str(Path(name).resolve()) if Path(name).exists() else name for name in self.settings.members]
        stages = [load_reward_model(name, **self.options) for name in names]
        model = BoostedRewardModel.fitted(stages, names, pairs, objective=objective)
        facts = {"weights": dict(zip(names, model.weights, strict=True)), "losses": model.losses(pairs, objective)}
        return Prepared(model, facts=facts | {"encoding": self.count_labels(pairs, objective)})

    def summary(self, model: Any, data: TrainingData, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the numbers of stages and pairs, the weights and the losses."""
        numbers = {"members": len(self.settings.members), "pairs": len(data.train.pairs)}
        return numbers | {"weights": model.weights, "losses": facts["losses"]}
