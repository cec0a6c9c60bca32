"""Run folders: written under a temporary name, renamed when finished, with a manifest of versions and data."""

import datetime
import importlib.metadata
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import yaml

from ...rm.data.pairs import RowReport
from ...rm.errors import UNREADABLE, CheckFailed, DataError, UsageError
from ...rm.io.checked_files import from_yaml
from ...rm.io.checksums import folder_hash, sha256
from ...rm.io.disk_errors import file_of, full_disk_reason, no_room
from ...rm.io.escaping import escape_terminal, redact, unescape
from ...rm.io.hub_names import RESOLVED
from ...rm.io.locks import hold
from ...rm.registry.settings import changed_settings
from .signals import Terminated

PACKAGES = ("rewardlab", "torch", "transformers", "trl", "peft", "datasets", "numpy", "scikit-learn", "pyarrow")
RESULTS: ContextVar[TextIO] = ContextVar("results")
"""Stream for the results of a verb, while `sys.stdout` is redirected to stderr."""
PRINTS_JSON: ContextVar[bool] = ContextVar("prints_json", default=True)
"""Whether results are printed as JSON: with `--json`, and where stdout is not a terminal."""
SHOWS_REPORTS: ContextVar[bool] = ContextVar("shows_reports", default=True)
"""Whether verbs log their final report."""
COMMAND: ContextVar[Sequence[str] | None] = ContextVar("command", default=None)
"""Words of the command line that runs. None in the Python API."""
SCRATCH: ContextVar[str] = ContextVar("scratch", default="")
"""Temporary folder with the rows that were passed to the Python API, if any."""
IMPORTED = time.time(), time.monotonic()
CONFIG, MANIFEST, PARTIAL = "config.yaml", "manifest.json", ".partial"


def partial_folder(final: Path) -> Path:
    """Return the temporary folder of an unfinished run, beside `final`. If `final` is a link, beside its target."""
    final = final.resolve()
    return final.with_name(f"{final.name}{PARTIAL}")


def short_path(path: Path) -> str:
    """Return an absolute path for a message: relative to the working directory if the path lies in this directory."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def log(message: str) -> None:
    """Print a progress message to stderr. stdout is reserved for results."""
    print(escape_terminal(message), file=sys.stderr, flush=True)


def log_report(text: str) -> None:
    """Log a verb's final report in Markdown, unless `SHOWS_REPORTS` is False, as in the Python API."""
    if SHOWS_REPORTS.get():
        log(unescape(text))


def log_rows(name: str, rows: RowReport) -> None:
    """Log the numbers of dropped rows by reason, and the ignored columns."""
    for line in rows.lines(name):
        log(line)


def trust_option(config: Any) -> dict[str, bool]:
    """Return the loading option `trust_remote_code`. Empty unless the user set it."""
    return {"trust_remote_code": True} if config.trust_remote_code else {}


HUB = ("push_to_hub", "hub_model_id", "hub_private_repo", "hub_token", "hub_revision")
"""Trainer arguments for uploads, which do not affect the training."""


def recipe_of(settings: Any, free: Collection[str], files: Iterable[str]) -> dict[str, Any]:
    """Return what determines a result: all settings except those in `free`, and the hashes of the data files."""
    stated = {name: value for name, value in asdict(settings).items() if name not in free}
    return stated | {"data_sha256": {file: data_hash(file) for file in files}}


