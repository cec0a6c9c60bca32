"""Own code as plain functions: a function with the signature of a formula is used as it is, without a factory."""

from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, NamedTuple

from .errors import UsageError
from .registry import ROOT


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


def plain_forms(folder: str) -> tuple[Plain, ...]:
    """Return the signatures of plain functions that a registry folder declares as `PLAIN`."""
    return getattr(import_module(f"{ROOT}.{folder}"), "PLAIN", ())


def plain_form(folder: str, function: Callable[..., Any]) -> Plain | None:
    """Return the form of a plain function of this registry folder; None for a factory."""
    names = tuple(signature(function).parameters)
    return next((plain for plain in plain_forms(folder) if names[: len(plain.parameters)] == plain.parameters), None)


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
    forms = " or ".join(map(str, plain_forms(folder)))
    return f"; a plain function has the signature {forms}" if forms else ""
