"""Replay buffer: previous batches of completions, and the selection for the next replay."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

from ...rm.errors import UsageError
from ..step.algorithm import Scored
from ..step.forward import Batch
from ..types import ON_REQUEST, Past, Replay, ReplaysBatches, Rollout, State

WEIGHTS = ("weights", "value_weights", "auxiliary_weight")  # in the losses of policy and critic, and a second term


class StoredBatch(NamedTuple):
    """A batch with its advantages and clipping statistics."""

    batch: Batch
    advantage: Float[Tensor, "N L"]
    rollout: Rollout
    clipped: Float[Tensor, " N"]
    """Share of clipped tokens in the last training step that used the completion."""


class ReplayBuffer:
    """Buffer of previous batches for the replay. Rows 0 to N - 1 are the current batch; stored batches follow."""

    def __init__(self, replay: Replay, parts: int):
        self.replay, self.parts = replay, parts
        self.remembers = replay.remembers if isinstance(replay, ReplaysBatches) else 1
        self.state: State = {}
        self.micro_batches: list[Batch] = []
        self._batches: list[StoredBatch] = []
        self._clipped: list[Float[Tensor, " N"]] = []

    def next_cycle(self, batch: Batch, scored: Scored, rollout: Rollout) -> None:
        """Select stored completions by the replay rule to train on again, then store the new batch."""
        unused = {name: torch.zeros_like(batch[name]) for name in WEIGHTS if name in batch}
        again, advantages = batch | unused, None
        if self._batches:
            past = concatenate(self._batches, batch["weights"].device)._replace(now=rollout)
            self.state, advantages = self.replay(self.state, scored.total, past)
            if advantages is not None:
                again = select_rows([entry.batch for entry in self._batches], advantages, len(batch["weights"]))
        fresh = torch.zeros(len(batch["weights"]), device=batch["weights"].device)
        self._clipped = [fresh, *(entry.clipped for entry in self._batches)]
        stored = rollout._replace(total=scored.total, **dict.fromkeys(ON_REQUEST))
        new = StoredBatch(batch, scored.advantage, stored, fresh)
        self._batches = [*self._batches, new][-self.remembers :]
        self.micro_batches = split_tensor_dict(shuffle_sequence_dict(again), self.parts)

    def record_clipped(self, row: Int[Tensor, " B"], sums: Float[Tensor, "B 5"]) -> None:
        """Store the share of clipped tokens of each trained row. `sums` are the sums of `kernels.policy_loss`."""
        shares = (sums[:, 2] / sums[:, 3].clamp_min(1)).tolist()
        for position, share in zip(row.tolist(), shares, strict=True):
            which, column = divmod(position, len(self._clipped[0]))
            self._clipped[which][column] = share

    def stored_batches(self) -> Any:
        """Return the batches for a checkpoint; `state` is saved separately."""
        return [(entry.batch, entry.advantage, tuple(entry.rollout), entry.clipped) for entry in self._batches]

    def load(self, state: Mapping[str, Any], batches: Any) -> None:
        """Load state and batches from a checkpoint."""
        self.state = state
        self._batches = [
            StoredBatch(batch, advantage, Rollout(*fields), clipped) for batch, advantage, fields, clipped in batches
        ]


# ---- concatenation of batches ----


def concatenate(entries: Sequence[StoredBatch], device: torch.device) -> Past:
    """Concatenate all stored completions, oldest first; group numbers of different batches do not overlap."""
    fields, offset = [], 0
    for kept_entry in entries:
        fields.append(kept_entry.rollout._asdict() | {"group": kept_entry.rollout.group + offset})
        offset = int(fields[-1]["group"].max()) + 1
    columns = {name: [field[name] for field in fields] for name in Rollout._fields}
    joint = {name: None if column[0] is None else _concatenate(column, device) for name, column in columns.items()}
    ages = [torch.full((len(entry.clipped),), len(entries) - index) for index, entry in enumerate(entries)]
    return Past(
        _concatenate([entry.advantage for entry in entries], device),
        Rollout(**joint),  # pyright: ignore[reportArgumentType]
        _concatenate(ages, device),
        _concatenate([entry.clipped for entry in entries], device),
    )


def select_rows(batches: Sequence[Batch], advantages: Tensor, size: int) -> Batch:
    """Select `size` rows with an advantage, with the total weight of an average batch. Padding rows have weight 0."""
    live = ~advantages.isnan().flatten(1).any(1) if advantages.dim() > 1 else ~advantages.isnan()
    if live.sum() > size:
        raise UsageError(f"the replay selected {int(live.sum())} completions, but a batch has {size}; select fewer")
    device, newest = advantages.device, batches[-1]
    joint: Batch = {}
    for name, values in newest.items():
        rows = isinstance(values, Tensor) and values.dim() > 0
        joint[name] = _concatenate([o[name] for o in batches], device, name.startswith("prompt")) if rows else values
    for name in WEIGHTS:
        if name in joint:
            joint[name] = scale_weights(joint[name], live, joint[name].sum() / len(batches))
    wide = advantages[:, None].expand_as(joint["weights"]) if advantages.dim() == 1 else advantages
    joint |= {"advantages": wide.nan_to_num(0).float(), "row": size + torch.arange(len(live), device=device)}
    order = torch.cat([live.nonzero(), (~live).nonzero()]).squeeze(1)[:size]
    return {
        name: tensor[order] if isinstance(tensor, Tensor) and tensor.dim() > 0 else tensor
        for name, tensor in joint.items()
    }


def scale_weights(weights: Float[Tensor, "M L"], live: Bool[Tensor, " M"], total: Tensor) -> Float[Tensor, "M L"]:
    """Scale the weights of `live` rows to a sum of `total`. Other rows get weight 0."""
    weights = weights * live[:, None]
    return weights * (total / alive) if (alive := weights.sum()) > 0 else weights


def _concatenate(parts: Sequence[Tensor], device: torch.device, on_left: bool = False) -> Tensor:
    """Concatenate rows, padded with 0 to the widest, on the right or on the left."""
    widest = max((part.shape[1] for part in parts if part.dim() > 1), default=0)
    gaps = [widest - part.shape[1] if part.dim() > 1 else 0 for part in parts]
    return torch.cat([
        pad(part.to(device), (gap, 0) if on_left else (0, gap)) if gap else part.to(device)
        for part, gap in zip(parts, gaps, strict=True)
    ])  # fmt: skip
