"""Training of reward models with several heads: a scalar model first, and then heads on its reward token."""

from typing import Any

from ...data.scored_rows import Judged
from ...training.protocol import Prepared, TrainingData
from ..ensemble.combination import parse_rule
from ..scalar.model import ScalarRewardModel
from ..scalar.training import ScalarTraining
from .model import MultiHeadRewardModel, check_body
from .uncertain_heads import HeadFit


class MultiHeadTraining(ScalarTraining):
    """Trains a scalar reward model, and fits heads on it."""

    def build(self, data: Judged, objectives: tuple[str, ...]) -> ScalarRewardModel:
        """Return the classifier, which has a head at its last token."""
        model = super().build(data, objectives)
        check_body(model)
        return model

    def finish(self, prepared: Prepared, data: TrainingData) -> tuple[Any, dict[str, Any]]:
        """Return the trained model with its heads."""
        model, facts = super().finish(prepared, data)
        settings = self.settings
        fit = HeadFit(
            heads=settings.heads,
            form=settings.head_form,
            steps=settings.head_steps,
            learning_rate=settings.head_learning_rate,
            bootstrap=settings.head_bootstrap,
            seed=self.arguments.seed,
        )
        rule = parse_rule(settings.combine)
        return MultiHeadRewardModel.on(model, data.train.pairs, settings.objectives[0], rule, fit), facts