def training_recipe(settings: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    """Return the settings that determine a training's result, as JSON values. A resumed run must have the same.

    They include the trainer's `arguments` that differ from the defaults, except for the output folder and the
    repository on the Hub.
    """
    changed = {name: value for name, value in changed_settings(arguments).items() if name not in ("output_dir", *HUB)}
    return json.loads(json.dumps({**settings, **changed}, default=str))


@contextmanager
def run_folder(
    output: str, config: Mapping[str, Any], *, overwrite: bool, resume: bool | None = None, keep: str = ""
) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `output` when the block ends without an error.

    If the block fails, the folder is removed, unless an entry in it matches the pattern `keep`. A later run
    with `resume` and the same settings continues there; `resume` is None for runs that cannot be resumed. Raise
    `UsageError` if another process writes the folder, and `DataError` if the disk is full.
    """
    final = Path(output).resolve()  # a link stays, and is written where it leads
    with only_writer(final), explain_full_disk(partial_folder(final)):
        with _temporary_run_folder(final, config, overwrite=overwrite, resume=resume, keep=keep) as work:
            yield work
        replace_folder(work, final)


@contextmanager
def explain_full_disk(work: Path) -> Iterator[None]:
    """Raise `DataError` if the disk is full. `work` is the path that is written: a partial one can be resumed."""
    try:
        yield
    except Exception as error:
        reason = None if isinstance(error, DataError | UsageError | CheckFailed) else full_disk_reason(error)
        if reason is None:
            raise
        resumable = work.name.endswith(PARTIAL) and work.exists()
        again = ", and go on with --resume" if resumable else " and run it again: no partial output was left"
        raise DataError(no_room(Path(file_of(error) or work), reason) + again) from error


@contextmanager
def _temporary_run_folder(
    final: Path, config: Mapping[str, Any], *, overwrite: bool, resume: bool | None, keep: str
) -> Iterator[Path]:
    work = partial_folder(final)
    _check_output_is_free(final, work, overwrite, resume)
    if resume and work.exists():
        _check_same_settings(work / CONFIG, config)
    else:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / CONFIG).write_text(settings_yaml(config), encoding="utf-8")
    try:
        yield work
    except BaseException as error:
        if not (keep and any(work.glob(keep))):
            shutil.rmtree(work)
        elif isinstance(error, Terminated):
            error.mark_resumable()
        raise


def settings_yaml(config: Mapping[str, Any]) -> str:
    """Return settings as YAML."""
    return _without_scratch(yaml.safe_dump(dict(config), sort_keys=True, allow_unicode=True))


def _without_scratch(text: str) -> str:
    """Replace the path of the temporary folder `SCRATCH` by `.`, since a resumed run has another temporary folder."""
    return text.replace(f"{SCRATCH.get()}{os.sep}", "./") if SCRATCH.get() else text


def _check_output_is_free(final: Path, work: Path, overwrite: bool, resume: bool | None) -> None:
    name = short_path(final)
    if final.exists() and not overwrite:
        raise UsageError(f"{name} exists already; name another folder with --output, or replace it with --overwrite")
    is_empty = final.is_dir() and not any(final.iterdir())
    if final.exists() and not (final / CONFIG).is_file() and not is_empty:
        raise UsageError(
            f"{name} is not a run of rewardlab, so --overwrite does not replace it; name another folder with --output"
        )
    if work.exists() and resume is False and not overwrite:
        raise UsageError(
            f"{short_path(work)} holds a run that was cut off; continue it with --resume, or start over with "
            "--overwrite"
        )


def _check_same_settings(stored_path: Path, config: Mapping[str, Any]) -> None:
    """Raise `UsageError` if the settings differ from the stored settings of the run."""
    folder = short_path(stored_path.parent)
    try:
        before = yaml.safe_load(stored_path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"{folder} cannot be resumed ({error}); start over with --overwrite") from error
    now = yaml.safe_load(settings_yaml(config))
    if difference := _first_difference(before, now):
        raise UsageError(
            f"{folder} was started with {difference}; resume with the same settings and files, or start over with "
            "--overwrite"
        )


def _first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the first setting that differs, with both values. Empty if all settings are equal."""
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict) and (inside := _first_difference(old, new)):
            return f"{name} of {inside}"
        if old != new and repr(old) != repr(new):  # NaN differs from itself
            return f"{name} = {old!r} and is now run with {new!r}"
    return ""


def read_settings(folder: Path) -> Mapping[str, Any]:
    """Return the settings of a run. Empty if they cannot be read."""
    try:
        settings = from_yaml((folder / CONFIG).read_text(encoding="utf-8"))
    except UNREADABLE:
        return {}
    return settings if isinstance(settings, dict) else {}


def replace_folder(new: Path, final: Path) -> None:
    """Replace a folder by a finished one in two renames; if the process is killed between them, both folders exist."""
    if final.exists():
        retired = final.with_name(f".{final.name}.replaced-by-rewardlab")
        shutil.rmtree(retired, ignore_errors=True)
        final.rename(retired)
        new.rename(final)
        shutil.rmtree(retired)
    else:
        new.rename(final)


