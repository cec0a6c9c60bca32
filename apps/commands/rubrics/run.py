"""`rewardlab rubrics`: build from preferences, train a generator, lint files, apply to cases."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....judges.backends.settings import ChatConfig
from ....judges.cdrrm.generator import Record
from ....judges.cdrrm.training import Training, train
from ....judges.rubrics.files import find_rubric, read_rubrics
from ....judges.rubrics.rubric import lint
from ....rm.data.pairs import collect
from ....rm.errors import CheckFailed, DataError, UsageError
from ...runs.run_folder import data_hash, log, log_rows, run_folder, seconds_since, trust, write_manifest
from .apply import apply
from .build import build
from .settings import RubricsConfig


def run_rubrics(config: RubricsConfig, chats: ChatConfig, how: Training) -> dict[str, Any]:
    """Run the requested action."""
    if config.does == "lint":
        return lint_files(config.files)
    if config.does == "train":
        return train_model(config, chats, how)
    chats.validate([*filter(None, [config.judge])])
    if len(chats.names) != 1:
        raise UsageError(
            f"rubrics {config.does} is for one writer, got {len(chats.names)}: name it with --endpoint and --model, or "
            "with --local; a judge of its own is given with --judge"
        )
    return build(config, chats, how.seed) if config.does == "build" else apply(config, chats, how.seed)


# ---- train ----


def train_model(config: RubricsConfig, chats: ChatConfig, how: Training) -> dict[str, Any]:
    """Fine-tune a language model on what `build` wrote; `--local` reads its folder."""
    started = time.time()
    files = [_records_file(source, config.learn) for source in config.data]
    records, rows = collect([str(file) for file in files], _record, config.on_bad_row)
    log_rows("data", rows)
    recipe = config.identity() | asdict(how) | {"data_sha256": {str(file): data_hash(str(file)) for file in files}}
    with run_folder(config.output, recipe, overwrite=config.overwrite) as work:
        model, tokenizer = _base(config, chats)
        train(model, records, work, how, tokenizer)
        (work / "README.md").unlink(missing_ok=True)  # TRL's model card, of a model whose name it does not know
        write_manifest(work, data=list(map(str, files)), seed=how.seed, started=started, records=len(records))
    return {"output": config.output, "records": len(records), "seconds": round(seconds_since(started), 1)}


def _base(config: RubricsConfig, chats: ChatConfig) -> tuple[Any, Any]:
    from ....rm.backbones.loading import load_causal_lm, load_tokenizer

    tokenizer = load_tokenizer(config.base, chat_template=chats.chat_template, **trust(chats))
    return load_causal_lm(config.base, tokenizer, dtype=chats.dtype, **trust(chats)), tokenizer


def _records_file(source: str, learn: str) -> Path:
    path = Path(source)
    file = path / f"{learn}.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"{source}: no folder of rewardlab rubrics build and no file of records for the {learn}")
    return file


def _record(values: Any) -> Record:
    for name in ("prompt", "completion"):
        turns = values.get(name)
        if not (
            isinstance(turns, list) and turns and all(isinstance(turn, dict) and "content" in turn for turn in turns)
        ):
            raise ValueError(f"'{name}' is a list of messages, got {json.dumps(turns)[:60]}")
    return {"prompt": values["prompt"], "completion": values["completion"]}


# ---- lint ----


def lint_files(files: Sequence[str]) -> dict[str, Any]:
    """Log a line for each doubtful item of the rubrics; a file that is not a rubric fails the check."""
    findings, errors, rubrics = 0, 0, 0
    for path in map(find_rubric, files):
        try:
            rubrics_read = read_rubrics(path)
        except DataError as error:
            log(f"error: {error}")
            errors += 1
            continue
        rubrics += len(rubrics_read)
        for name, rubric in rubrics_read.items():
            issues = lint(rubric)
            findings += len(issues)
            for issue in issues:
                log(f"{path}{f' {name}' if name != path.stem else ''}: {issue}")
    if errors:
        raise CheckFailed(f"{errors} of {len(files)} files cannot be read as rubrics; see the lines above")
    return {"files": len(files), "rubrics": rubrics, "findings": findings}
