"""Training of linear reward models, and base class of convex fits on fixed features."""

from abc import abstractmethod
from typing import Any

from ...data.scored_rows import Judged
from ...training.learning_signal import check_fitted
from ...training.protocol import Prepared, TrainingData
from .._training import PairTraining
from .model import new_linear


class FittedTraining(PairTraining):
    """Fits the weights of fixed features to pairs."""

    settings: Any

    def prepare(self, data: TrainingData) -> Prepared:
        """Return the fitted model."""
        (objective,), pairs = self.settings.objectives, data.train.pairs
        counts = self.count_labels(pairs, objective)
        strength = self.settings.inverse_regularization
        model = self.new_model().fit(pairs, objective=objective, **({"C": strength} if strength else {}))
        check_fitted(model.weights, model.contract.kind)
        return Prepared(model, facts={"encoding": counts} | self.facts(model, data.train))

    @abstractmethod
    def new_model(self) -> Any:
        """Return the unfitted model."""

    def facts(self, model: Any, data: Judged) -> dict[str, Any]:
        """Return further entries for the manifest."""
        return {}


class LinearTraining(FittedTraining):
    """Fits a linear reward model on words and length."""

    def new_model(self) -> Any:
        """Return an unfitted linear reward model."""
        return new_linear()
