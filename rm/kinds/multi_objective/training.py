"""Training of multi-objective reward models: one head with K outputs, on labelled pairs and rated completions."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import EvalPrediction

from ...backbones.lora_classifier import ADAPTER
from ...backbones.sequence_scores import sequence_scores
from ...backbones.tokenization import Encoded, Encoder, pad
from ...data.pairs import RowReport
from ...data.preference_vectors import costs_sentence, parse_preference
from ...data.scored_rows import Judged, ScoredCompletion, load_judged
from ...errors import DataError, UsageError
from ...losses._pair_batch import PairBatch, PairLoss
from ...losses._pair_losses import check_required, fit_to, learned_modules
from ...losses.attribute_regression import attribute_regression
from ...training.encoding import Encoding, OnLong, concatenate_encodings, encode_each, encode_labelled
from ...training.protocol import Prepared, Task, TrainingData
from ...types import OVERALL, PreferencePair
from ..scalar.model import ScalarRewardModel
from ..scalar.training import ScalarTraining
from .model import checked_weights, labelled_overall, learned_weights, load_untrained, with_overall

NAN = float("nan")
LEARNED, POSITIVE = "learned", "learned_positive"
"""Special values of --weights: learn the weights, or learn weights >= 0."""


class ObjectiveRow(NamedTuple):
    """A tokenised pair or single completion, with labels or scores per objective; NaN if missing."""

    chosen: list[int]
    rejected: list[int] | None
    wins: tuple[float, ...]
    gaps: tuple[float, ...]
    scores: tuple[float, ...]
    """Scores of a single completion."""


def encode_objectives(
    encoder: Encoder,
    pairs: Sequence[PreferencePair],
    objectives: Sequence[str],
    on_long: OnLong = "truncate",
    *,
    allow_empty: bool = False,
) -> Encoding:
    """Tokenise the pairs that are labelled for at least one of the objectives, in order."""
    nothing = (NAN,) * len(objectives)

    def row(_: int, pair: PreferencePair, chosen: Encoded, rejected: Encoded) -> ObjectiveRow:
        wins = tuple(pair.chance(name) for name in objectives)
        gaps = tuple(pair.gaps.get(name, NAN) for name in objectives)
        return ObjectiveRow(chosen.ids, rejected.ids, wins, gaps, nothing)

    return encode_labelled(encoder, pairs, objectives, row, on_long=on_long, allow_empty=allow_empty)


def encode_scored(
    encoder: Encoder, completions: Sequence[ScoredCompletion], objectives: Sequence[str], on_long: OnLong = "truncate"
) -> Encoding:
    """Tokenise rated completions, in order; the counts of the result are of completions instead of pairs."""
    nothing = (NAN,) * len(objectives)

    def row(completion: ScoredCompletion, encoded: Encoded) -> ObjectiveRow:
        scores = tuple(completion.scores.get(name, NAN) for name in objectives)
        return ObjectiveRow(encoded.ids, None, nothing, nothing, scores)

    encoded = encoder.encode_all([completion.example for completion in completions])
    limit = encoder.contract.max_length
    return encode_each(completions, encoded, row, noun="completion", limit=limit, on_long=on_long)


def label_counts(rows: Sequence[ObjectiveRow], objectives: Sequence[str]) -> dict[str, dict[str, int]]:
    """Count the rows with and without a label for each objective."""
    wins, scores = np.array([row.wins for row in rows]), np.array([row.scores for row in rows])
    return {
        name: {
            "pairs": int((~np.isnan(wins[:, k])).sum()),
            "scores": int((~np.isnan(scores[:, k])).sum()),
            "unlabelled": int((np.isnan(wins[:, k]) & np.isnan(scores[:, k])).sum()),
        }
        for k, name in enumerate(objectives)
    }


class ObjectivesTask(Task):
    """Pair loss (such as Bradley-Terry) per objective plus squared errors of scores; every label has the same weight.

    L = mean_{b,k labelled} l_k(r_k(y_w), r_k(y_l))  +  λ mean_{n,k rated} (r_k - s_k)²,   λ = `regression_weight`

    b are pairs, n rated completions with scores s_k, k objectives. A loss that requires a margin gets the |gap| of its
    objective. Further outputs of the head are not trained.
    """

    def __init__(self, losses: Mapping[str, PairLoss], regression_weight: float = 1.0):
        self.pair_losses, self.objectives = dict(losses), tuple(losses)
        self.regression, self.regression_weight = attribute_regression(), regression_weight
        self.modules = learned_modules([*losses.values()])

    def check(self, rows: Sequence[ObjectiveRow]) -> None:
        """Raise `DataError` if rows lack values that the losses need, or an objective has no label at all."""
        for name, counts in label_counts(rows, self.objectives).items():
            if not counts["pairs"] + counts["scores"]:
                raise DataError(
                    f"none of {len(rows)} rows has a label or a score for '{name}'; add some, or remove it from "
                    "--objectives"
                )
        for k, (name, loss) in enumerate(self.pair_losses.items()):
            labelled = [row for row in rows if not np.isnan(row.wins[k])]
            check_required(loss, {"margin": [row.gaps[k] for row in labelled]}, f"'gaps' for '{name}'")
            fit_to(loss, [float(len(row.chosen) - len(row.rejected or [])) for row in labelled])

    def collate(self, rows: Sequence[ObjectiveRow]) -> dict[str, Tensor]:
        """Collate the first completions of all rows, then the second ones; `second` has their indices (-1: none)."""
        others = [row.rejected for row in rows if row.rejected is not None]
        batch = pad([row.chosen for row in rows] + others)
        paired = torch.tensor([row.rejected is not None for row in rows])
        second = torch.where(paired, len(rows) + paired.cumsum(0) - 1, -1)
        return {
            "tokens": batch.tokens,
            "attention": batch.attention,
            "second": second,
            "wins": torch.tensor([row.wins for row in rows]),
            "gaps": torch.tensor([row.gaps for row in rows]),
            "stated": torch.tensor([[row.wins, row.scores] for row in rows]),
        }

    def items(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return two counts [2]: labels of pairs, and scores."""
        paired = (inputs["second"] >= 0)[:, None]
        labelled = paired & ~inputs["wins"].isnan()
        return torch.stack([labelled.sum(), (~inputs["stated"][:, 1].isnan()).sum()])

    def loss(self, model: Any, inputs: dict[str, Tensor], step: int = 0) -> tuple[Tensor, Tensor]:
        """Return the mean pair and score losses [2], and each label's two rewards and loss [B, 3, K] (NaN if none)."""
        K = len(self.objectives)
        rewards = sequence_scores(model, inputs["tokens"], inputs["attention"])[:, :K].float()
        second = inputs["second"]
        paired = second >= 0
        first = rewards[: len(second)]
        other = rewards[second.clamp_min(0)]
        lengths = inputs["attention"].sum(1)
        longer = (lengths[: len(second)] - lengths[second.clamp_min(0)]).float()
        scores = inputs["stated"][:, 1]
        rated = ~scores.isnan()
        losses = self._pair_losses(first, other, paired, longer, inputs)
        errors = self.regression(first, scores)
        labelled = paired[:, None] & ~inputs["wins"].isnan()
        means = torch.stack([_mean(losses[labelled]), self.regression_weight * _mean(errors[rated])])
        outputs = [first, other.masked_fill(~paired[:, None], NAN), torch.where(rated, errors, losses)]
        return means, torch.stack(outputs, dim=1)

    evaluate = loss

    def _pair_losses(
        self,
        first: Float[Tensor, "B K"],
        other: Float[Tensor, "B K"],
        paired: Tensor,
        longer: Float[Tensor, " B"],
        inputs: dict[str, Tensor],
    ) -> Float[Tensor, "B K"]:
        """Return the loss of every label; NaN for rows that are not labelled pairs."""
        losses = torch.full_like(first, NAN)
        for k, loss in enumerate(self.pair_losses.values()):
            labelled = paired & ~inputs["wins"][:, k].isnan()
            chosen, rejected, wins, gaps = (t[labelled, k] for t in (first, other, inputs["wins"], inputs["gaps"]))
            margin = gaps.abs() if "margin" in loss.requires else None
            losses[labelled, k] = loss(PairBatch(chosen, rejected, wins, margin, longer[labelled]))
        return losses

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Compute the loss of all rows as one batch, accuracy and RMSE per objective, and the mean accuracy."""
        outputs, stated = np.asarray(prediction.predictions, float), np.asarray(prediction.label_ids, float)
        rewards, losses, finite = outputs[:, :2], outputs[:, 2], ~np.isnan(stated)
        of_pairs, errors = losses[finite[:, 0]], losses[finite[:, 1]]
        metric_values = {"loss": float(_mean(of_pairs) + self.regression_weight * _mean(errors))}
        shares = []
        for k, name in enumerate(self.objectives):
            gap, wins, scores = rewards[:, 0, k] - rewards[:, 1, k], stated[:, 0, k], stated[:, 1, k]
            decided, rated = ~np.isnan(wins) & (wins != 0.5), ~np.isnan(scores)
            if decided.any():
                metric_values[f"accuracy_{name}"] = float((gap * (wins - 0.5) > 0)[decided].mean())
                shares.append(metric_values[f"accuracy_{name}"])
            if rated.any():
                metric_values[f"rmse_{name}"] = float(np.sqrt(np.square(rewards[:, 0, k] - scores)[rated].mean()))
        return metric_values | {"accuracy": float(np.mean(shares)) if shares else NAN}


def _mean(values: Any) -> Any:
    """Return the mean of values; 0 if there are none."""
    return values.sum() / max(len(values), 1)


class ObjectivesTraining(ScalarTraining):
    """Trains a classifier of several objectives, each on the rows that are labelled for it, and their weights."""

    summary_prefixes = (*ScalarTraining.summary_prefixes, "weights")

    def check(self, sources: Sequence[str]) -> None:
        """Raise `UsageError` for invalid settings, among them weights of unknown objectives."""
        super().check(sources)
        weights = self.configured_weights() or {}
        if costs := costs_sentence("--weights", weights):
            self.report(costs)

    def load_file(self, path: str, objective: str | None) -> tuple[Judged, RowReport]:
        """Load pairs labelled for `objective`; if None, pairs with their own labels, and rated responses."""
        if objective is None:
            return load_judged(path, self.settings.objectives, on_bad_row="skip")
        return super().load_file(path, objective)

    def prepare(self, data: TrainingData) -> Prepared:
        """Return a classifier with an output per objective, rows of pairs and rated responses, and the losses."""
        names, weights = self.settings.objectives, self.settings.weights
        if weights in (LEARNED, POSITIVE):
            labelled_overall(data.held_out.pairs or data.train.pairs)
        losses = {name: self.pair_loss() for name in names}
        if "other" in losses[names[0]].requires:
            raise UsageError(f"--loss {self.settings.loss} is for a single objective; remove --objectives")
        model = self.build(data.train, (*names, OVERALL) if weights else tuple(names))
        encoding = self._encode(model, data.train, "data")
        held = data.held_out.pairs or data.held_out.completions
        eval_rows = self._encode(model, data.held_out, "eval_data").rows if held else None
        task = ObjectivesTask(losses, self.settings.regression_weight)
        task.check(encoding.rows)
        counts = label_counts(encoding.rows, names)
        for name, count in counts.items():
            labels = f"{count['pairs']} pairs and {count['scores']} scores for '{name}'"
            self.report(f"data: {labels}, {count['unlabelled']} rows without either")
        encode = partial(encode_objectives, model.encoder, objectives=names, on_long=self.settings.on_long)
        stream = self.stream(data, partial(encode, allow_empty=True))
        return Prepared(model, task, encoding, eval_rows, {"labels": counts}, stream)

    def finish(self, prepared: Prepared, data: TrainingData) -> tuple[Any, dict[str, Any]]:
        """Return the model, with an overall reward if there are weights."""
        model, facts = super().finish(prepared, data)
        if not self.settings.weights:
            return model, facts
        weights = self.configured_weights()
        if weights is None:
            pairs, positive = data.held_out.pairs or data.train.pairs, self.settings.weights == POSITIVE
            weights = learned_weights(model, self.settings.objectives, pairs, positive=positive)
            self.report(f"learned weights: {weights}")
        weighted = with_overall(model, weights)
        return weighted, facts | {"weights": weighted.weights}

    def configured_weights(self) -> dict[str, float] | None:
        """Return the weights that the user set; None if weights are learned or absent."""
        text = self.settings.weights
        if text in (None, LEARNED, POSITIVE):
            return None
        return checked_weights(parse_preference(text), self.settings.objectives)

    def open_source(self, objectives: tuple[str, ...]) -> ScalarRewardModel:
        """Return the named backbone with a new head of several outputs."""
        source = self.settings.model
        if (Path(source) / ADAPTER).exists():
            raise UsageError(f"{source} is an adapter; for several objectives start from its base, or merge it")
        return load_untrained(source, objectives, **self.classifier_options())

    def _encode(self, model: ScalarRewardModel, data: Judged, name: str) -> Encoding:
        names, on_long = self.settings.objectives, self.settings.on_long
        parts = []
        if data.pairs:
            options = {"allow_empty": bool(data.completions)}
            parts.append(
                self.log_encoding(name, encode_objectives(model.encoder, data.pairs, names, on_long, **options))
            )
        if data.completions:
            parts.append(self.log_encoding(name, encode_scored(model.encoder, data.completions, names, on_long)))
        if not any(part.rows for part in parts):
            raise DataError(f"{name}: no row is left to train on; raise --max_length, or set --on_long truncate")
        return concatenate_encodings(parts)
