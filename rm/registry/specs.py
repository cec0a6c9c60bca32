"""Specs `name(key=value, ...)`: a function of a registry folder, or of user code, with its arguments."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial, update_wrapper
from importlib import import_module
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

from ..errors import CheckFailed, DataError, UsageError, did_you_mean
from . import ROOT, load

FORM = re.compile(r"([^\n()\[\]=,]+\.py:\w+|[\w.]+(?::\w+)?)\s*(?:\((.*)\))?")
NAMED_SOURCE = re.compile(r"([\w.-]+)=(.+)")


class Spec(NamedTuple):
    """A function name and its arguments as strings."""

    name: str
    """Name of a module in a registry folder, file.py:function or package.module:function."""
    arguments: dict[str, str]

    @property
    def short(self) -> str:
        """Name of the function without its module."""
        return self.name.rpartition(":")[2]


def parse_spec(text: str) -> Spec:
    """Parse a name alone, or with arguments in parentheses; a value is a number, a word, True, False, None, a [list] or
    another spec.

    >>> parse_spec("gate(reward=rm, by=form, threshold=0.5)")
    Spec(name='gate', arguments={'reward': 'rm', 'by': 'form', 'threshold': '0.5'})
    """
    form = FORM.fullmatch(text.strip())
    if form is None:
        raise UsageError(f"cannot read '{text}'; write name, or name(key=value, key=value)")
    arguments: dict[str, str] = {}
    for part in _parts(form[2] or ""):
        key, sign, value = (piece.strip() for piece in part.partition("="))
        if sign and key.isidentifier() and value and key not in arguments:
            arguments[key] = value
        elif part.strip():
            raise UsageError(f"cannot read '{part.strip()}' in '{text}'; write each argument once, as key=value")
    return Spec(form[1], arguments)


def _parts(text: str) -> list[str]:
    """Split the text at commas outside of brackets.

    >>> _parts("model=rm, labels=judge(kind=pairwise, seeds=[1, 2]), groups=4")
    ['model=rm', ' labels=judge(kind=pairwise, seeds=[1, 2])', ' groups=4']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def is_function(text: str) -> bool:
    """Return whether the text is `file.py:function` or `package.module:function`, with or without arguments.

    >>> [is_function(text) for text in ("my_rewards.code:compiles(timeout=2)", "../code/rewards.py:brevity", "runs/rm")]
    [True, True, False]
    """
    form = FORM.fullmatch(text)
    return form is not None and ":" in form[1]


def split_name(text: str) -> tuple[str, str]:
    """Split `NAME=SOURCE`; by default NAME is the last part of the path or function in SOURCE.

    >>> split_name("safe=runs/rm"), split_name("runs/lr=0.1/rm/"), split_name("my_rewards.code:compiles(timeout=2)")
    (('safe', 'runs/rm'), ('rm', 'runs/lr=0.1/rm/'), ('compiles', 'my_rewards.code:compiles(timeout=2)'))
    """
    if match := NAMED_SOURCE.fullmatch(text):
        return match[1], match[2]
    return re.split("[/:]", text.partition("(")[0].rstrip("/"))[-1], text


def accepts_argument(folder: str, text: str, name: str) -> bool:
    """Return whether the function that `text` names has an argument `name`."""
    return name in signature(load(folder, parse_spec(text).name)).parameters


