"""Interface of list losses: rewards and scores of the completions of a prompt."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from ..registry.specs import build


@dataclass(frozen=True)
class ListLoss:
    """Loss per list [B] in nats, not reduced: `formula` of the rewards and the scores of its completions.

    The formula gets rewards r [B, R] and scores s [B, R]: higher scores are better, equal scores are ties, and NaN
    marks a missing completion, whose reward is 0 and has no part in the loss.
    """

    formula: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, rewards: Float[Tensor, "B R"], scores: Float[Tensor, "B R"]) -> Float[Tensor, " B"]:
        """Return the loss of each list [B] in nats."""
        return self.formula(rewards.masked_fill(scores.isnan(), 0.0), scores)


def named_list_loss(text: str) -> ListLoss | None:
    """Create the loss that a spec such as `plackett_luce(top=1)` names; None for a loss of pairs."""
    loss = build("rm.losses", text)
    return loss if isinstance(loss, ListLoss) else None
