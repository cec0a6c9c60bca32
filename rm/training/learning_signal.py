"""Checks that a training learns: non-zero gradients or fitted weights, accuracy and margin, warning at chance level."""

import math
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import reduce
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ..errors import CheckFailed

TINY = 1e-12
"""Fitted weights below this value count as 0."""


class SignalCheck(TrainerCallback, ExportableState):
    """Raises `CheckFailed` at the end of a training in which no step had a finite gradient other than 0.

    The result is part of a checkpoint, for resumed runs. Engines without access to gradients (DeepSpeed) are skipped.
    """

    def __init__(self):
        self.seen = False

    def state(self):
        """Return the state that Transformers stores in a checkpoint."""
        return {"args": {}, "attributes": {"seen": self.seen}}

    def on_train_begin(self, args, state, control, **kwargs):
        """Restore the state. Checkpoints of earlier versions have no state, and count as trained."""
        stored: Any = state.stateful_callbacks or {}
        saved = stored.get(type(self).__name__)
        self.seen = saved["attributes"]["seen"] if saved else state.global_step > 0

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        """Record whether a gradient is finite and not 0."""
        self.seen = self.seen or (model is not None and _has_gradient(model))

    def on_train_end(self, args, state, control, **kwargs):
        """Raise the error in all processes, if no process had a gradient other than 0."""
        examples: Any = reduce(torch.tensor(float(self.seen), device=args.device))
        if state.global_step >= state.max_steps and not examples.item():
            raise CheckFailed(
                f"none of {state.global_step} steps had a finite gradient other than 0, so nothing was learnt and no "
                "model is saved; look for labels, margins and lengths that make every pair a tie, or for a loss that "
                "does not depend on the weights, and start over with --overwrite"
            )


def _has_gradient(model: nn.Module) -> bool:
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    local = (gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients)
    return not gradients or any(gradient.nan_to_num(0.0, 0.0, 0.0).any().item() for gradient in local)


def check_fitted(weights: np.ndarray, kind: str) -> None:
    """Raise `CheckFailed` if a fit on fixed features left all weights 0."""
    if np.abs(weights).max(initial=0.0) < TINY:
        raise CheckFailed(
            f"all weights of the {kind} reward model are 0, so nothing was learnt and no model is saved: the pairs are "
            "ties, or their completions are equal in all that the model reads; check the labels, or use another "
            "--kind"
        )


WINDOWS, LEAST = 5, 64
"""Number of final log lines, and minimum number of their pairs, for the test whether training ends at chance level."""
NEAR = 0.02
"""Maximum distance to ln 2, in nats, of a loss at chance level."""


class Window(NamedTuple):
    """Values of a log line: mean loss, number of pairs with a preference, and number of correct pairs."""

    loss: float
    pairs: int
    right: int


def pair_sums(gaps: Float[Tensor, "..."], wins: Float[Tensor, "..."]) -> Float[Tensor, " 3"]:
    """Return the numbers of pairs with a preference and of pairs with the right sign, and the sum of their margins.

    `gaps` are rewards of the first minus the second, `wins` is P(first better); NaN gaps or labels are not counted.
    """
    decided = ~gaps.isnan() & ~wins.isnan() & (wins != 0.5)
    margins = torch.where(decided, gaps * torch.sign(wins - 0.5), 0.0)
    return torch.stack([decided.sum(), (margins > 0).sum(), margins.sum()]).float()


class PairLog(TrainerCallback):
    """Callback that sums accuracy and margin of pairs since the last log line, and logs the first and the last step."""

    def __init__(self) -> None:
        self.sums: Tensor | None = None
        self.windows: deque[Window] = deque(maxlen=WINDOWS)

    def add(self, gaps: Tensor, wins: Tensor) -> None:
        """Add the pairs of a batch, which stay on their device until the next log line."""
        sums = pair_sums(gaps.detach(), wins)
        self.sums = sums if self.sums is None else self.sums + sums

    def metrics(self, loss: float, reduce: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Return accuracy and margin since the last log line over all processes; empty without a preference."""
        if self.sums is None:
            return {}
        pairs, right, margins = reduce(self.sums).tolist()
        self.sums = None
        self.windows.append(Window(loss, int(pairs), int(right)))
        return {"accuracy": right / pairs, "margin": margins / pairs} if pairs else {}

    def on_step_end(self, args, state, control, **kwargs):
        """Request a log line for the first and the last step."""
        control.should_log |= args.logging_strategy == "steps" and state.global_step in (1, state.max_steps)

    def on_train_end(self, args, state, control, **kwargs):
        """Warn if the training ends at chance level."""
        if state.is_world_process_zero and (sentence := chance_sentence(self.windows)):
            warnings.warn(sentence, stacklevel=2)


def chance_sentence(windows: deque[Window]) -> str:
    """Return a warning if loss and accuracy are at chance level; empty if not, or if there are too few pairs.

    At chance level the loss is within `NEAR` of ln 2, and the accuracy on n pairs within 1.96 √(1 / 4n) of 1/2.
    """
    pairs, right = sum(window.pairs for window in windows), sum(window.right for window in windows)
    if pairs < LEAST:
        return ""
    loss = sum(window.loss * window.pairs for window in windows) / pairs
    accuracy, half = right / pairs, 1.96 * math.sqrt(0.25 / pairs)
    if abs(loss - math.log(2)) > NEAR or abs(accuracy - 0.5) > half:
        return ""
    return (
        f"the training ends at chance: over its last {pairs} pairs the loss is {loss:.4f} (ln 2 = 0.6931 for a "
        f"guess) and the accuracy {accuracy:.3f}, which is not significantly different from 0.5; check the labels "
        "with rewardlab lint, or train with more steps or another --learning_rate"
    )
