"""Outlines of trainer arguments: dataclasses built from a stored table, so that parsing and help import no trainer.

`python -m rewardlab.apps.settings.trainer_arguments` writes the table for the installed versions.
"""

import json
from dataclasses import MISSING, field, fields, make_dataclass
from enum import Enum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints  # noqa: F401  Literal: in the table

from .help import ESSENTIAL
from .preflight import is_trainers

TABLE = Path(__file__).with_suffix(".json")
Row = dict[str, Any]
READ: dict[tuple[str, str], Any] = {("no", "str | bool"): False, ("", "str | list[str]"): None}
"""(default, type) of fields whose default is changed by parsing -> the default after parsing."""


def outline(name: str) -> type | None:
    """Return a dataclass with the fields of the class of that name. Inherited fields are in a base class.

    None if the stored table lacks the class, or was written for other versions of Transformers and TRL.
    """
    table = stored_table()
    if name not in table or table["versions"] != _versions():
        return None
    space = {"__module__": __name__}  # where the types of the table are resolved
    members = {row["name"]: (row["name"], row["type"], _field(row)) for row in table[name]}
    base = make_dataclass("Inherited", [*members.values()], namespace=dict(space))
    declared = [members[row["name"]] for row in table[name] if row["declared"]]
    return make_dataclass(name, declared, bases=(base,), namespace=dict(space))


@cache
def stored_table() -> dict[str, Any]:
    """Return the stored table: versions of the packages, and for each class one row per field."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def installed_table() -> dict[str, Any]:
    """Return the table of trainer arguments for the installed library versions, one entry per settings class."""
    from ..verbs import VERBS, import_name

    groups = [group for verb in VERBS.values() for group in map(import_name, verb.arguments) if is_trainers(group)]
    return {"versions": _versions()} | {group.__name__: _rows(group) for group in groups}


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("transformers", "trl")}


def _field(row: Row) -> Any:
    value = row["default"]
    default: Any = {"default_factory": value.copy} if isinstance(value, list) else {"default": value}
    return field(metadata=row["metadata"], **default)


def _rows(group: type) -> list[Row]:
    """Return a row for each field, without help texts of inherited fields that the short help page does not show."""
    hints, declared = get_type_hints(group), vars(group)["__annotations__"]
    rows = []
    for item in fields(group):
        value: Any = item.default_factory() if item.default_factory is not MISSING else item.default
        value = value.value if isinstance(value, Enum) else value
        explained = item.name in ESSENTIAL or item.name in declared
        metadata = {key: text for key, text in item.metadata.items() if key != "help" or explained}
        if "choices" in metadata:
            metadata["choices"] = [*metadata["choices"]]
        kind = _type(hints[item.name])
        row = {"name": item.name, "type": kind, "default": READ.get((str(value), kind), value)}
        rows.append(row | {"declared": item.name in declared, "metadata": metadata})
    return rows


def _type(hint: Any) -> str:
    """Return a type annotation as text. Types that no flag can have are replaced by `str`.

    >>> _type(int | None), _type(dict[str, Any] | str | None), _type(list[float]), _type(Literal[False])
    ('int | None', 'dict | str | None', 'list[float]', 'str')
    """
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return " | ".join(map(_type, arguments))
    if kind is list:
        return f"list[{'float' if arguments == (float,) else 'str'}]"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"Literal{[member.value for member in kind]}"
    return {NoneType: "None", bool: "bool", int: "int", float: "float", dict: "dict"}.get(kind, "str")


def write_table() -> None:
    """Write the table of trainer arguments for the installed library versions, one line per argument."""
    parts = []
    for name, value in installed_table().items():
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in value) if isinstance(value, list) else ""
        parts.append(f'"{name}": ' + (f"[\n{lines}\n]" if lines else json.dumps(value)))
    TABLE.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    write_table()
