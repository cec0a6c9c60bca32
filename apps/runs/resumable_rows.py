"""A resumable file of JSON lines: rows are appended to a partial file, which becomes the output file at the end."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...policy.decoding.engines import Engine
from ...rm.backbones.loading import fingerprint
from ...rm.errors import UsageError
from .run_folder import PARTIAL, explain_full_disk, only_writer, replace_text, to_json_types, write_rows
from .signals import Terminated


class ResumableRows:
    """Rows by key in a partial file beside `output`. Raise `UsageError` if an existing file would be lost."""

    def __init__(self, output: Path, *, resume: bool, overwrite: bool):
        self.output = output
        self.partial = partial_file(output)
        if output.is_dir():
            raise UsageError(f"--output {output} is a folder; name a file for the completions")
        if output.exists() and not overwrite:
            raise UsageError(
                f"{output} exists already; name another file with --output, or replace it with --overwrite"
            )
        if self.partial.exists() and not resume:
            if not overwrite:
                raise UsageError(
                    f"{self.partial} holds completions of a run that was cut off; continue it with --resume, or start "
                    "over with --overwrite"
                )
            self.partial.unlink()

    def resume(self, keys: Sequence[str]) -> set[str]:
        """Drop an incomplete line and return the stored keys. Raise `UsageError` unless all are in `keys`."""
        if not self.partial.exists():
            return set()
        lines = self._lines()
        if others := lines.keys() - {*keys}:
            raise UsageError(
                f"{self.partial}: {len(others)} of its {len(lines)} completions come from other weights, prompts or "
                "settings; resume with the original ones, or leave --resume out and start over with --overwrite"
            )
        replace_text(self.partial, "".join(f"{line}\n" for line in lines.values()))
        return {*lines}

    def append(self, key: str, row: Mapping[str, Any]) -> None:
        """Append a row to the partial file."""
        with open(self.partial, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(to_json_types({"key": key} | dict(row)), ensure_ascii=False) + "\n")

    def finish(self, keys: Sequence[str]) -> None:
        """Write the rows to the output file atomically, in the order of `keys`. The keys themselves are not written."""
        write_rows(self.output, self.rows(keys))
        self.partial.unlink()

    def rows(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the stored rows in the order of `keys`, without the keys themselves."""
        lines = self._lines()
        rows = [json.loads(lines[key]) for key in keys]
        return [{name: value for name, value in row.items() if name != "key"} for row in rows]

    def _lines(self) -> dict[str, str]:
        """Return the complete lines by key. An incomplete line is ignored, and its row is computed again."""
        lines: dict[str, str] = {}
        for line in self.partial.read_bytes().split(b"\n"):
            try:  # a kill may cut a line within a character
                lines[json.loads(line)["key"]] = line.decode()
            except (ValueError, KeyError):
                continue
        return lines


def partial_file(output: Path) -> Path:
    """Return the partial file of an output file."""
    return output.with_name(f".{output.name}{PARTIAL}")


@contextmanager
def resumable_rows(output: Path, *, resume: bool, overwrite: bool) -> Iterator[ResumableRows]:
    """Open a file of rows as its only writer. On a signal, `Terminated` states whether the run can be resumed."""
    with only_writer(output), explain_full_disk(partial_file(output)):
        rows = ResumableRows(output, resume=resume, overwrite=overwrite)
        try:
            yield rows
        except Terminated as signal:
            if rows.partial.exists():
                signal.mark_resumable()
            raise


def engine_identity(engine: Engine) -> list[Any]:
    """Return the guides' names and the hashes of all models' weights and contracts, to detect a changed engine."""
    return [engine.guides, [(fingerprint(model.model), model.contract.hash()) for model in engine.models]]
