"""Verbs of the command line as function calls: keyword arguments become settings, with the same checks and errors."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ...rm.errors import CheckFailed, DataError, UsageError, did_you_mean
from ...rm.registry import reference
from ...rm.registry.settings import Settings
from ...rm.types import RewardModel
from ..installation.libraries import explained_imports, quiet_libraries
from ..runs.run_folder import COMMAND, SHOWS_REPORTS
from ..settings.preflight import check_ranges
from ..verbs import VERBS, import_name
from .inputs import path_of

FLAG = re.compile(r"--(?=[A-Za-z]\w)")
F = TypeVar("F", bound=Callable[..., Any])


def call(verb: str, settings: Mapping[str, Any], function: Callable[..., Any] | None = None) -> Any:
    """Run a verb (a command such as `train`) with settings by name and return its result. None means the default.

    `function` replaces the verb's function, to return another result from the same settings.

    Raises `UsageError`, `DataError` or `CheckFailed` where the command line exits with 2, 3 or 5.
    """
    with python_setting_names(), quiet_libraries():
        groups = parse_settings(verb, {name: value for name, value in settings.items() if value is not None})
        VERBS[verb].validate(groups)
        shows_reports, command = SHOWS_REPORTS.set(False), COMMAND.set(None)
        try:
            with _stdout_as_stderr(), explained_imports():
                run = function or import_name(f".{VERBS[verb].function}")
                with quiet_libraries():  # again: the settings or the function's module may have imported Transformers
                    return run(*groups)
        finally:
            SHOWS_REPORTS.reset(shows_reports)
            COMMAND.reset(command)


def _stdout_as_stderr() -> contextlib.AbstractContextManager[Any]:
    """Write to stderr what is printed within the block. A call in another thread may have redirected stdout already."""
    return contextlib.nullcontext() if sys.stdout is sys.stderr else contextlib.redirect_stdout(sys.stderr)


@contextlib.contextmanager
def python_setting_names() -> Iterator[None]:
    """Name settings in messages as Python arguments within the block: `learning_rate` instead of `--learning_rate`."""
    try:
        yield
    except (UsageError, DataError, CheckFailed) as error:
        if FLAG.search(str(error)):
            error.args = (FLAG.sub("", str(error)),)
        raise


def parse_settings(verb: str, settings: Mapping[str, Any]) -> list[Any]:
    """Return the verb's settings dataclasses, filled from the keyword arguments."""
    classes, values = VERBS[verb].settings, dict(settings)
    groups = []
    for group in classes:
        names = {field.name for field in fields(group) if field.init}
        given_here = {name: values.pop(name) for name in [*values] if name in names}
        hints = get_type_hints(group) if group.__module__.startswith(str(__package__).partition(".")[0]) else {}
        checked = {name: _convert_setting(name, value, hints.get(name)) for name, value in given_here.items()}
        check_ranges(group, checked)
        groups.append(group(**checked))
    if values:
        choices = [field.name for group in classes for field in fields(group) if field.init]
        name = next(iter(values))
        raise UsageError(f"{verb} has no setting '{name}'; {did_you_mean(name, choices, 'see help() of the function')}")
    return groups


def _convert_setting(name: str, value: Any, hint: Any) -> Any:
    """Convert a value to the type of its setting, as the command line does, and check it."""
    value = plain_value(value)
    if hint is None:
        return value
    if get_origin(hint) is list:
        value = [f"{key}={item}" for key, item in value.items()] if isinstance(value, Mapping) else value
        value = [value] if isinstance(value, str) else value
    elif isinstance(value, Mapping) and not _takes_mapping(hint):
        value = ",".join(f"{key}={item}" for key, item in value.items())
    from pydantic import TypeAdapter, ValidationError  # half a second, which importing the package does not pay

    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UsageError(f"{name}: {reason[0].lower()}{reason[1:]}, got {value!r}") from None


def _takes_mapping(hint: Any) -> bool:
    """Return whether a type is a dictionary, or one of several types that is, as in settings of Transformers."""
    return dict in {get_origin(kind) or kind for kind in get_args(hint)} or dict in (hint, get_origin(hint))


def plain_value(value: Any) -> Any:
    """Convert paths to strings, and functions to names that the registries resolve, also in lists and mappings.

    A loaded reward model becomes the path that it was loaded from.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if (path := path_of(value)) is not None:
        return path
    if callable(value) and not isinstance(value, type):
        return reference(value)
    if isinstance(value, RewardModel):
        raise UsageError(f"{value!r:.80} was not loaded from a folder; give its folder, or a function of completions")
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    return [plain_value(item) for item in value] if isinstance(value, list | tuple) else value


def add_verb_settings(verb: str) -> Callable[[F], F]:
    """Return a decorator that adds the verb's settings to the signature of a function."""

    def decorate(function: F) -> F:
        declared = signature(function)
        first = [parameter for parameter in declared.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD]
        positional = {parameter.name for parameter in first}
        settings = [parameter for parameter in _parameters(verb) if parameter.name not in positional]
        rest = [parameter for parameter in declared.parameters.values() if parameter.kind is Parameter.VAR_KEYWORD]
        function.__signature__ = Signature([*first, *settings, *rest], return_annotation=declared.return_annotation)  # type: ignore[attr-defined]
        return function

    return decorate


def _parameters(verb: str) -> Iterator[Parameter]:
    """Yield the settings of a verb as parameters. Those of trainers are left out."""
    groups: list[Any] = [group for group in VERBS[verb].outlines if issubclass(group, Settings)]
    for field in (field for group in groups for field in fields(group)):
        default = field.default_factory() if callable(field.default_factory) else field.default
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
