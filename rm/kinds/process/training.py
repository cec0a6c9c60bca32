"""Training of process reward models: binary cross-entropy where steps end."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import EvalPrediction

from ...backbones.tokenization import pad
from ...data.pairs import RowReport
from ...data.scored_rows import Judged
from ...data.solutions import Solution, load_solutions
from ...errors import DataError
from ...training.encoding import Encoding, OnLong, encode_each
from ...training.protocol import Prepared, Task, TrainingData
from ...types import Example, message_text
from .._training import ClassifierTraining
from . import ProcessSettings, neutral_label
from .model import ProcessRewardModel, load_process, process_from_config
from .step_encoding import EncodedSteps, StepEncoder, token_outputs

NAN = float("nan")


class SolutionRow(NamedTuple):
    """A tokenised solution: token ids, and the end index and label of every step that is not truncated."""

    ids: list[int]
    ends: tuple[int, ...]
    labels: tuple[float, ...]


def encode_solutions(encoder: StepEncoder, solutions: Sequence[Solution], on_long: OnLong = "truncate") -> Encoding:
    """Tokenise labelled solutions, in order. Solutions without a labelled step after truncation are dropped."""
    encoded = encoder.encode_steps([solution.example(encoder.separator) for solution in solutions])
    limit = encoder.contract.max_length

    def row(solution: Solution, encoded: EncodedSteps) -> SolutionRow | None:
        unread = sum(end < len(encoded.ids) for end in encoded.ends)
        labels = solution.labels[:unread]
        return None if np.isnan(labels).all() else SolutionRow(encoded.ids, encoded.ends[:unread], labels)

    encoding = encode_each(solutions, encoded, row, noun="solution", limit=limit, on_long=on_long)
    if not encoding.rows:
        raise DataError(
            f"none of {len(solutions)} solutions is left to train on: {encoding.over_length} over {limit} tokens, "
            f"{encoding.unlabelled} without a labelled step within them; raise --max_length"
        )
    return encoding


class ProcessTask(Task):
    """L = mean of -y log σ(z) - (1 - y) log σ(-z) over all labelled steps t of all solutions n, in nats

    z is the model's output at the end of step t of solution n, y in [0, 1] the step's label. Uesato et al. 2022
    (arXiv:2211.14275), Lightman et al. 2023 (arXiv:2305.20050); soft labels as in Math-Shepherd (arXiv:2312.08935).
    """

    def collate(self, rows: Sequence[SolutionRow]) -> dict[str, Tensor]:
        """Collate rows into a batch. Rows with fewer steps are padded with unlabelled steps."""
        batch = pad([row.ids for row in rows])
        steps = max(len(row.ends) for row in rows)
        ends = torch.zeros(len(rows), steps, dtype=torch.long)
        stated = torch.full((len(rows), steps), NAN)
        for index, row in enumerate(rows):
            ends[index, : len(row.ends)] = torch.tensor(row.ends)
            stated[index, : len(row.ends)] = torch.tensor(row.labels)
        return {"tokens": batch.tokens, "attention": batch.attention, "ends": ends, "stated": stated}

    def items(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the number of labelled steps."""
        return (~inputs["stated"].isnan()).sum()

    def loss(self, model: Any, inputs: dict[str, Tensor], step: int = 0) -> tuple[Tensor, Tensor]:
        """Return the mean loss over labelled steps, and logits of the steps [B, S]."""
        outputs = token_outputs(model, inputs["tokens"], inputs["attention"])[..., 0].float()
        logits, labels = outputs.gather(1, inputs["ends"]), inputs["stated"]
        labelled = ~labels.isnan()
        losses = binary_cross_entropy_with_logits(logits[labelled], labels[labelled], reduction="sum")
        return losses / labelled.sum().clamp_min(1), logits

    evaluate = loss

    def labelled_gaps(self, outputs: Tensor, inputs: dict[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """Return the logits of the steps and their labels."""
        return outputs, inputs["stated"]

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Compute the loss, the accuracy on labelled steps, and the share of first errors found, at a threshold of 1/2.

        Computed over all labelled steps at once, not per batch; a first error is the first step with P(correct) < 1/2.
        """
        logits, labels = np.asarray(prediction.predictions, float), np.asarray(prediction.label_ids, float)
        labelled = labels >= 0  # unlabelled are NaN, and what the Trainer pads with
        decided, wrong = labelled & (labels != 0.5), labelled & (labels < 0.5)
        predicted = labelled & (logits < 0)
        return {
            "loss": float((np.logaddexp(0, logits) - labels * logits)[labelled].mean()),
            "accuracy": float((predicted == wrong)[decided].mean()) if decided.any() else NAN,
            "first_error_accuracy": float((_first_index(predicted) == _first_index(wrong)).mean()),
        }


def _first_index(marks: Bool[np.ndarray, "N S"]) -> np.ndarray:
    """Return the index of the first True of each row; -1 for rows without one."""
    return np.where(marks.any(axis=1), marks.argmax(axis=1), -1)


class ProcessTraining(ClassifierTraining):
    """Trains a token classifier on solutions with labelled steps."""

    settings: ProcessSettings
    summary_prefixes = (*ClassifierTraining.summary_prefixes, "eval_first_error")

    def load_rows(self, sources: Sequence[str]) -> tuple[Judged, RowReport]:
        """Load the solutions of all sources."""
        if not sources:
            return Judged([], []), RowReport()
        solutions, rows = load_solutions(sources, neutral=neutral_label(self.settings.neutral), on_bad_row="skip")
        return Judged([], [], solutions), rows

    def prepare(self, data: TrainingData) -> Prepared:
        """Return a token classifier, the rows of the solutions, and counts of labels."""
        solutions, held = data.train.solutions, data.held_out.solutions
        model = self.build(solutions)
        encode = partial(encode_solutions, model.encoder, on_long=self.settings.on_long)
        encoding = encode(solutions)
        self.report(f"the first sequence reads: {model.encoder.tokenizer.decode(encoding.rows[0].ids)[:300]!r}")
        self.log_encoding("data", encoding, "solutions")
        eval_rows = self.log_encoding("eval_data", encode(held), "solutions").rows if held else None
        return Prepared(model, ProcessTask(), encoding, eval_rows, {"labels": self._counts(solutions, model)})

    def build(self, solutions: Sequence[Solution]) -> ProcessRewardModel:
        """Return the named backbone with a new head at every token, or a small causal LM from scratch."""
        settings = self.settings
        options: dict[str, Any] = {name: vars(settings)[name] for name in ("step_separator", "step_token", "aggregate")}
        if settings.model:
            return load_process(settings.model, fresh=True, **options, **self.classifier_options())
        texts = [message_text(turn) for solution in solutions for turn in solution.prompt]
        tokenizer, shape = self.small_backbone([*texts, *(step for solution in solutions for step in solution.steps)])
        limits: Any = {"max_length": settings.max_length, "seed": self.arguments.seed}
        model = process_from_config(shape, tokenizer, **options, **limits)
        self.log_small_model(model.model, tokenizer)
        return model

    def golden_examples(self, model: ProcessRewardModel, data: TrainingData, number: int) -> list[Example]:
        """Return the first solutions that the model reads without truncation, as plain text."""
        separator, limit = model.encoder.separator, model.contract.max_length
        examples = (Example(solution.prompt, separator.join(solution.steps)) for solution in data.train.solutions)
        return [*islice((some for some in examples if not limit or model.encoder.encode(some).length <= limit), number)]

    def summary(self, model: Any, data: TrainingData, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of solutions, losses and accuracies."""
        return {"solutions": len(data.train.solutions)} | super().summary(model, data, facts)

    def _counts(self, solutions: Sequence[Solution], model: ProcessRewardModel) -> dict[str, int]:
        """Count and report the labels, and the steps that contain the separator, which scoring as text would split."""
        labels = np.concatenate([solution.labels for solution in solutions])
        counts = {
            "correct": int((labels == 1).sum()),
            "wrong": int((labels == 0).sum()),
            "between": int(((labels > 0) & (labels < 1)).sum()),
            "unlabelled": int(np.isnan(labels).sum()),
        }
        self.report(f"data: {', '.join(f'{count} {name}' for name, count in counts.items())} steps")
        separator = model.encoder.separator
        if divided := sum(separator in step.strip() for solution in solutions for step in solution.steps):
            self.report(
                f"data: {divided} steps have the separator {separator!r} in them and would be split there when they "
                "are scored as text; another --step_separator may fit better"
            )
        return counts
