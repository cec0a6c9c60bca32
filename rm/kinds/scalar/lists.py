"""Training of scalar reward models on ranked lists of completions, with a list loss."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import EvalPrediction

from ...backbones.sequence_scores import sequence_scores
from ...backbones.tokenization import Encoded, Encoder, pad
from ...data.pairs import RowReport
from ...data.scored_rows import Judged, RankedList, load_lists
from ...errors import DataError, UsageError
from ...losses._list_loss import ListLoss
from ...training.encoding import Encoding, OnLong, encode_each
from ...training.protocol import Prepared, Task, TrainingData
from ...training.trainer import RewardArguments
from .._training import RowTraining
from . import ScalarSettings
from .model import OBJECTIVES
from .training import ScalarTraining

NAN = float("nan")


class EncodedList(NamedTuple):
    """The tokenised completions of a list."""

    parts: list[Encoded]

    @property
    def length(self) -> int:
        """Number of tokens of the longest completion before truncation."""
        return max(part.length for part in self.parts)

    @property
    def omitted(self) -> str:
        """First text that the chat template omits, if any."""
        return next((part.omitted for part in self.parts if part.omitted), "")


class ListRow(NamedTuple):
    """Tokenised completions of a list, and their scores; NaN if missing."""

    ids: list[list[int]]
    scores: tuple[float, ...]


def encode_lists(encoder: Encoder, lists: Sequence[RankedList], on_long: OnLong = "truncate") -> Encoding:
    """Tokenise the lists, in order. Lists without two different completions with scores count as unlabelled."""
    encoded = iter(encoder.encode_all([example for ranked in lists for example in ranked.examples]))
    encoded_lists = [EncodedList([next(encoded) for _ in ranked.completions]) for ranked in lists]

    def row(ranked: RankedList, encoded: EncodedList) -> ListRow | None:
        ids = [part.ids for part in encoded.parts]
        scored = {tuple(tokens) for tokens, score in zip(ids, ranked.scores, strict=True) if not np.isnan(score)}
        return ListRow(ids, ranked.scores) if len(scored) > 1 else None

    limit = encoder.contract.max_length
    encoding = encode_each(lists, encoded_lists, row, noun="list", limit=limit, on_long=on_long)
    if not encoding.rows:
        raise DataError(
            f"none of {len(lists)} lists is left to train on: {encoding.over_length} over {limit} tokens, "
            f"{encoding.unlabelled} without two different completions with scores; check --objective and --max_length"
        )
    return encoding


def pairs_of_lists(
    rewards: Float[Tensor, "B R"], scores: Float[Tensor, "B R"]
) -> tuple[Float[Tensor, "B R R"], Float[Tensor, "B R R"]]:
    """Return reward gaps r_i - r_j and labels of i < j: 1 if s_i > s_j, 0 if s_i < s_j, 1/2 if tied; NaN elsewhere."""
    difference = scores[:, :, None] - scores[:, None, :]
    upper = torch.ones_like(difference, dtype=torch.bool).triu(1)
    return rewards[:, :, None] - rewards[:, None, :], ((1 + difference.sign()) / 2).masked_fill(~upper, NAN)


class ListTask(Task):
    """A list loss on the rewards of a scalar model; the mean is over lists."""

    def __init__(self, loss: ListLoss):
        self.list_loss = loss

    def collate(self, rows: Sequence[ListRow]) -> dict[str, Tensor]:
        """Collate the completions of all lists; `stated` are the scores [B, R], with NaN after a list's end."""
        stated = torch.full((len(rows), max(len(row.scores) for row in rows)), NAN)
        for index, row in enumerate(rows):
            stated[index, : len(row.scores)] = torch.tensor(row.scores)
        counts = torch.tensor([len(row.scores) for row in rows])
        return pad([ids for row in rows for ids in row.ids])._asdict() | {"stated": stated, "counts": counts}

    def items(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the number of lists."""
        return inputs["counts"].new_tensor(len(inputs["counts"]))

    def loss(self, model: Any, inputs: dict[str, Tensor], step: int = 0) -> tuple[Tensor, Tensor]:
        """Return the mean list loss, and the rewards [B, R]."""
        scores = inputs["stated"]
        present = torch.arange(scores.shape[1], device=scores.device) < inputs["counts"][:, None]
        of_all = sequence_scores(model, inputs["tokens"], inputs["attention"])[:, 0].float()
        rewards = of_all.new_zeros(scores.shape).masked_scatter(present, of_all)
        return self.list_loss(rewards, scores).mean(), rewards

    def evaluate(self, model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the mean loss; for each list, its decided and correct pairs, and whether the best item ranks first."""
        loss, rewards = self.loss(model, inputs)
        scores, missing = inputs["stated"], inputs["stated"].isnan()
        gaps, wins = pairs_of_lists(rewards, scores)
        decided = ~wins.isnan() & (wins != 0.5)
        right = decided & (gaps * (wins - 0.5) > 0)
        rated = rewards.masked_fill(missing, -torch.inf)
        worse = scores < scores.nan_to_num(-torch.inf).amax(1, keepdim=True)
        best = ~(worse & (rated == rated.amax(1, keepdim=True))).any(1)  # a tie with a worse completion is wrong
        return loss, torch.stack([decided.sum((1, 2)), right.sum((1, 2)), best], dim=1).float()

    def labelled_gaps(self, outputs: Tensor, inputs: dict[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """Return the reward gaps of every two completions of a list, and their labels."""
        return pairs_of_lists(outputs, inputs["stated"])

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Compute the accuracy over pairs of different scores, and how often the best item has the highest reward."""
        pairs, right, best = np.asarray(prediction.predictions, float).T
        return {"accuracy": float(right.sum() / pairs.sum()) if pairs.sum() else NAN, "best_found": float(best.mean())}


class ListTraining(ScalarTraining):
    """Trains a classifier on ranked lists with a list loss."""

    summary_prefixes = (*ScalarTraining.summary_prefixes, "eval_best")

    def __init__(self, settings: ScalarSettings, arguments: RewardArguments, loss: ListLoss, **options: Any):
        super().__init__(settings, arguments, **options)
        self.list_loss = loss

    def check(self, sources: Sequence[str]) -> None:
        """Raise `UsageError` for settings that apply only to pairs."""
        super().check(sources)
        settings = self.settings
        if settings.teacher or settings.stream or settings.center_rewards_coefficient:
            raise UsageError(
                f"--loss {settings.loss} reads ranked lists; remove --teacher, --stream and "
                "--center_rewards_coefficient, or use a pair loss"
            )

    def load_rows(self, sources: Sequence[str]) -> tuple[Judged, RowReport]:
        """Load the lists of all sources together, since rows of one prompt may be in several files."""
        if not sources:
            return Judged([], []), RowReport()
        lists, rows = load_lists(self.files(sources), self.settings.objectives[0])
        return Judged([], [], lists=lists), rows

    def prepare(self, data: TrainingData) -> Prepared:
        """Return a classifier with a new head, the rows of the lists, and the loss."""
        model = self.build(data.train, OBJECTIVES)
        encode = partial(encode_lists, model.encoder, on_long=self.settings.on_long)
        encoding = self.log_encoding("data", encode(data.train.lists), "lists")
        held = data.held_out.lists
        eval_rows = self.log_encoding("eval_data", encode(held), "lists").rows if held else None
        return Prepared(model, ListTask(self.list_loss), encoding, eval_rows)

    def summary(self, model: Any, data: TrainingData, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the losses, the accuracies and the number of lists."""
        return {"lists": len(data.train.lists)} | RowTraining.summary(self, model, data, facts)
