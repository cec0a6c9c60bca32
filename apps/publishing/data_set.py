"""Upload of written data as a data set repository on the Hugging Face Hub, with a short data card."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...rm.io.escaping import escape_markdown
from ...rm.registry.settings import setting
from .hub_upload import HubSettings, Repository


@dataclass
class DataHubSettings(HubSettings):
    """Settings of an upload, for verbs that write data."""

    hub_license: str | None = setting(
        None,
        "License of the data, such as cc-by-4.0; without it the data card names none.",
        requires="push_to_hub",
        advanced=True,
    )


def upload_data(
    repository: Repository | None, path: str, about: str, tables: Sequence[str], license: str | None
) -> dict[str, str]:
    """Upload a file, or the files of a run folder, with a data card, and return the address of the commit.

    Return nothing without a repository. `tables` are the names of the files that the Hub shows as tables.
    """
    if repository is None:
        return {}
    card = data_card(repository.name, about, tables, license)
    return {"commit": repository.upload_with_card(Path(path), card)}


def data_card(name: str, about: str, tables: Sequence[str], license: str | None = None) -> str:
    """Return the YAML header and the text of a data card. The first table is the one that `load_dataset` loads."""
    if len(tables) == 1:
        configs = [{"config_name": "default", "data_files": tables[0]}]
    else:
        configs = [{"config_name": Path(table).stem, "data_files": table} for table in tables]
        configs[0]["default"] = True
    header: dict[str, Any] = {"license": license} if license else {}
    header |= {"configs": configs, "tags": ["rewardlab"]}
    text = f"# {escape_markdown(name)}\n\n{escape_markdown(about)}\n"
    return f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---\n\n{text}"


def source_names(sources: Sequence[str]) -> str:
    """Return the names of data sources without the folders of local files."""
    return ", ".join(Path(source).name if Path(source).exists() else source for source in sources)
