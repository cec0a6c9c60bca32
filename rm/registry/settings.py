"""Declarations of settings: name, type, default, range, choices, help text, and invalid combinations.

A setting is declared once, as a field of a dataclass. Flags, YAML files, the help page, the Python API's signature
and checks are derived from the declaration. Does not import torch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields
from string import Formatter
from typing import Any, ClassVar, NamedTuple, get_origin

from ..errors import UsageError


class Range(NamedTuple):
    """Interval of numbers that a setting accepts; `text` describes it in error messages."""

    text: str
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """Whether the lower bound is excluded."""
    below: bool = False
    """Whether the upper bound is excluded."""
    nan: bool = False
    """Whether NaN is accepted too."""

    def holds(self, value: float) -> bool:
        """Return whether the value is in the range."""
        if math.isnan(value):
            return self.nan
        low = self.low < value if self.above else self.low <= value
        return low and (value < self.high if self.below else value <= self.high)


DTYPES = ("float32", "bfloat16", "float16")
"""Precisions of the weights of a loaded model."""
LARGEST_SEED = 2**32 - 1

AT_LEAST_0 = Range("at least 0 and finite", 0, below=True)
AT_LEAST_1 = Range("at least 1", 1, below=True)
AT_LEAST_2 = Range("at least 2", 2, below=True)
ABOVE_0 = Range("above 0 and finite", 0, above=True, below=True)
ABOVE_0_OR_INF = Range("above 0", 0, above=True)
A_NUMBER = Range("a number")
FINITE_OR_NAN = Range("a finite number, or nan", above=True, below=True, nan=True)
FINITE = Range("a finite number", above=True, below=True)
SHARE = Range("a share in [0, 1]", 0, 1)
SHARE_ABOVE_0 = Range("a share in (0, 1]", 0, 1, above=True)
SHARE_BELOW_1 = Range("a share in [0, 1)", 0, 1, below=True)
PORT = Range("a port in 0..65535", 0, 65_535)
SEED = Range(f"a whole number in 0..{LARGEST_SEED}", 0, LARGEST_SEED)
RANK = Range("a rank in 1..65536", 1, 65_536)
STEPS = Range("at least 1, or -1 for the steps of all epochs", 1, below=True)
SECONDS = Range("above 0 seconds", 0, above=True)


DECLARED = ("group", "listed", "registry", "advanced", "range", "requires", "suffixes")
"""Keys of a declaration in its field's metadata, besides the help text."""


def setting(
    default: Any,
    help: str,
    *,
    group: str = "",
    choices: Sequence[str] = (),
    registry: str = "",
    range: Range | None = None,
    requires: str = "",
    suffixes: tuple[str, ...] = (),
    advanced: bool = False,
) -> Any:
    """Return a dataclass field with a default, a help text, its accepted values, and how the help page shows it.

    `group` is the heading of this and the following settings. `choices` are the accepted values, or `registry` is the
    folder whose entries are accepted. `range` bounds a number. `requires` names another setting that must be set too.
    `suffixes` are those that a file name may have. An `advanced` setting is shown by `--help-all` only.
    """
    values = (group, tuple(choices), registry, advanced, range, requires, suffixes)
    declared = {name: value for name, value in zip(DECLARED, values, strict=True) if value}
    options: dict[str, Any] = {"default_factory": default.copy} if isinstance(default, list) else {"default": default}
    return field(metadata={"help": help} | declared, **options)


class Rule(NamedTuple):
    """An invalid combination of settings, and its error message."""

    refused: Callable[[Any], object]
    """Function that returns a true value for invalid settings."""
    message: str
    """What is wrong and the remedy; `{name}` stands for the value of a setting or of a property of the settings."""

    def check(self, settings: Any) -> None:
        """Raise a `UsageError` if the settings are this invalid combination."""
        if self.refused(settings):
            names = [name for _, name, _, _ in Formatter().parse(self.message) if name]
            raise UsageError(self.message.format_map({name: _text(getattr(settings, name)) for name in names}))