def typed_arguments(text: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments of a spec, converted to the types that the function's parameters are annotated with."""
    return typed_values(text, parse_spec(text).arguments, function)


def typed_values(text: str, values: Mapping[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """Return values by parameter, converted to the annotated types. `text` is the function's name in error messages."""
    parameters = signature(function).parameters
    return {name: _value(text, name, str(value), parameters) for name, value in values.items()}


def build(folder: str, text: str, **fixed: Any) -> Any:
    """Call the function that `text` names with its arguments and those in `fixed`, which `text` cannot set."""
    name = parse_spec(text).name
    factory = load(folder, name)
    if plain := plain_form(folder, factory):
        return use_plain(plain, factory, text, typed_arguments(text, factory))
    return call(factory, text, more=signatures(folder) if ":" in name else "", **fixed)


def call(factory: Callable[..., Any], text: str, *, more: str = "", **fixed: Any) -> Any:
    """Call a function with the arguments of a spec and those in `fixed`; `more` is appended to error messages."""
    spec, parameters = parse_spec(text), signature(factory).parameters
    free = {name: parameter for name, parameter in parameters.items() if name not in fixed}
    variadic = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in free.values())
    choices = f"there is {', '.join(free)}" if free else "it has none"
    for name in spec.arguments:
        if name not in free and not variadic:
            raise UsageError(f"{text}: no argument '{name}'; {did_you_mean(name, free, choices)}")
    missing = [name for name, parameter in free.items() if is_required(parameter) and name not in spec.arguments]
    if missing:
        raise UsageError(f"{text}: the argument '{missing[0]}' is missing; write {_example_spec(spec, free)}{more}")
    values = {name: _value(text, name, value, free) for name, value in spec.arguments.items()}
    try:
        return factory(**values, **fixed)
    except (UsageError, CheckFailed):
        raise
    except ValueError as error:
        raise (DataError if isinstance(error, DataError) else UsageError)(f"{text}: {error}") from error
    except Exception as error:
        if ":" not in spec.name:
            raise
        raise UsageError(f"{text} fails ({type(error).__name__}: {error}){more}") from error  # a user's code


def _example_spec(spec: Spec, parameters: Mapping[str, Parameter]) -> str:
    """Return the spec with its required arguments, such as `gate(reward=rm, by=..., threshold=...)`."""
    required = {name: "..." for name, parameter in parameters.items() if is_required(parameter)} | spec.arguments
    return f"{spec.name}({', '.join(f'{name}={value}' for name, value in required.items())})"


# ---- types of arguments ----

TYPES = {NoneType: "None", bool: "True or False", int: "a whole number", float: "a number", str: "text"}
"""Types that a value is converted to, in this order, and their names in messages."""


def _value(text: str, name: str, value: str, parameters: Mapping[str, Parameter]) -> Any:
    """Convert a value to the annotated type, to one of several, or to a list of these; else to a Python literal."""
    kind = parameters[name].annotation if name in parameters else Parameter.empty
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if not all(_item_type(choice) in TYPES for choice in kinds):
        return _parse_literal(value)
    kinds = sorted(kinds, key=lambda choice: [*TYPES].index(_item_type(choice)))
    for choice in kinds:
        with suppress(ValueError):
            return _convert(value, choice)
    expected = (("" if choice in TYPES else "a [list], each ") + TYPES[_item_type(choice)] for choice in kinds)
    raise UsageError(f"{text}: '{name}' must be {' or '.join(expected)}, got '{value}'")


def _item_type(kind: Any) -> Any:
    """Return the type of a list's items, or the type itself."""
    return get_args(kind)[0] if get_origin(kind) in (list, Sequence) else kind


def _convert(value: str, kind: Any) -> Any:
    """Convert a value to one of `TYPES`, or to a list of that type; raise `ValueError` if this fails."""
    if kind not in TYPES:
        items = _parts(value[1:-1]) if value[0] in "[(" else [value]
        return [_convert(item.strip(), _item_type(kind)) for item in items if item.strip()]
    literal = _parse_literal(value)
    if kind in (int, float):
        return kind(value)
    if kind is str:
        return literal if isinstance(literal, str) else value
    if not isinstance(literal, kind):
        raise ValueError
    return literal


def _parse_literal(value: str) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


# ---- own code as plain functions: a function with the signature of a formula is used as it is, without a factory ----


class Plain(NamedTuple):
    """Signature of plain user functions of a registry folder, and their conversion to what its factories return."""

    parameters: tuple[str, ...]
    """Names of the function's first parameters."""
    result: str
    """Description of the return value, for messages."""
    wrap: Callable[[Callable[..., Any]], Any]
    """Converts the function (other arguments bound) to what the registry folder's factories return."""

    def __str__(self) -> str:
        """Return the signature, for messages."""
        return f"({', '.join(self.parameters)}) -> {self.result}"


def plain_forms(folder: str) -> tuple[Plain, ...]:
    """Return the signatures of plain functions, which a registry folder declares as `PLAIN`."""
    return vars(import_module(f"{ROOT}.{folder}")).get("PLAIN", ())


def plain_form(folder: str, function: Callable[..., Any]) -> Plain | None:
    """Return the declared signature of a plain function of this registry folder; None for a factory."""
    names = tuple(signature(function).parameters)
    return next((plain for plain in plain_forms(folder) if names[: len(plain.parameters)] == plain.parameters), None)


def use_plain(plain: Plain, function: Callable[..., Any], text: str, arguments: Mapping[str, Any]) -> Any:
    """Bind the arguments of a spec to a plain function and wrap it; raise `UsageError` if one is unknown or missing."""
    free = dict([*signature(function).parameters.items()][len(plain.parameters) :])
    variadic = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in free.values())
    if unknown := [name for name in arguments if name not in free and not variadic]:
        raise UsageError(f"{text}: no argument '{unknown[0]}'; the function has {', '.join(free) or 'none'}")
    if missing := [name for name, parameter in free.items() if is_required(parameter) and name not in arguments]:
        raise UsageError(f"{text}: the argument '{missing[0]}' is missing; write it in parentheses: {missing[0]}=...")
    bound = update_wrapper(partial(function, **arguments), function)
    bound.__name__ = bound.__qualname__ = text.partition("(")[0].rpartition(":")[2]  # an object has no name
    return plain.wrap(bound)


def is_required(parameter: Parameter) -> bool:
    """Return whether every call must pass the parameter."""
    variadic = parameter.kind in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    return parameter.default is Parameter.empty and not variadic


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function can be called with an argument of this name, also by `**columns`."""
    parameters = signature(function).parameters
    return name in parameters or any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())


def is_reward_function(function: Callable[..., Any]) -> bool:
    """Return whether a user's function returns rewards of `completions`, rather than a model or a function.

    >>> [is_reward_function(function) for function in (lambda completions: [], lambda **columns: [], lambda path: path)]
    [True, True, False]
    """
    kinds = [parameter.kind for parameter in signature(function).parameters.values()]
    return "completions" in signature(function).parameters or kinds == [Parameter.VAR_KEYWORD]


def check_ordered(values: Any) -> Any:
    """Return the values that a user's function returned; raise `TypeError` for a mapping, a set or a text."""
    if isinstance(values, Mapping | Set | str):
        raise TypeError(f"returned a {type(values).__name__}; return a list with one value per completion")
    return values


def bind_arguments(function: Callable[..., Any], text: str) -> Callable[..., Any]:
    """Return a user's function with the arguments of a spec; raise `UsageError` for an unknown one."""
    arguments = typed_arguments(text, function)
    if unknown := [name for name in arguments if not takes(function, name)]:
        names = [*signature(function).parameters]
        hint = did_you_mean(unknown[0], names, f"the function has {', '.join(names)}")
        raise UsageError(f"{text}: no argument '{unknown[0]}'; {hint}")
    return partial(function, **arguments) if arguments else function


def signatures(folder: str) -> str:
    """Return a hint for messages about user code of the wrong form; empty for a folder without plain functions.

    >>> signatures("policy.advantages")
    '; a plain function has the signature (rewards, rollout) -> advantages [N] or [N, L]'
    """
    forms = " or ".join(map(str, plain_forms(folder)))
    return f"; a plain function has the signature {forms}" if forms else ""
