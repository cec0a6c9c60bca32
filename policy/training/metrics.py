"""Metrics of a training step: rewards, texts, ratios, entropy, KL, and quality of the critic."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from trl.trainer.utils import nanstd

from ...kernels.policy_loss import PolicyLoss
from ..composition.algorithm import Scored
from ..composition.groups import groups
from ..rewards.sources import statistics
from ..types import Rollout
from .critic import explained_variance
from .monitoring import watched


def step_metrics(
    scored: Scored, rollout: Rollout, faults: int, is_own: Bool[Tensor, " N"] | None = None
) -> Iterator[tuple[str, float]]:
    """Yield names and values of one step's metrics; `faults` is the number of rewards that could not be used.

    If only some completions are the policy's own (`is_own`), all count for the rewards but only these for the
    monitoring. Components are logged after the last transform. The critic is measured by the share of the total
    reward's variance that its values at the first token explain, and for comparison that of the mean of the group's
    others.
    """
    yield "reward", scored.total.nanmean().item()
    yield "reward_std", nanstd(scored.total).item()
    yield "rewards/faults", faults
    yield from statistics([*scored.rewards.values()][-1], rollout.group)
    if is_own is None or is_own.all():
        yield from watched(rollout, scored.total)
    else:
        yield "reward_own", scored.total[is_own].nanmean().item()
        yield from watched(
            Rollout(*(None if field is None else field[is_own] for field in rollout)), scored.total[is_own]
        )
    if rollout.values is not None:
        seen = groups(scored.total, rollout.group)
        others = (seen.number * seen.mean - scored.total) / (seen.number - 1)
        for name, values in (("first", rollout.values[:, 0]), ("of_others", others)):
            yield f"critic/explained_variance_{name}", explained_variance(values, scored.total, seen.valid)


def token_metrics(
    loss: PolicyLoss, entropy: Float[Tensor, "N L"], response: Bool[Tensor, "N L"], accelerator: Any, *, compares: bool
) -> Iterator[tuple[str, float]]:
    """Yield names and means over the tokens of a micro-batch in all processes.

    They are the entropy (0 outside completions), in nats; and over the tokens that are trained on, if there are any,
    the share whose ratio is clipped, the ratio, and if it `compares`, the KL to the reference policy in nats.
    """
    facts = loss.sums[:, 1:].detach().sum(0)
    gap, clipped, live, ratio = accelerator.reduce(facts, reduction="sum").tolist()
    sums = torch.stack([entropy.detach().sum(), response.sum()])
    total, n_tokens = accelerator.reduce(sums, reduction="sum").tolist()
    yield "entropy", total / max(n_tokens, 1.0)
    if live:
        yield "clip_ratio/region_mean", clipped / live
        yield "ratio", ratio / live
        if compares:
            yield "kl", gap / live
