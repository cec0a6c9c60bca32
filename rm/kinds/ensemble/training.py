"""Making of ensembles: trained reward models are opened, and combined by a rule."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...contract.golden_scores import GOLDEN, read_golden
from ...data.pairs import RowReport
from ...data.scored_rows import Judged
from ...errors import UsageError
from ...training.protocol import Prepared, Training, TrainingData
from ...types import Example
from .model import load_ensemble
from .settings import EnsembleSettings, combination


class EnsembleTraining(Training[EnsembleSettings]):
    """Opens the members and checks their golden scores; nothing is trained."""

    def read(self, sources: Sequence[str], held_out: Sequence[str]) -> TrainingData:
        """Refuse data."""
        if sources or held_out:
            raise UsageError(
                "an ensemble is made of reward models that are trained already; leave --data and --eval_data out"
            )
        return TrainingData(Judged([], []), Judged([], []), RowReport(), RowReport())

    def prepare(self, data: TrainingData) -> Prepared:
        """Return the ensemble; mean and mean - λ std are a pessimism of λ, so that contracts stay the same."""
        rule, source = combination(self.settings.combine), ",".join(self.settings.members)
        if rule.name in ("mean", "mean_std"):
            model = load_ensemble(source, pessimism=rule.arguments.get("weight", 0.0), **self.options)
        else:
            model = load_ensemble(source, rule=rule, **self.options)
        return Prepared(model, facts={"members": model.names})

    def golden_examples(self, model: Any, data: TrainingData, number: int) -> list[Example]:
        """Return the golden examples of the first member; none if it has none."""
        first = Path(self.settings.members[0])
        return read_golden(first)[0][:number] if (first / GOLDEN).exists() else []

    def summary(self, model: Any, data: TrainingData, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of members."""
        return {"members": len(model.members)}
