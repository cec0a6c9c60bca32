"""Training of embedding reward models: a convex fit on the embeddings of a frozen encoder."""

from typing import Any

from ...data.scored_rows import Judged
from ..linear.training import FittedTraining
from .model import new_embedding


class EmbeddingTraining(FittedTraining):
    """Fits a linear head on the embeddings of a frozen encoder."""

    def new_model(self) -> Any:
        """Return an unfitted model with the encoder."""
        settings = self.settings
        limit = {"max_length": settings.max_length} if settings.max_length else {}
        return new_embedding(settings.model, dtype=settings.dtype, **limit, **self.options)

    def facts(self, model: Any, data: Judged) -> dict[str, Any]:
        """Return the number of sequences that are longer than the encoder's maximum length."""
        over = model.over_length([example for pair in data.pairs for example in pair.examples])
        if over:
            sequences, limit = 2 * len(data.pairs), model.contract.max_length
            self.report(f"data: {over} of {sequences} sequences exceed {limit} tokens and are truncated at the start")
        return {"over_length": over}
