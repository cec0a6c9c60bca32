"""The files that verbs write, and their columns and keys, read from artefacts; and the keys of the verbs' summaries."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rewardlab.rm.contract.scoring_contract import FILE
from safetensors import safe_open

LIBRARIES = ("config.json", "generation_config.json", "adapter_config.json", "model.safetensors")
LIBRARIES = (*LIBRARIES, "adapter_model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""Files of Transformers and PEFT, whose contents are theirs."""
BESIDE = ("pairs", "solutions", "conversations", "prompts", "checks", "doubled", "summaries", "expected")
"""Files beside the models and runs, which are read by verbs or by tests."""
SHALLOW = ("manifest.json", "checksums.json")
"""Files whose inner keys are settings, packages or names of other files. Settings are the keys of `config.yaml`."""


def formats(folder: Path) -> dict[str, Any]:
    """Return the files of every model and run in a folder of artefacts, and the columns or keys of each file.

    Models share one table of files, and so do scores: a file has the columns that it has in any of them.
    """
    models = {path.parent.name for path in folder.glob(f"*/{FILE}")}
    columns: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in files_of(folder):
        if path.name not in LIBRARIES and not (path.parent == folder and path.stem in BESIDE):
            group, name = group_of(path.relative_to(folder), models)
            columns[group][name].update(columns_of(path))
    summaries = json.loads((folder / "summaries.json").read_text(encoding="utf-8"))
    return {
        "models": {
            name: sorted(str(path.relative_to(folder / name)) for path in files_of(folder / name)) for name in models
        },
        "files": {group: {name: sorted(found) for name, found in table.items()} for group, table in columns.items()},
        "summaries": {name: sorted(facts) for name, facts in summaries.items()},
    }


def group_of(path: Path, models: set[str]) -> tuple[str, str]:
    """Return the table that a file belongs to, and its name there."""
    top, *rest = path.parts
    if top in models:
        return "a model", "/".join(rest)
    if path.name == "replies.jsonl":
        return "a store", path.name
    if path.stem in models:
        return "score", f"scores{path.suffix}"
    if top == "runs":
        return f"{top}/{rest[0].rstrip('_12')}", "/".join(rest[1:])
    return (top, "/".join(rest)) if rest else ("others", top)


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder, without checkpoints and caches."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not {"checkpoints", ".cache"} & {*path.relative_to(folder).parts}:
            yield path


def columns_of(path: Path) -> set[str]:
    """Return the columns of a table, the keys of JSON with those one level below, or the names of tensors."""
    if path.suffix == ".parquet":
        return {f"{field.name}:{field.type}".replace(" ", "") for field in pq.read_schema(path)}
    if path.suffix == ".safetensors":
        with safe_open(path, "numpy") as file:
            return {*file.keys()}
    if path.suffix == ".jsonl":
        return keys_of([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])
    if path.suffix == ".json":
        return keys_of(json.loads(path.read_text(encoding="utf-8")), depth=1 if path.name in SHALLOW else 2)
    return set()


def keys_of(value: Any, depth: int = 2) -> set[str]:
    """Return the keys of a mapping, or of the mappings in a list, and of their values down to a depth.

    >>> sorted(keys_of([{"rows": [{"id": {"part": 1}}]}]))
    ['rows', 'rows.id']
    """
    if isinstance(value, list):
        return set().union(*(keys_of(item, depth) for item in value))
    if not isinstance(value, dict) or not depth:
        return set()
    below = {f"{name}.{key}" for name in value for key in keys_of(value[name], depth - 1) if "/" not in key}
    return {*map(str, value), *below}
