"""Compare an inventory with the baseline and the accepted differences; write inventories that read well in a diff."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).parent
BASELINE, ACCEPTED = FOLDER / "baseline.json", FOLDER / "accepted.yaml"


class Accepted(NamedTuple):
    """A sentence of the changelog, and the entries of the inventory that it is about."""

    changelog: str
    """Some words of the sentence, as they stand in CHANGELOG.md."""
    entries: Mapping[str, str | None]
    """Entry -> its present value; None if it is gone."""


def flat(value: Any, *names: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of an inventory by their path; a list and each name in it are entries without a value.

    >>> dict(flat({"verbs": {"score": {"--data": "str = ''"}}, "extras": ["serve"]}))
    {'verbs / score / --data': "str = ''", 'extras': '', 'extras / serve': ''}
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(inner, *names, name)
    else:
        yield " / ".join(names), value if isinstance(value, str) else ""
        yield from ((" / ".join((*names, name)), "") for name in value if isinstance(value, list))


def read_baseline() -> dict[str, Any]:
    """Return the inventory of the version that the product is compared with."""
    return json.loads(BASELINE.read_text(encoding="utf-8"))


def read_accepted() -> list[Accepted]:
    """Return the differences that are on purpose."""
    return [Accepted(**row) for row in yaml.safe_load(ACCEPTED.read_text(encoding="utf-8"))]


def expected(baseline: Mapping[str, str], accepted: Sequence[Accepted]) -> dict[str, str]:
    """Return the baseline's entries with the accepted differences."""
    changed = {name: value for difference in accepted for name, value in difference.entries.items()}
    return {name: value for name, value in ({**baseline} | changed).items() if value is not None}


def differences(expected: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return the differences as lines of `accepted.yaml`, in alphabetical order.

    >>> differences({"a": "1", "b": ""}, {"a": "2", "c": ""})
    ['a: "2"  # "1" before', 'b: null  # removed', 'c: ""  # added']
    """
    lines = []
    for name in sorted({*expected, *present}):
        before, now = expected.get(name), present.get(name)
        if before != now:
            note = "added" if before is None else "removed" if now is None else f"{quoted(before)} before"
            lines.append(f"{quoted(name) if ': ' in name else name}: {quoted(now)}  # {note}")
    return lines


def quoted(value: str | None) -> str:
    """Return a value as YAML has it."""
    return json.dumps(value, ensure_ascii=False)


def refusal(lines: Sequence[str]) -> str:
    """Return the sentence about differences that nobody has accepted."""
    return (
        f"{len(lines)} entries of the inventory differ from what is recorded: restore them, or write the change into "
        f"CHANGELOG.md, and these lines under its words into {ACCEPTED.relative_to(FOLDER.parents[1])}:\n"
        + "\n".join(lines)
    )


def written(value: Any, indent: str = "") -> str:
    """Return an inventory as JSON with a line for each entry, and one for each list.

    >>> print(written({"b": {"y": "1"}, "a": ["x", "z"]}))
    {
     "a": ["x", "z"],
     "b": {
      "y": "1"
     }
    }
    """
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    inner = ",\n".join(f"{indent} {quoted(name)}: {written(value[name], indent + ' ')}" for name in sorted(value))
    return f"{{\n{inner}\n{indent}}}" if value else "{}"