class Settings:
    """Base class of settings dataclasses.

    In a field of list type, a single value becomes a list of one item, and None an empty list.
    """

    required: ClassVar[tuple[str, ...]] = ()
    """Names of the required settings of a command."""
    rules: ClassVar[tuple[Rule, ...]] = ()
    """Invalid combinations of settings, in addition to those of base classes."""

    def __post_init__(self) -> None:
        for name, declared in declarations(type(self)).items():
            if get_origin(declared.type) is list:
                setattr(self, name, as_list(vars(self)[name]))

    def validate(self) -> None:
        """Raise `UsageError` if a setting is missing, has an invalid value, or contradicts another setting."""
        for name in self.required:
            require_setting(name, vars(self)[name])
        check_values(self)
        self._check_requirements()
        for rule in (rule for base in reversed(type(self).__mro__) for rule in vars(base).get("rules", ())):
            rule.check(self)

    def _check_requirements(self) -> None:
        """Raise `UsageError` for a changed setting that requires another setting which is not set."""
        declared = declarations(type(self))
        for name in changed_settings(self):
            other = declared[name].metadata.get("requires", "")
            if other in declared and not vars(self)[other]:
                raise UsageError(f"--{name} belongs to --{other}; add --{other}, or remove --{name}")


def _text(value: object) -> str:
    """Return the value of a setting as text for error messages."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else text


def declarations(settings: type) -> Mapping[str, Field]:
    """Return the fields of a dataclass of settings by name."""
    return {declared.name: declared for declared in fields(settings)}


def heading(settings: type, name: str) -> str:
    """Return the group of a setting: the last group that its class declares up to this setting."""
    owner = next(base for base in settings.__mro__ if name in vars(base).get("__annotations__", {}))
    names = [*vars(owner)["__annotations__"]]
    groups = (
        declarations(settings)[other].metadata.get("group")
        for other in names[: names.index(name) + 1]
        if other in declarations(settings)
    )
    return [group for group in ("", *groups) if group is not None][-1]


def changed_settings(settings: Any) -> dict[str, Any]:
    """Return the settings of a dataclass that are not the defaults."""
    defaults = type(settings)()
    return {
        name: value
        for name, value in vars(settings).items()
        if name in settings.__dataclass_fields__ and value != getattr(defaults, name)  # trainers set some later
    }


def check_values(settings: Any) -> None:
    """Raise a `UsageError` for a value that its setting's choices, range or suffixes exclude."""
    for name, declared in declarations(type(settings)).items():
        value, choices, suffixes = vars(settings)[name], *map(declared.metadata.get, ("listed", "suffixes"))
        for item in as_list(value) if choices and value != declared.default else ():
            one_of(name, item, choices)
        if suffixes and value and not value.endswith(suffixes):
            raise UsageError(f"--{name} must end with {' or '.join(suffixes)}, got '{value}'")
        check_number(declared, value)


def check_number(declared: Field, value: object, of_trainer: Range = A_NUMBER) -> None:
    """Raise `UsageError` for a number outside the range of its setting, or outside `of_trainer` for a trainer argument.

    The default is accepted, and values that are not numbers are not checked.
    """
    allowed = declared.metadata.get("range", of_trainer)
    if isinstance(value, int | float) and value != declared.default and not allowed.holds(value):
        raise UsageError(f"--{declared.name} must be {allowed.text}, got {value}")


def as_list(value: str | list[str] | None) -> list[str]:
    """Return a list; a string becomes a list with one item, None an empty list."""
    return [value] if isinstance(value, str) else list(value or [])


def one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise a `UsageError` if the value is not among the choices."""
    if value not in choices:
        raise UsageError(f"--{name} must be one of {', '.join(choices)}, got '{value}'")


def require_setting(name: str, value: Any) -> None:
    """Raise a `UsageError` if the setting is missing."""
    if not value:
        raise UsageError(f"--{name} is missing")
