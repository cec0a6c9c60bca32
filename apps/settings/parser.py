"""TRL's parser of dataclasses, made strict: lists add up, and numbers are checked before any dataclass is filled."""

import argparse
from typing import Any, NoReturn

from trl import TrlParser

from ...rm.errors import UsageError
from .ranges import check_ranges

ONCE = ("data",)
"""Settings of one value that must not be given twice: the first would be dropped."""


class Extend(argparse.Action):
    """`--data a --data b` is `--data a b`; the first replaces the default or the YAML file's list."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Add the values to those of the flags before."""
        given, added = getattr(namespace, self.dest), list(values or ())
        setattr(namespace, self.dest, added if given is self.default else [*given, *added])


class Once(argparse.Action):
    """A setting that takes one value."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Keep the value; a second one is refused."""
        given = getattr(namespace, self.dest)
        if given is not self.default:
            raise UsageError(f"--{self.dest} takes one file here, got {given} and {values}; give one of them")
        setattr(namespace, self.dest, values)


class SettingsParser(TrlParser):
    """Settings of one verb from a YAML file and flags."""

    def __init__(self, verb: str, *arguments: Any, **options: Any):
        self.verb = verb
        super().__init__(*arguments, **options)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Lists add up, and a second file where one is taken is refused."""
        if "action" not in options and options.get("nargs") in ("+", "*"):
            options["action"] = Extend
        elif "action" not in options and names and names[0].lstrip("-") in ONCE:
            options["action"] = Once
        return super().add_argument(*names, **options)

    def parse_known_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parse, and check what was given before the dataclasses compute with it."""
        values, rest = super().parse_known_args(args, namespace)
        settings = vars(values)
        for action in self._actions:
            _check_kind(action, settings.get(action.dest))
        check_ranges(self.verb, settings)
        return values, rest

    def error(self, message: str) -> NoReturn:
        """Argparse would print the usage of a hundred settings."""
        raise UsageError(message)


def _check_kind(action: argparse.Action, value: Any) -> None:
    """Refuse a YAML value that argparse does not convert: a list for one value, a fraction for a whole number."""
    if action.nargs is None and action.type in (int, float, str) and isinstance(value, list):
        raise UsageError(f"--{action.dest} takes one value, got the list {value}")
    if action.type is int and isinstance(value, float):
        raise UsageError(f"--{action.dest} is a whole number, got {value}")
