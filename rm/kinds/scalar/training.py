"""Training of scalar reward models: pairs as tokenised rows, and a pair loss."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ...backbones.sequence_scores import sequence_scores
from ...backbones.tokenization import Encoded, Encoder, pad
from ...data.scored_rows import Judged
from ...errors import UsageError
from ...losses._list_loss import named_list_loss
from ...losses._pair_batch import PairBatch, PairLoss
from ...losses._pair_losses import (
    OTHER,
    check_required,
    fit_to,
    learned_modules,
    load_other,
    named_pair_loss,
    with_other_gaps,
)
from ...training.encoding import Encoding, OnLong, encode_labelled
from ...training.protocol import Prepared, Task, TrainingData, count_pairs, pair_metrics
from ...training.trainer import RewardArguments
from ...types import PreferencePair, message_text
from .._training import ClassifierTraining, StreamedTraining, alternating_examples, texts_of
from . import ScalarSettings
from .distillation import MOST_PAIRS, TimedGaps, compare, timed_gaps, with_soft_labels
from .model import OBJECTIVES, ScalarRewardModel, load_scalar, scalar_from_config

NAN = float("nan")


class PairRow(NamedTuple):
    """A tokenised pair with P(chosen is better), margin, and reward gap of another model (NaN if missing)."""

    chosen: list[int]
    rejected: list[int]
    wins: float
    margin: float
    other: float = NAN


def encode_pairs(
    encoder: Encoder,
    pairs: Sequence[PreferencePair],
    objective: str,
    on_long: OnLong = "truncate",
    *,
    allow_empty: bool = False,
) -> Encoding:
    """Tokenise the pairs, in order; truncated and dropped pairs are counted."""

    def row(_: int, pair: PreferencePair, chosen: Encoded, rejected: Encoded) -> PairRow:
        margin = NAN if pair.margin is None else pair.margin
        return PairRow(chosen.ids, rejected.ids, pair.chance(objective), margin, pair.gaps.get(OTHER, NAN))

    return encode_labelled(encoder, pairs, [objective], row, on_long=on_long, allow_empty=allow_empty)


def collate(rows: Sequence[PairRow]) -> dict[str, torch.Tensor]:
    """Collate rows into 2B sequences, the chosen ones first, so that one forward pass serves both."""
    batch = pad([row.chosen for row in rows] + [row.rejected for row in rows])
    values = zip(PairRow._fields[2:], zip(*(row[2:] for row in rows), strict=True), strict=True)
    return batch._asdict() | {name: torch.tensor(column) for name, column in values}


class ScalarTask(Task):
    """A pair loss on the rewards of a scalar model."""

    collate = staticmethod(collate)
    items = staticmethod(count_pairs)
    metrics = staticmethod(pair_metrics)

    def __init__(self, loss: PairLoss):
        self.pair_loss = loss
        self.modules = learned_modules([loss])

    @property
    def depends_on_batch(self) -> bool:
        """Whether the pair loss compares the pairs of a batch with each other."""
        return self.pair_loss.depends_on_batch

    @property
    def name(self) -> str:
        """Name of the pair loss."""
        return self.pair_loss.name

    def check(self, rows: Sequence[PairRow]) -> None:
        """Raise `DataError` if rows lack values that the loss needs; fit the loss's length term, if any."""
        values = {"margin": [row.margin for row in rows], "other": [row.other for row in rows]}
        check_required(self.pair_loss, values)
        fit_to(self.pair_loss, [float(len(row.chosen) - len(row.rejected)) for row in rows])

    def loss(self, model: Any, inputs: dict[str, torch.Tensor], step: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean pair loss, and rewards [B, 2]."""
        rewards = sequence_scores(model, inputs["tokens"], inputs["attention"])[:, 0].float()
        chosen, rejected = rewards.chunk(2)
        first, second = inputs["attention"].sum(dim=1).float().chunk(2)
        margin = inputs["margin"].nan_to_num(0.0)  # `check` has refused missing margins if the loss requires them
        pairs = PairBatch(chosen, rejected, inputs["wins"], margin, first - second, inputs["other"])
        return self.pair_loss(pairs).mean(), torch.stack([chosen, rejected], dim=1)

    evaluate = loss


def scalar_training(settings: ScalarSettings, arguments: RewardArguments, **options: Any) -> "ScalarTraining":
    """Return the training of one objective on pairs or on ranked lists, or of several objectives."""
    if len(settings.objectives) == 1:
        if loss := named_list_loss(settings.loss):
            from .lists import ListTraining

            return ListTraining(settings, arguments, loss, **options)
        return ScalarTraining(settings, arguments, **options)
    from ..multi_objective.training import ObjectivesTraining

    return ObjectivesTraining(settings, arguments, **options)


def compared_pairs(data: TrainingData) -> list[PreferencePair]:
    """Return the pairs on which teacher and student are compared: held-out pairs, or else training pairs."""
    return (data.held_out.pairs or data.train.pairs)[:MOST_PAIRS]


class ScalarTraining(StreamedTraining, ClassifierTraining):
    """Trains a classifier on pairs with a pair loss."""

    summary_prefixes = (*StreamedTraining.summary_prefixes, "distilled")
    teacher: TimedGaps | None = None
    """Reward gaps of the teacher on the compared pairs; None without a teacher."""

    def prepare(self, data: TrainingData) -> Prepared:
        """Return a classifier with a new head, the rows of the pairs, and the loss."""
        loss, (name,) = self.pair_loss(), self.settings.objectives
        other = load_other(loss, **self.options)
        if other and self.settings.teacher:
            self.teacher = timed_gaps(other, compared_pairs(data), self.settings.teacher)
        model = self.build(data.train, OBJECTIVES)
        encode = partial(encode_pairs, model.encoder, objective=name, on_long=self.settings.on_long)
        train, held = (with_other_gaps(loss, part.pairs, other) for part in (data.train, data.held_out))
        del other  # its weights are not needed during the training
        if self.teacher:
            train, held = (with_soft_labels(part, name) for part in (train, held))
        encoding = self.log_encoding("data", encode(train))
        eval_rows = self.log_encoding("eval_data", encode(held)).rows if held else None
        task = ScalarTask(loss)
        task.check(encoding.rows)
        return Prepared(model, task, encoding, eval_rows, {}, self.stream(data, partial(encode, allow_empty=True)))

    def finish(self, prepared: Prepared, data: TrainingData) -> tuple[Any, dict[str, Any]]:
        """Return the model, and its comparison with the teacher or the learned parameters of the loss's length term."""
        modules = prepared.task.modules.values() if prepared.task else ()
        if self.teacher:
            return prepared.model, {"distilled": self._comparison(prepared.model, self.teacher, data)}
        if not modules:
            return prepared.model, {}
        terms = {
            name: {"weight": term.weight.item(), "scale": term.scale.item()}
            for name, term in zip(self.settings.objectives, modules, strict=True)
        }
        self.report(f"the length term, which scores do not include: {terms}")
        return prepared.model, {"length_term": terms}

    def _comparison(self, model: ScalarRewardModel, teacher: TimedGaps, data: TrainingData) -> dict[str, Any]:
        pairs = compared_pairs(data)
        wins = np.array([pair.chance(self.settings.objectives[0]) for pair in pairs])
        facts = compare(timed_gaps(model, pairs, "the student"), teacher, wins)
        return {"teacher": self.settings.teacher, "held_out": bool(data.held_out.pairs), **facts}

    def pair_loss(self) -> PairLoss:
        """Return the pair loss that the settings name."""
        name, teacher = self.settings.loss, self.settings.teacher
        name = "soft_labels" if teacher and name == "bradley_terry" else name
        loss = named_pair_loss(name, center=self.settings.center_rewards_coefficient)
        if teacher:
            if "other" not in loss.requires or loss.other:
                raise UsageError(
                    f"--loss {name} does not learn from --teacher {teacher}; use soft_labels or centred_mse, without "
                    "their argument teacher"
                )
            loss = replace(loss, other=teacher)
        if loss.other is not None and self.streams:
            raise UsageError(f"--loss {self.settings.loss} reads another model's gaps of all pairs; remove --stream")
        return loss

    def build(self, data: Judged, objectives: tuple[str, ...]) -> ScalarRewardModel:
        """Return the named backbone with a new head, or a small causal LM from scratch; report a rendered example."""
        model = self.open_source(objectives) if self.settings.model else self._from_scratch(data, objectives)
        self.report(f"the first sequence reads: {model.encoder.render(alternating_examples(data)[0])[:300]!r}")
        return model

    def open_source(self, objectives: tuple[str, ...]) -> ScalarRewardModel:
        """Return the named backbone with a new head, or a saved model with one reward, to continue its training."""
        source = self.settings.model
        model = load_scalar(source, fresh=True, **self.classifier_options())
        if len(model.contract.objectives) != 1:
            raise UsageError(
                f"{source} is a reward model of {', '.join(model.contract.objectives)}; name its objectives with "
                "--objectives, or start from the backbone"
            )
        return model

    def _from_scratch(self, data: Judged, objectives: tuple[str, ...]) -> ScalarRewardModel:
        answers = [answer.example for answer in data.completions]
        answers += [example for ranked in data.lists for example in ranked.examples]
        texts = texts_of(data.pairs) + [message_text(turn) for example in answers for turn in example.prompt]
        tokenizer, shape = self.small_backbone(texts + [example.text for example in answers])
        limits: Any = {"max_length": self.settings.max_length, "seed": self.arguments.seed}
        model = scalar_from_config(shape, tokenizer, objectives=objectives, **limits)
        self.log_small_model(model.model, tokenizer)
        return model
