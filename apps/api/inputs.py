"""Inputs of the Python API: rows, data sets and prompts are written to temporary JSON Lines files."""

import json
import os
import re
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, time
from pathlib import Path
from typing import Any, Protocol

from ...rm.errors import UsageError
from ...rm.types import AnyCompletion, completion_json
from ..runs.run_folder import SCRATCH

Row = Mapping[str, Any]
CONVERSATIONS = ("chosen", "rejected", "messages")
"""Columns of a prompt's row that may contain completions, which are ignored in favour of the given completions."""


class Frame(Protocol):
    """A pandas `DataFrame`."""

    @property
    def columns(self) -> Any:
        """Names of the columns."""
        ...

    def to_dict(self) -> Any:
        """Return the cells by column."""
        ...


FilePath = str | os.PathLike[str]
Rows = FilePath | Iterable[FilePath | Row] | Mapping[str, FilePath | Iterable[Row]] | Frame
"""One or several paths, a mapping NAME -> path, or rows: mappings, a `datasets.Dataset` or a pandas `DataFrame`."""

_LOADED: list[tuple[weakref.ref[Any], str]] = []
"""Reward models loaded in this process, and their paths."""


def note_loaded(model: Any, path: str) -> None:
    """Record the path of a loaded reward model, so that other calls accept the model in place of its path."""
    _LOADED[:] = [entry for entry in _LOADED if entry[0]() is not None]
    _LOADED.append((weakref.ref(model), path))


def path_of(model: Any) -> str | None:
    """Return the path from which a reward model was loaded. None for any other value."""
    return next((path for loaded, path in _LOADED if loaded() is model), None)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder for rows. Run folders do not save its path, as a resumed run gets a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        token = SCRATCH.set(folder)
        try:
            yield Path(folder)
        finally:
            SCRATCH.reset(token)


def data_source(data: Any, folder: Path, name: str = "rows", *, by_objective: bool = False) -> Any:
    """Return paths unchanged. Write rows to a file in `folder` and return the path of that file.

    With `by_objective`, data may be a mapping from objectives to paths or rows.
    """
    if data is None or isinstance(data, str | os.PathLike):
        return data
    if isinstance(data, Mapping):
        _check_mapping(data, by_objective)
        return [f"{key}={data_source(value, folder, f'{name}-{key}')}" for key, value in data.items()]
    if hasattr(data, "to_dict") and hasattr(data, "notna"):  # pandas may be absent
        data = _frame_rows(data)
    if not isinstance(data, Iterable):
        raise UsageError(f"data must be a path, a list of paths or rows with named columns, got {data!r:.60}")
    items = list(data)
    if all(isinstance(item, str | os.PathLike) for item in items):
        return [os.fspath(item) for item in items]
    if other := [type(item) for item in items if not isinstance(item, Mapping)]:
        raise UsageError(f"data must be a path, a list of paths or rows with named columns, got a list of {other[0]}")
    return write_rows(items, folder / f"{name}.jsonl")


def _check_mapping(data: Mapping[Any, Any], by_objective: bool) -> None:
    """Raise `UsageError` for a mapping that is a single row, a table of columns, a `DatasetDict` or of no use here."""
    names = ", ".join(map(str, data))
    if hasattr(data, "column_names"):  # of `datasets`
        raise UsageError(f"data has the splits {names}; give one of them, such as data['{next(iter(data), '')}']")
    if not by_objective or {"prompt", *CONVERSATIONS} & data.keys():
        raise UsageError(f"data must be rows or paths, got a mapping of {names}; give a list of rows, such as [row]")
    if wrong := [key for key in data if not re.fullmatch(r"[\w.-]+", str(key))]:
        raise UsageError(f"data: an objective is a name of letters, digits, '_', '.' and '-', got {wrong[0]!r}")


def _frame_rows(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a pandas `DataFrame` as dictionaries without their missing cells."""
    if repeated := [name for name in frame.columns if [*frame.columns].count(name) > 1]:
        raise UsageError(f"two columns of the data are called {repeated[0]!r}; rename or remove one of them")
    rows = zip(frame.to_dict("records"), frame.notna().to_dict("records"), strict=True)
    return [{name: value for name, value in row.items() if present[name]} for row, present in rows]


def write_rows(rows: Iterable[Mapping[str, Any]], path: Path) -> str:
    """Write rows as JSON Lines and return the path."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(_json_line(row))
    return str(path)


def _json_line(row: Mapping[str, Any]) -> str:
    try:
        line = json.dumps({**row}, ensure_ascii=False, default=_plain) + "\n"
    except UsageError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"a row cannot be written as JSON ({error}); convert its columns to texts and numbers"
        ) from error
    if half := re.search("[\ud800-\udfff]", line):
        raise UsageError(f"a row has an unpaired surrogate, {half[0]!r}, which UTF-8 cannot encode; remove it")
    return line


def _as_list(values: Any, name: str) -> list[Any]:
    """Return prompts or completions as a list. Raise `UsageError` for a string or a non-iterable value."""
    if isinstance(values, str):
        raise UsageError(f"{name}s must be a list of {name}s; write [{name}] for a list with one item")
    if not isinstance(values, Iterable):
        raise UsageError(f"{name}s must be a list of {name}s, got {values!r}")
    return list(values)


def prompt_rows(prompts: Any) -> list[dict[str, Any]]:
    """Return rows with a `prompt` from strings, lists of messages or rows."""
    rows = [_prompt_row(prompt) for prompt in _as_list(prompts, "prompt")]
    if not rows:
        raise UsageError("prompts is empty; give at least one prompt")
    return rows


def _prompt_row(prompt: Any) -> dict[str, Any]:
    if isinstance(prompt, Mapping):
        if "prompt" not in prompt:
            raise UsageError(f"a row of prompts needs a column 'prompt', it has {', '.join(map(str, prompt))}")
        return {**prompt}
    if isinstance(prompt, str) or (isinstance(prompt, Sequence) and all(isinstance(turn, Mapping) for turn in prompt)):
        return {"prompt": prompt}
    raise UsageError(f"a prompt must be a string, a list of messages or a row with a column 'prompt', got {prompt!r}")


def conversation_rows(prompts: Any, completions: Any) -> list[dict[str, Any]]:
    """Return rows with a prompt and a completion. Raise `UsageError` unless there is one completion for each prompt."""
    completions = _as_list(completions, "completion")
    rows = prompt_rows(prompts)
    if len(rows) != len(completions):
        raise UsageError(f"{len(rows)} prompts and {len(completions)} completions; give one completion for each prompt")
    texts = [completion_json(text) if isinstance(text, AnyCompletion) else text for text in completions]
    columns = [{name: value for name, value in row.items() if name not in CONVERSATIONS} for row in rows]
    return [row | {"completion": text} for row, text in zip(columns, texts, strict=True)]


def _plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays to Python values, and dates and times to ISO 8601 strings."""
    if isinstance(value, date | time):
        return value.isoformat()
    if hasattr(value, "tolist"):  # also of PyTorch
        return value.tolist()
    raise UsageError(f"a row holds {value!r}, which JSON cannot represent; convert it to text or a number")
