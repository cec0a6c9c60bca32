"""Summary that a verb prints on a terminal at its end: results in a few lines, and the next command."""

from collections.abc import Mapping
from typing import Any

MOST_LINES = 10
NEXT = {
    "world": "rewardlab train --model {world}/policy --data {world}/train.jsonl --output runs/rm",
    "lint": "rewardlab train --data FILE --output runs/rm",
    "train": "rewardlab eval --model {model} --data FILE --output runs/eval",
    "merge": "rewardlab parity {model}",
    "eval": "rewardlab inspect {run}",
    "judge": "rewardlab inspect {run}",
    "judge train": "rewardlab judge --local {judge} --kind generative --data FILE --output runs/judged",
    "board": "rewardlab inspect runs",
    "label": "rewardlab train --data {output}/pairs.jsonl --output runs/rm",
    "rl": "rewardlab inspect {output}",
    "sft": "rewardlab sample --base {policy} --data FILE --reward NAME=MODEL --output runs/samples",
    "dpo": "rewardlab sample --base {policy} --data FILE --reward NAME=MODEL --output runs/samples",
    "decode": "rewardlab inspect {output}",
}
"""Verb -> the next command, with values of its summary in braces."""


def summary_lines(verb: str, result: Any) -> list[str]:
    """Return at most ten lines: names and values of the result (nested names as `name.part`), and the next command."""
    values = dict(_flat(result)) if isinstance(result, Mapping) else {}
    following = _next_steps(verb, result)
    most = MOST_LINES - len(following)
    lines = [f"{name}: {short_text(value)}" for name, value in values.items()]
    if len(lines) > most:
        lines = [*lines[: most - 1], f"... {len(lines) - most + 1} more with --json"]
    return [*lines, *following]


def _next_steps(verb: str, result: Any) -> list[str]:
    try:
        return [f"next: {NEXT[verb].format(**result)}"] if "{output}" not in NEXT[verb] or result["output"] else []
    except (KeyError, TypeError):
        return []


def _flat(values: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Flatten nested mappings to names and values. An interval (value, low, high) is one value."""
    flat: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping) and {"value", "low", "high"} <= value.keys():
            number, low, high = ("–" if value[end] is None else f"{value[end]:.3f}" for end in ("value", "low", "high"))
            flat.append((f"{above}{name}", f"{number} [{low}, {high}]"))
        elif isinstance(value, Mapping):
            flat += _flat(value, f"{above}{name}.")
        elif value not in (None, [], ""):
            flat.append((f"{above}{name}", value))
    return flat


def short_text(value: Any) -> str:
    """Return a value as text, with four significant digits of a float."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
