"""Transforms of rewards and advantages; one module per formula."""

from collections.abc import Callable
from typing import Any

from ...rm.registry.specs import Plain


def _reward_transform(function: Callable[..., Any]) -> Any:
    from ..types import Transform

    return Transform("reward", lambda state, rewards, rollout: (state, function(rewards, rollout)))


def _advantage_transform(function: Callable[..., Any]) -> Any:
    from ..types import Transform

    return Transform("advantage", lambda state, advantages, rollout: (state, function(advantages, rollout)), stage=2)


PLAIN = (
    Plain(("rewards", "rollout"), "policy.types.Rewards", _reward_transform),
    Plain(("advantages", "rollout"), "advantages [N] or [N, L]", _advantage_transform),
)
