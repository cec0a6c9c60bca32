"""Creation of ensembles: trained reward models are loaded, and combined by a rule."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...contract.golden_scores import GOLDEN, read_golden
from ...data.pairs import RowReport
from ...data.scored_rows import Judged
from ...errors import UsageError
from ...training.protocol import Prepared, Training, TrainingData
from ...types import Example
from . import EnsembleSettings
from .combination import parse_rule
from .model import load_ensemble


class EnsembleTraining(Training[EnsembleSettings]):
    """Loads the members and checks their golden scores, without training."""

    def read(self, sources: Sequence[str], held_out: Sequence[str]) -> TrainingData:
        """Return empty data; raise `UsageError` if any data are named, since an ensemble is not trained."""
        if sources or held_out:
            raise UsageError("an ensemble combines trained reward models; remove --data and --eval_data")
        return TrainingData(Judged([], []), Judged([], []), RowReport(), RowReport())

    def prepare(self, data: TrainingData) -> Prepared:
        """Return the ensemble; `mean` and `mean_std` are stored as a pessimism λ, as in earlier contracts."""
        rule, source = parse_rule(self.settings.combine), ",".join(self.settings.members)
        if rule.name in ("mean", "mean_std"):
            model = load_ensemble(source, pessimism=rule.arguments.get("weight", 0.0), **self.options)
        else:
            model = load_ensemble(source, rule=rule, **self.options)
        return Prepared(model, facts={"members": model.names})

    def golden_examples(self, model: Any, data: TrainingData, number: int) -> list[Example]:
        """Return the golden examples of the first member; empty if it has no golden scores."""
        first = Path(self.settings.members[0])
        return read_golden(first)[0][:number] if (first / GOLDEN).exists() else []

    def summary(self, model: Any, data: TrainingData, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of members."""
        return {"members": len(model.members)}
