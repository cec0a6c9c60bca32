"""JSON, TOML and YAML from outside: what cannot be read is a `ValueError`, however it is wrong."""

import json
import re
import tomllib
from typing import Any


class RepeatedKeyError(ValueError):
    """A JSON object names a key twice: of its values a parser would silently keep the last."""


BRACKET = re.compile(r"[\[\]{}]")
DEPTH = 200
"""Brackets in brackets of a YAML document; Python's own limit on JSON is of the same order."""
LARGEST = 100_000
"""Values of a YAML document, with those that are in several places counted in each."""


def from_json(text: str | bytes) -> Any:
    """A JSON value; a `ValueError` says what is wrong.

    >>> from_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: its brackets are nested too deeply
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def from_json_row(text: str) -> Any:
    """A JSON value none of whose objects names a key twice; a `ValueError` says what is wrong.

    >>> from_json_row('{"prompt": "a", "prompt": "b"}')
    Traceback (most recent call last):
    rewardlab.rm.io.checked_files.RepeatedKeyError: duplicate key: 'prompt' stands twice in one object; keep one of them
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise RepeatedKeyError(f"duplicate key: '{repeated}' stands twice in one object; keep one of them")
    return mapping


def from_toml(text: str) -> dict[str, Any]:
    """A TOML document; a `ValueError` says what is wrong."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def from_yaml(text: str) -> Any:
    """A YAML document of plain values; a `ValueError` says what is wrong.

    Values that are in several places by an alias are counted in each: nine lines can name a billion of them.

    >>> from_yaml("a: [1, 2]")
    {'a': [1, 2]}
    >>> from_yaml("!!python/object/apply:os.system [ls]")
    Traceback (most recent call last):
    ValueError: could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/apply:os.system' ...
    """
    import yaml

    _check_depth(text)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None and _size(node, {}) > LARGEST:
            raise ValueError(f"its aliases name more than {LARGEST:,} values")
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None
    except (ArithmeticError, TypeError, AttributeError, LookupError) as error:  # a date or number that is none
        raise ValueError(f"a value that does not exist ({error})") from error


def _check_depth(text: str) -> None:
    """PyYAML takes the square of the number of open brackets, before it finds them too many."""
    depth = 0
    for bracket in BRACKET.finditer(text):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEPTH:
            raise ValueError("its brackets are nested too deeply")


def _size(node: Any, known: dict[int, float]) -> float:
    """Values below a node, each as often as it is named; infinite where one holds itself."""
    if id(node) not in known:
        known[id(node)] = float("inf")  # as long as it is being counted
        below = [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]
        known[id(node)] = 1 + sum(_size(child, known) for child in below) if isinstance(node.value, list) else 1
    return known[id(node)]
