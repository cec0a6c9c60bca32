"""Policy losses: clip rules applied by `kernels.policy_loss`, and losses of whole completions; one module each."""

from collections.abc import Callable
from typing import Any

from ...rm.registry.specs import Plain


def _token_loss(function: Callable[..., Any]) -> Any:
    from ._kinds import TokenLoss

    return TokenLoss(function)


PLAIN = (
    Plain(("logprobs", "old_logprobs", "advantages"), "losses [T] of single tokens", _token_loss),
    Plain(("completions",), "losses [N] of whole completions", lambda function: function),
)
