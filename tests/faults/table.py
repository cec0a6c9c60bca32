"""The fault table: a row for each injection, in Markdown and as JSON."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.injection import Injection, Seen


def row(one: Injection, found: Seen, seconds: float, short: dict[str, str]) -> dict[str, Any]:
    """What is in the table; machine paths and changing numbers have short names."""
    return {
        "name": one.name,
        "family": one.family,
        "injected": one.injected,
        "saw": shortened(found.sentence, short),
        "exit code": found.code,
        "promise": one.promise,
        "checks": found.held,
        "held": all(found.held.values()),
        "seconds": round(seconds, 1),
    }


def shortened(text: str, short: dict[str, str]) -> str:
    """Without this machine's paths, its name, process numbers and the room on its disk.

    >>> shortened("/x/run: written by process 12 on box since 2026-01-02T03:04:05Z", {"/x": "W", "box": "HOST"})
    'W/run: written by process PID on HOST since TIME'
    """
    for long, name in short.items():
        text = text.replace(long, name)
    text = re.sub(r"^\S+\.py:\d+: \w+: ", "", text)
    text = re.sub(r"process \d+", "process PID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME", text)
    return re.sub(
        r"its disk has [\d.]+ \w+ free, and a file may have [\d.]+ \w+",
        "its disk has ROOM free, and a file may have SIZE",
        text,
    )


def markdown(rows: Sequence[dict[str, Any]], machine: dict[str, Any], command: str) -> str:
    """The page: a summary, and a table for each family."""
    held = sum(one["held"] for one in rows)
    told = ", ".join(f"{name} {value}" for name, value in machine.items())
    parts = [
        "# Faults\n",
        f"{len(rows)} faults were injected into running programs; in {held} nothing was lost and the user saw one "
        f"sentence. `{command}`, {sum(one['seconds'] for one in rows):.0f} s; {told}.\n",
        "Each program is a process of its own in the toy world: 12 steps of a small reward model, 6 of a policy. "
        "`W` is the folder of the world; other paths, process numbers, times and free room have short names.\n",
    ]
    for family in dict.fromkeys(one["family"] for one in rows):
        parts.append(f"## {family.capitalize()}\n")
        parts.append("| fault | what was injected | what the user saw | exit code | nothing lost means | held |")
        parts.append("|---|---|---|---|---|---|")
        for one in (one for one in rows if one["family"] == family):
            missing = [name for name, ok in one["checks"].items() if not ok]
            state = "yes" if one["held"] else f"**NO**: not {', not '.join(missing)}"
            cells = [one["name"], one["injected"], one["saw"], one["exit code"], one["promise"], state]
            parts.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        parts.append("")
    return "\n".join(parts)


def write(folder: Path, rows: Sequence[dict[str, Any]], machine: dict[str, Any], command: str) -> None:
    """`report.md` and `faults.json`."""
    from rewardlab.apps.runs.run_folder import replace_text, write_json

    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "report.md", markdown(rows, machine, command))
    write_json(folder / "faults.json", {"run": machine, "command": command, "faults": rows})