def replace_file(path: Path, write) -> None:
    """Write a file under a temporary name and rename it atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")  # two programs may write the same file
    try:
        with explain_full_disk(path):
            write(temporary)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a text file atomically. An unpaired surrogate is written as the escape sequence that JSON has for it."""
    replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8", errors="backslashreplace"))


def save_figure(drawing: Any, path: Path) -> None:
    """Save a Matplotlib figure without software metadata, so that equal figures give equal bytes."""
    drawing.savefig(path, dpi=150, metadata={"Software": None})


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON with a final newline. Non-finite numbers become null."""
    path.write_text(json.dumps(to_json_types(value), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines atomically. Values are converted by `to_json_types`."""
    replace_text(path, "".join(json.dumps(to_json_types(row), ensure_ascii=False) + "\n" for row in rows))


def to_json_types(value: Any, *, exact: bool = False) -> Any:
    """Convert a value to JSON types. Dates and times become ISO 8601 strings, durations H:MM:SS.

    Non-finite numbers become None or, if `exact`, the strings `nan`, `inf` and `-inf`, which settings parse.
    """
    if isinstance(value, Mapping):
        return {str(name): to_json_types(item, exact=exact) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_types(item, exact=exact) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value)
    if isinstance(value, bytes):
        raise DataError(f"binary data cannot be written as JSON: {value!r:.40}; remove its column from the data")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value) if exact else None
    return value


SETTINGS = ("settings", "arguments", "chat", "chats")
"""Entries of a manifest that are settings rather than measurements."""


def write_manifest(folder: Path, *, data: Sequence[str], seed: int | None, started: float, **facts: Any) -> None:
    """Write the manifest: versions, commit, machine, command, hashes of the data, duration, and `facts`.

    `seed` is None where no random numbers are used.
    """
    write_json(
        folder / MANIFEST,
        {
            "command": None if (words := COMMAND.get()) is None else redact(words),
            "versions": versions(),
            "commit": _commit(),
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
            "seed": seed,
            "data": {_without_scratch(source): data_hash(source) for source in data},
            "hub": dict(RESOLVED),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
            "seconds": round(seconds_since(started), 1),
            **{name: to_json_types(fact, exact=name in SETTINGS) for name, fact in facts.items()},
        },
    )


def seconds_since(started: float) -> float:
    """Return the seconds since a wall-clock time of this process; changes of the system's clock have no effect."""
    wall, steady = IMPORTED
    return time.monotonic() - steady - (started - wall)


def versions() -> dict[str, str]:
    """Return the installed versions of the packages that can affect results."""
    return {name: installed_version(name) or "not installed" for name in PACKAGES}


def installed_version(package: str) -> str | None:
    """Return the version of a package. None if the package is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the checkout, with `+` if there are uncommitted changes. None outside of a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def data_hash(source: str) -> str | None:
    """Return the SHA-256 of a local file or folder. None for a dataset on the Hub, which `id@revision` pins."""
    if os.path.isfile(source):
        return sha256(Path(source))
    folder = source if os.path.isdir(source) else re.split("[@:]", source)[0]
    return folder_hash(Path(folder)) if os.path.isdir(folder) else None


# ---- lock: a second writer is refused, and its error names the first ----


def lock_file(final: Path) -> Path:
    """Return the path of the lock file, beside the folder so that it survives renaming or removing the folder."""
    return final.with_name(f".{final.name}.lock")


@contextmanager
def only_writer(final: Path) -> Iterator[None]:
    """Hold the lock of a run folder within the block; see `rm.io.locks`."""
    path = lock_file(final)
    path.parent.mkdir(parents=True, exist_ok=True)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    lock = hold(
        path,
        json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since}),
        lambda text: (
            f"{short_path(final)} is being written by {_lock_holder(text)}; wait until it has ended, or name another "
            "with --output"
        ),
    )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _lock_holder(text: str) -> str:
    try:
        holder: dict[str, Any] = json.loads(text)
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except UNREADABLE:
        return "another process"
