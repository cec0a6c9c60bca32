"""Help page of a verb: a sentence, an example, and its settings by subject with choices and defaults."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from enum import Enum
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from ...rm.registry import names
from .preflight import is_trainers

WIDTH, INDENT = 132, 34
ESSENTIAL = (
    *("learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("num_generations", "max_completion_length", "num_iterations", "seed"),
)
"""Inherited trainer settings that every user needs."""
TRAINER = "Trainer settings of Transformers and TRL"


class SettingLine(NamedTuple):
    """A setting on the help page."""

    group: str
    name: str
    value: str
    """Placeholder of the value. Empty for a flag without a value."""
    text: str
    advanced: bool


def help_page(description: str, example: str, usage: str, classes: Sequence[type], *, everything: bool = False) -> str:
    """Render the help page. Without `everything`, advanced and inherited trainer settings are only counted."""
    lines = [line for group in classes for line in _lines(group)]
    visible = [line for line in lines if everything or not line.advanced]
    page = [f"usage: {usage}", "", description, "", "Example:", f"  {example}"]
    for group in dict.fromkeys(line.group for line in visible):
        page += [f"{group}:", *(text for line in visible if line.group == group for text in _render_line(line))]
    hidden = len(lines) - len(visible)
    page.append("Settings may be given in a YAML file: --config FILE; flags override it.")
    return "\n".join([*page, *([f"--help-all shows {hidden} more."] if hidden else [])])


def _lines(group: type) -> Iterator[SettingLine]:
    """Yield the lines of the help page for the settings of a dataclass."""
    hints = get_type_hints(group)
    inherited = {name for base in group.__mro__[1:] for name in get_annotations(base)}
    subject, trainer = "Settings", is_trainers(group)
    ordered = fields(group) if trainer else sorted(fields(group), key=lambda field: field.name in inherited)
    for field in ordered:
        if not field.init:
            continue
        declared = not trainer or field.name not in inherited or field.name in get_annotations(group)
        subject = TRAINER if trainer else field.metadata.get("group") or subject
        advanced = field.name not in ESSENTIAL if trainer else bool(field.metadata.get("advanced"))
        text = _text(field, hints[field.name], declared)
        yield SettingLine(subject, field.name, _value_form(hints[field.name]), text, advanced)


def _value_form(hint: Any) -> str:
    """Return the metavar of a type's values: `N` for integers, `X` for floats, else `TEXT`; dots mark a list.

    >>> [_value_form(hint) for hint in (int, float | None, list[str], bool)]
    ['N', 'X', 'TEXT ...', '']
    """
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    option = next(option for option in options if option is not NoneType)
    if get_origin(option) is list:
        return f"{_value_form(get_args(option)[0])} ..."
    return {int: "N", float: "X", bool: ""}.get(option, "TEXT")


def _text(field: Field, hint: Any, declared: bool) -> str:
    text = " ".join(str(field.metadata.get("help", "")).split()).replace("%%", "%")
    if not declared:  # first sentence of a library's text
        text = text.split(". ")[0].rstrip(".") + "."
    choices = _choices(field, hint)
    default = _default(field)
    notes = [f"one of {', '.join(choices)}"] if choices else []
    notes += [f"default {default}"] if default else []
    return f"{text.rstrip('.')} ({'; '.join(notes)})." if notes else text


def _choices(field: Field, hint: Any) -> Sequence[str]:
    if registry := field.metadata.get("registry"):
        return names(registry)
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    literal = next((option for option in options if get_origin(option) is Literal), None)
    return field.metadata.get("listed") or [str(value) for value in get_args(literal)]


def _default(field: Field) -> str:
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    if value is MISSING or value is None or value is False or value == "" or value == []:
        return ""
    if isinstance(value, float) and math.isinf(value):
        return "no limit"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value.value if isinstance(value, Enum) else value)


def _render_line(line: SettingLine) -> list[str]:
    head = f"  --{line.name} {line.value}".rstrip()
    body = textwrap.wrap(line.text, WIDTH - INDENT, break_on_hyphens=False) or [""]
    first = f"{head:<{INDENT - 1}} {body[0]}"
    return [first.rstrip(), *(" " * INDENT + part for part in body[1:])]
