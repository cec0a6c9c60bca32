"""Retrieval encoders of the study: small, from random weights, trained on the texts of a training split."""

import io
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace

import numpy as np
from transformers.utils import logging

from ....judges.retrieval.encoder import FacetEncoder, new_encoder
from ....judges.retrieval.settings import EncoderSettings
from ....judges.retrieval.training import RetrieverArguments, RetrieverTrainer, TextPair, joint_rows

FACETS, MEAN, WHOLE_TEXT, UNTRAINED = "facets", "mean pooling", "no aggregation", "untrained facets"


@dataclass(frozen=True)
class Training:
    """Sizes of the encoder and of its training; all arms have the same."""

    steps: int = 40
    batch: int = 24
    learning_rate: float = 3e-3
    case_weight: float = 0.3
    hidden: int = 64
    facets: int = 4
    width: int = 32
    """Of each facet vector; the vector of mean pooling has as many numbers as all facet vectors together."""
    max_length: int = 128

    def settings(self, arm: str) -> EncoderSettings:
        """Return the encoder's settings of an arm."""
        settings = EncoderSettings(facets=self.facets, width=self.width, max_length=self.max_length)
        if arm == MEAN:
            return replace(settings, pooling="mean", width=self.facets * self.width)
        return replace(settings, granularities=("text",)) if arm == WHOLE_TEXT else settings

    def encoder(self, arm: str, questions: Sequence[TextPair], cases: Sequence[TextPair], seed: int) -> FacetEncoder:
        """Return the encoder of an arm, trained on the pairs unless the arm is `UNTRAINED`."""
        texts = sorted({text for pair in (*questions, *cases) for text in (pair.first, pair.second)})
        encoder = new_encoder(self.settings(arm), None, texts, seed=seed, hidden=self.hidden, layers=1)
        if arm != UNTRAINED:
            self._train(encoder, questions, cases, seed)
        return encoder

    def _train(
        self, encoder: FacetEncoder, questions: Sequence[TextPair], cases: Sequence[TextPair], seed: int
    ) -> None:
        logging.set_verbosity_error()
        with tempfile.TemporaryDirectory() as folder:
            arguments = RetrieverArguments(
                output_dir=folder,
                max_steps=self.steps,
                per_device_train_batch_size=self.batch,
                learning_rate=self.learning_rate,
                case_weight=self.case_weight,
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                use_cpu=True,
                seed=seed,
            )
            trainer = RetrieverTrainer(encoder, arguments, joint_rows(questions, cases, self.case_weight, seed))
            with redirect_stdout(io.StringIO()):  # the trainer prints its metrics
                trainer.train()


def measured(values: dict[str, float]) -> dict[str, np.ndarray]:
    """Return numbers as the arrays of a job's result."""
    return {name: np.array(value) for name, value in values.items()}
