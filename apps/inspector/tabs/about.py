"""Description of a run: its command, data, scoring contracts, time, cost and settings."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from ...runs.run_folder import CONFIG
from ...runs.tables import JUDGMENTS
from ..database import query, table
from ..html import number, text_html
from ..run_list import read_manifest
from .metrics import table_html

LONGEST = 20_000
"""Characters of the settings that are shown."""


def about_html(folder: Path) -> str:
    """Return a folded description of a run as HTML, from its manifest and its settings. Empty if both are missing."""
    manifest, settings = read_manifest(folder), _text(folder / CONFIG)
    facts = {
        name: str(manifest[name]) for name in ("started", "seconds", "seed", "commit", "machine") if name in manifest
    }
    if isinstance(manifest.get("data"), Mapping):
        facts["data"] = ", ".join(f"{name} ({value})" for name, value in manifest["data"].items())
    if contracts := manifest.get("contracts") or manifest.get("contract"):
        named = contracts.items() if isinstance(contracts, Mapping) else [("", contracts)]
        facts["scoring contract"] = ", ".join(f"{name} {value}".strip() for name, value in named)
    if (folder / JUDGMENTS).is_file():
        ((cost,),) = query(f"SELECT sum(cost) FROM {table('judgments')}", {"judgments": folder / JUDGMENTS})
        facts["cost of judges"] = number(cost) or "unknown"
    rows = [[name, text_html(value, 2000)] for name, value in facts.items()]
    parts = [f'<div class="box scores">{table_html(["about this run", ""], rows, words={1})}</div>'] if rows else []
    if isinstance(command := manifest.get("command"), list):
        text = text_html(shlex.join(map(str, command)), LONGEST)
        parts.append(f'<div class="command"><code>{text}</code><button type="button" class="copy">Copy</button></div>')
    parts += [f'<div class="text">{text_html(settings, LONGEST)}</div>'] if settings else []
    return (
        f"<details><summary>Command, settings, contract and cost</summary>{''.join(parts)}</details>" if parts else ""
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
