"""Fields of settings with their help texts, and checks that several verbs share."""

from collections.abc import Sequence
from dataclasses import field, fields
from typing import Any, ClassVar, get_origin

from ...rm.errors import UsageError


def setting(
    help: str,
    *,
    group: str = "",
    choices: Sequence[str] = (),
    registry: str = "",
    advanced: bool = False,
    **default: Any,
) -> Any:
    """Return a dataclass field with a help text, and how the help page shows it.

    `group` is the heading of this setting and of those that follow; `choices` are its values, or `registry` is the
    folder whose entries they are; an `advanced` setting is shown by `--help-all` only.
    """
    shown = {"group": group, "listed": tuple(choices), "registry": registry, "advanced": advanced}
    return field(metadata={"help": help} | {name: value for name, value in shown.items() if value}, **default)


class Settings:
    """Base of the dataclasses of settings: a single value for a list is a list of one, and None an empty list."""

    required: ClassVar[tuple[str, ...]] = ()
    """Settings without which the verb does not start."""

    def __post_init__(self) -> None:
        for declared in fields(self):
            if get_origin(declared.type) is list:
                setattr(self, declared.name, as_list(getattr(self, declared.name)))

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        for name in self.required:
            given(name, getattr(self, name))


def changed_settings(settings: Any) -> dict[str, Any]:
    """Return the settings of a dataclass that are not the defaults."""
    defaults = type(settings)()
    return {
        name: value
        for name, value in vars(settings).items()
        if name in settings.__dataclass_fields__ and value != getattr(defaults, name)
    }


def as_list(value: str | list[str] | None) -> list[str]:
    """Return a list; a string becomes a list with one item, None an empty list."""
    return [value] if isinstance(value, str) else list(value or [])


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise a `UsageError` if the value is not among the choices."""
    if value not in choices:
        raise UsageError(f"--{name} is one of {', '.join(choices)}, got '{value}'")


def given(name: str, value: Any) -> None:
    """Raise a `UsageError` if the setting is missing."""
    if not value:
        raise UsageError(f"--{name} is missing")
