"""Own code as plain functions: a function with the signature of a formula is used as it is, without a factory."""

from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from inspect import Parameter, signature
from typing import Any, NamedTuple

from ...rm.errors import UsageError


class Plain(NamedTuple):
    """How a plain function of one kind is recognised and used."""

    parameters: tuple[str, ...]
    """Names of its first parameters."""
    result: str
    """What it returns, for messages."""
    wrap: Callable[[Callable[..., Any]], Any]
    """From the function, with its other arguments bound, to what the registry folder's factories return."""

    def __str__(self) -> str:
        """Return the signature, for messages."""
        return f"({', '.join(self.parameters)}) -> {self.result}"


def _token_loss(function: Callable[..., Any]) -> Any:
    from ...policy.composition.token_losses import TokenLoss

    return TokenLoss(function)


def _reward_transform(function: Callable[..., Any]) -> Any:
    from ...policy.types import Transform

    return Transform("reward", lambda state, rewards, rollout: (state, function(rewards, rollout)))


def _advantage_transform(function: Callable[..., Any]) -> Any:
    from ...policy.types import Transform

    return Transform("advantage", lambda state, advantages, rollout: (state, function(advantages, rollout)), stage=2)


def _pair_loss(function: Callable[..., Any]) -> Any:
    from ...rm.losses._pair_batch import PairLoss

    return PairLoss(function)


def _judge(function: Callable[..., Any]) -> Any:
    from ...judges.kinds._function import FunctionJudge

    return FunctionJudge(function, function.__name__)


PLAIN: Mapping[str, tuple[Plain, ...]] = {
    "rm.losses": (Plain(("pairs",), "losses [B]", _pair_loss),),
    "policy.advantages": (Plain(("rewards", "rollout"), "advantages [N] or [N, L]", lambda function: function),),
    "policy.losses": (
        Plain(("logprobs", "old_logprobs", "advantages"), "losses [T] of single tokens", _token_loss),
        Plain(("completions",), "losses [N] of whole completions", lambda function: function),
    ),
    "policy.transforms": (
        Plain(("rewards", "rollout"), "policy.types.Rewards", _reward_transform),
        Plain(("advantages", "rollout"), "advantages [N] or [N, L]", _advantage_transform),
    ),
    "judges.kinds": (Plain(("prompt", "responses"), "scores, one for each response, or None", _judge),),
}
"""Registry folder -> signatures of plain functions."""


def plain_form(folder: str, function: Callable[..., Any]) -> Plain | None:
    """Return the form of a plain function of this registry folder; None for a factory."""
    names = tuple(signature(function).parameters)
    return next((plain for plain in PLAIN.get(folder, ()) if names[: len(plain.parameters)] == plain.parameters), None)


def use_plain(plain: Plain, function: Callable[..., Any], text: str, arguments: Mapping[str, Any]) -> Any:
    """Bind the arguments of a spec to a plain function and wrap it; an unknown or missing one is a `UsageError`."""
    free = dict([*signature(function).parameters.items()][len(plain.parameters) :])
    variadic = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in free.values())
    if unknown := [name for name in arguments if name not in free and not variadic]:
        raise UsageError(f"{text}: no argument '{unknown[0]}'; the function has {', '.join(free) or 'none'}")
    if missing := [name for name, parameter in free.items() if is_required(parameter) and name not in arguments]:
        raise UsageError(
            f"{text}: the argument '{missing[0]}' is missing; write it in parentheses, as {missing[0]}=..."
        )
    bound = update_wrapper(partial(function, **arguments), function)
    bound.__name__ = text.partition("(")[0].rpartition(":")[2]  # an object has no name
    return plain.wrap(bound)


def is_required(parameter: Parameter) -> bool:
    """Return whether every call must give the parameter."""
    variadic = parameter.kind in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    return parameter.default is Parameter.empty and not variadic


def signatures(folder: str) -> str:
    """Return the end of a message about own code of the wrong form; empty for a folder without plain functions.

    >>> signatures("policy.advantages")
    '; a plain function has the signature (rewards, rollout) -> advantages [N] or [N, L]'
    """
    forms = " or ".join(map(str, PLAIN.get(folder, ())))
    return f"; a plain function has the signature {forms}" if forms else ""
