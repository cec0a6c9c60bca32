"""Parse JSON, TOML and YAML from untrusted files: every failure is a `ValueError`."""

import json
import re
import tomllib
from typing import Any


class RepeatedKeyError(ValueError):
    """Raised for a JSON object with a duplicate key, of which a parser would silently keep only the last value."""


BRACKET = re.compile(r"[\[\]{}]")
DEPTH = 200
"""Maximum nesting depth of a YAML document; Python's limit for JSON is of the same order."""
LARGEST = 100_000
"""Maximum number of values of a YAML document; aliased values count once per use."""


def from_json(text: str | bytes, **options: Any) -> Any:
    """Parse a JSON value; raise `ValueError` if it is invalid. `options` are those of `json.loads`.

    >>> from_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: its brackets are nested too deeply
    """
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def from_json_lines(text: str) -> list[Any]:
    r"""Parse the JSON values of a text, one per line; raise `ValueError` if one is invalid.

    Only a line feed ends a line: `str.splitlines` also ends one at U+2028 and the like, which may occur in strings.

    >>> from_json_lines('{"text": "one\u2028line"}\n2\n')
    [{'text': 'one\u2028line'}, 2]
    """
    return [from_json(line) for line in text.split("\n") if line]


def from_json_row(text: str) -> Any:
    """Parse a JSON value; raise `ValueError` if it is invalid or one of its objects has a duplicate key.

    >>> from_json_row('{"prompt": "a", "prompt": "b"}')
    Traceback (most recent call last):
    rewardlab.rm.io.checked_files.RepeatedKeyError: duplicate key: 'prompt' occurs twice in one object; keep one of them
    """
    return from_json(text, object_pairs_hook=_unique_keys)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values; raise `RepeatedKeyError` for a duplicate key."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise RepeatedKeyError(f"duplicate key: '{repeated}' occurs twice in one object; keep one of them")
    return mapping


def from_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document; raise `ValueError` if it is invalid."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def from_yaml(text: str) -> Any:
    """Parse a YAML document of plain values; raise `ValueError` if it is invalid or a mapping has a duplicate key.

    Aliased values count once per use: nine lines can refer to a billion values.

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
            raise ValueError(f"its aliases expand to more than {LARGEST:,} values")
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None
    except (ArithmeticError, TypeError, AttributeError, LookupError) as error:  # an invalid date or number
        raise ValueError(f"a value that does not exist ({error})") from error


def _check_depth(text: str) -> None:
    """Check the nesting depth before PyYAML parses a text, since its time is quadratic in the open brackets."""
    depth = 0
    for bracket in BRACKET.finditer(text):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEPTH:
            raise ValueError("its brackets are nested too deeply")


def _size(node: Any, sizes: dict[int, float]) -> float:
    """Return the number of values below a node, counted once per use; infinite for a node that contains itself.

    Raise `RepeatedKeyError` for a mapping with a duplicate key.
    """
    if id(node) not in sizes:
        if node.id == "mapping":
            _unique_keys([(key.value, None) for key, _ in node.value if isinstance(key.value, str)])
        sizes[id(node)] = float("inf")  # while it is being counted, so that cycles are infinite
        below = [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]
        sizes[id(node)] = 1 + sum(_size(child, sizes) for child in below) if isinstance(node.value, list) else 1
    return sizes[id(node)]
