"""Training of length reward models: the sign of the weight is that of most pairs."""

from ...training.protocol import Prepared
from .._training import PairTraining
from .model import LengthRewardModel


class LengthTraining(PairTraining):
    """Chooses the weight -1 or 1."""

    def prepare(self, data):
        """Return the model."""
        longer = sum(len(pair.chosen) > len(pair.rejected) for pair in data.train.pairs)
        weight = 1.0 if 2 * longer > len(data.train.pairs) else -1.0
        return Prepared(LengthRewardModel(weight, self.settings.power), facts={"weights": weight})
