"""Upload of complete results to the Hugging Face Hub, with the upload settings of Transformers' trainers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from ...rm.errors import DataError, UsageError
from ...rm.io.escaping import escape_markdown
from ...rm.registry.settings import Settings, setting
from ...rm.training import CHECKPOINTS
from ..runs.run_folder import log


@dataclass
class HubSettings(Settings):
    """Settings of an upload, for verbs without trainer arguments."""

    push_to_hub: bool = setting(False, "Upload the result to the Hugging Face Hub.", group="Hub")
    hub_model_id: str | None = setting(None, "Repository of the upload, such as org/name.", requires="push_to_hub")
    hub_private_repo: bool = setting(
        False, "Create the repository as a private one.", requires="push_to_hub", advanced=True
    )


@dataclass
class DataHubSettings(HubSettings):
    """Settings of an upload, for verbs that write data."""

    hub_license: str | None = setting(
        None,
        "License of the data, such as cc-by-4.0; without it the data card states no license.",
        requires="push_to_hub",
        advanced=True,
    )


class Repository(NamedTuple):
    """An existing repository on the Hub, to which the user may write."""

    name: str
    kind: Literal["model", "dataset"] = "model"
    token: str | None = None
    revision: str | None = None

    def upload(self, folder: Path, only: Sequence[str] | None = None) -> str:
        """Upload the files of a folder, or those that match a pattern of `only`, and return the address of the commit.

        Checkpoints of a training are left out.
        """
        patterns = None if only is None else [*only]
        options = {"allow_patterns": patterns, "ignore_patterns": [f"{CHECKPOINTS}/*"]}
        return self._send("upload_folder", folder, folder_path=folder, **options)

    def upload_with_card(self, path: Path, card: str) -> str:
        """Upload a file, or all files of a folder, with a card beside them, and return the address of the commit."""
        from huggingface_hub import CommitOperationAdd

        files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
        folder = path.parent if path.is_file() else path
        operations = [CommitOperationAdd(file.relative_to(folder).as_posix(), file) for file in files]
        return self._send(
            "create_commit", path, operations=[CommitOperationAdd("README.md", card.encode()), *operations]
        )

    def _send(self, request: str, path: Path, **options: Any) -> str:
        """Send a commit to the Hub. Raise `DataError` if the Hub refuses the commit; the local files stay complete."""
        from huggingface_hub import HfApi

        common = {"repo_id": self.name, "repo_type": self.kind, "revision": self.revision}
        try:
            api = HfApi(token=self.token)
            commit = getattr(api, request)(**common, **options, commit_message=f"Upload {path.name}")
        except (OSError, ValueError) as error:
            kind = "" if self.kind == "model" else f" --repo-type {self.kind}"
            raise DataError(
                f"{path} is complete but was not uploaded to {self.name} ({_first_line(error)}); upload it by "
                f"hf upload {self.name} {path}{kind}"
            ) from error
        log(f"uploaded {path} to {self.name}")
        return str(commit.commit_url)


def open_repository(
    settings: Any, kind: Literal["model", "dataset"] = "model", *, leads: bool = True
) -> Repository | None:
    """Create the repository that settings or trainer arguments name, if it does not exist.

    Return None without `push_to_hub`, and in processes other than rank 0.

    Call this before the job starts, so that a missing login is reported at once. `push_to_hub` is set to False, because
    Transformers' trainers would upload checkpoints. Raise `UsageError` if the Hub refuses the repository.
    """
    from huggingface_hub import HfApi

    uploads, settings.push_to_hub = settings.push_to_hub, False
    if not (uploads and leads):
        return None
    if not settings.hub_model_id:
        raise UsageError("--push_to_hub needs the name of a repository; add --hub_model_id org/name")
    token, revision = (getattr(settings, name, None) for name in ("hub_token", "hub_revision"))
    try:
        private = settings.hub_private_repo
        api = HfApi(token=token)
        name = api.create_repo(settings.hub_model_id, private=private, repo_type=kind, exist_ok=True).repo_id
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--hub_model_id {settings.hub_model_id}: refused by the Hub ({_first_line(error)}); log in with hf auth "
            "login, or check the name"
        ) from error
    return Repository(name, kind, token, revision)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# ---- data sets ----


def upload_data(
    repository: Repository | None, path: str, about: str, tables: Sequence[str], license: str | None
) -> dict[str, str]:
    """Upload a file, or the files of a run folder, with a data card, and return the address of the commit.

    Without a repository nothing is uploaded, and {} is returned. `tables` are the names of the files that the Hub shows
    as tables.
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
