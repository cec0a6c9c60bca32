"""TRL's dataclass parser with strict checks: repeated list flags are joined, and values are checked while parsing."""

import argparse
from typing import Any, NoReturn

from trl import TrlParser
from trl.scripts._hf_argparser import string_to_bool

from ...rm.errors import UsageError
from ...rm.registry.settings import DECLARED
from .aliases import translate_config
from .preflight import check_ranges

ONCE = ("data",)
"""Settings with one value that must not be repeated, because argparse would silently drop the first value."""


class Extend(argparse.Action):
    """Argparse action that reads `--data a --data b` as `--data a b`. Flags replace a default or YAML list."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Append the values to those of earlier flags."""
        values_before, added = vars(namespace)[self.dest], list(values or ())
        setattr(namespace, self.dest, added if values_before is self.default else [*values_before, *added])


class Once(argparse.Action):
    """Argparse action of a setting that must not be repeated."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Store the value. Raise `UsageError` for a second value."""
        value_before = vars(namespace)[self.dest]
        if value_before is not self.default:
            raise UsageError(f"--{self.dest} takes one file here, got {value_before} and {values}; give one of them")
        setattr(namespace, self.dest, values)


class SettingsParser(TrlParser):
    """Parser of a verb's settings, from a YAML file and flags."""

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument. Repeating it extends a list, or is an error for a setting in `ONCE`."""
        for option in DECLARED:
            options.pop(option, None)
        if "action" not in options and options.get("nargs") in ("+", "*"):
            options["action"] = Extend
        elif "action" not in options and names and names[0].lstrip("-") in ONCE:
            options["action"] = Once
        if options.get("type") is string_to_bool:  # True, False, or the flag alone; of `bool | None` too
            options = {"nargs": "?", "const": True} | options
        return super().add_argument(*names, **options)

    def set_defaults_with_config(self, **kwargs: Any) -> list[str]:
        """Set defaults from a YAML file with rewardlab's or TRL's names of settings."""
        return super().set_defaults_with_config(**translate_config(kwargs, [action.dest for action in self._actions]))

    def parse_known_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parse the arguments, and check types and ranges before dataclasses are created from them."""
        values, rest = super().parse_known_args(args, namespace)
        settings = vars(values)
        for action in self._actions:
            _check_kind(action, settings.get(action.dest))
        for group in self.dataclass_types:
            check_ranges(group, settings)
        return values, rest

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with the message. Argparse would print the usage of all settings."""
        raise UsageError(message)


def _check_kind(action: argparse.Action, value: Any) -> None:
    """Raise `UsageError` for a YAML value of a wrong type or not in the choices. Argparse checks only flags."""
    if action.nargs is None and action.type in (int, float, str) and isinstance(value, list):
        raise UsageError(f"--{action.dest} takes one value, got the list {value}")
    if action.type is int and isinstance(value, float):
        raise UsageError(f"--{action.dest} is a whole number, got {value}")
    if action.choices and value is not None and not isinstance(value, list) and value not in action.choices:
        raise UsageError(f"--{action.dest} is one of {', '.join(map(str, action.choices))}, got '{value}'")
