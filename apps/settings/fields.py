"""Fields of settings with their help texts, and checks that several verbs share."""

from dataclasses import field
from typing import Any

from ...rm.errors import UsageError


def setting(help: str, **default: Any) -> Any:
    """A field with its help text."""
    return field(metadata={"help": help}, **default)


def as_list(value: str | list[str] | None) -> list[str]:
    """One as a list of one."""
    return [value] if isinstance(value, str) else list(value or [])


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse another value."""
    if value not in choices:
        raise UsageError(f"--{name} is one of {', '.join(choices)}, got '{value}'")


def given(name: str, value: Any) -> None:
    """Refuse a setting that is missing."""
    if not value:
        raise UsageError(f"--{name} is missing")
