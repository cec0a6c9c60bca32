"""Advantage estimators: how much better a completion or token was than expected; one module per formula."""

from ...rm.registry.specs import Plain

PLAIN = (Plain(("rewards", "rollout"), "advantages [N] or [N, L]", lambda function: function),)
