"""`rewardlab decode`: guided completions of prompts."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from ....policy.decoding.engines import Engine, check_room, open_engine
from ....policy.decoding.guided import TextPiece, stream, token_texts
from ....policy.decoding.requests import DecodedCompletion, Request
from ....rm.backbones.loading import fingerprint
from ....rm.data.pairs import read_prompts
from ....rm.data.preference_vectors import Preference, parse_preference, preference_vector, simplex_grid
from ....rm.errors import UsageError
from ....rm.io.escaping import escape_terminal, terminal_json
from ....rm.types import Messages, content_hash
from ...runs.run_folder import (
    PARTIAL,
    RESULTS,
    log,
    only_writer,
    replace_text,
    seconds_since,
    to_json_types,
    write_rows,
)
from ...runs.signals import Terminated
from .settings import DecodeConfig


class DecodingItem(NamedTuple):
    """A completion to decode: the prompt's id, the request, and a key that identifies both in a resumed output file."""

    id: str
    request: Request
    key: str


# ---- output file ----


class ResumableRows:
    """Rows by key in a partial file beside `output`. Raise `UsageError` if an existing file would be lost."""

    def __init__(self, output: Path, *, resume: bool, overwrite: bool):
        self.output = output
        self.partial = output.with_name(f".{output.name}{PARTIAL}")
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
                "settings; resume with the same ones, or leave --resume out and start over with --overwrite"
            )
        replace_text(self.partial, "".join(f"{line}\n" for line in lines.values()))
        return {*lines}

    def append(self, key: str, row: Mapping[str, Any]) -> None:
        """Append a row to the partial file."""
        with open(self.partial, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(to_json_types({"key": key} | dict(row)), ensure_ascii=False) + "\n")

    def finish(self, keys: Sequence[str]) -> None:
        """Write the rows to the output file atomically, in the order of `keys`. The keys themselves are not written."""
        lines = self._lines()
        rows = [json.loads(lines[key]) for key in keys]
        write_rows(self.output, [{name: value for name, value in row.items() if name != "key"} for row in rows])
        self.partial.unlink()

    def _lines(self) -> dict[str, str]:
        """Return the complete lines by key. An incomplete line is ignored, and its row is computed again."""
        lines: dict[str, str] = {}
        for line in self.partial.read_bytes().split(b"\n"):
            try:  # a kill may cut a line within a character
                lines[json.loads(line)["key"]] = line.decode()
            except (ValueError, KeyError):
                continue
        return lines


@contextmanager
def resumable_rows(output: Path, *, resume: bool, overwrite: bool) -> Iterator[ResumableRows]:
    """Open a file of rows as its only writer. On a signal, `Terminated` states whether it can be resumed."""
    with only_writer(output):
        rows = ResumableRows(output, resume=resume, overwrite=overwrite)
        try:
            yield rows
        except Terminated as signal:
            if rows.partial.exists():
                signal.mark_resumable()
            raise


# ---- command ----


def run_decode(config: DecodeConfig) -> dict[str, Any]:
    """Decode each prompt at one preference or at every preference of a sweep. Write completions to stdout or a file."""
    if config.output is None:
        return _decode(config, None)
    with resumable_rows(Path(config.output), resume=config.resume, overwrite=config.overwrite) as rows:
        return _decode(config, rows)


def _decode(config: DecodeConfig, rows: ResumableRows | None) -> dict[str, Any]:
    started = time.time()
    prompts = read_prompts(config.data)
    engine, objectives = open_engine(
        config.base,
        config.arm,
        dtype=config.dtype,
        chat_template=config.chat_template,
        trust_remote_code=config.trust_remote_code,
    )
    check_room(engine, prompts)
    items = _items(config, prompts, objectives, engine)
    keys = [item.key for item in items]
    done = rows.resume(keys) if rows else set()
    remaining = [item for item in items if item.key not in done]
    log(f"prompts: {len(prompts)}; completions to decode: {len(remaining)} of {len(items)}")
    decoded, tokens = 0, 0
    for item, completion in _completions(engine, remaining, config, to_stdout=rows is None):
        decoded, tokens = decoded + 1, tokens + len(completion.tokens)
        if rows:
            rows.append(item.key, _row(item, completion) | _tokens(completion, engine.base.encoder.tokenizer))
    if rows:
        rows.finish(keys)
    return {
        "completions": len(items),
        "decoded": decoded,
        "tokens": tokens,
        "seconds": round(seconds_since(started), 2),
        "output": config.output,
        "forwards": engine.counters.forwards,
    }


# ---- requests ----


def _items(
    config: DecodeConfig, prompts: Sequence[tuple[str, Messages]], objectives: tuple[str, ...], engine: Engine
) -> list[DecodingItem]:
    """Return a request for every prompt at every preference. The seed depends only on the index of the prompt."""
    rules: dict[str, Any] = {
        name: vars(config)[name] for name in ("weight", "temperature", "top_k", "top_p", "min_p", "max_new_tokens")
    }
    if not engine.guides:
        rules["weight"] = 0.0
    models = [engine.guides, [(fingerprint(model.model), model.contract.hash()) for model in engine.models]]
    requests = [
        (name, Request(prompt, preference, seed=config.seed + index, stop=tuple(config.stop), **rules))
        for preference in _preferences(config, objectives)
        for index, (name, prompt) in enumerate(prompts)
    ]
    return [DecodingItem(name, request, content_hash([name, asdict(request), models])) for name, request in requests]


def _preferences(config: DecodeConfig, objectives: tuple[str, ...]) -> list[Preference | None]:
    if config.sweep and len(objectives) != 2:
        raise UsageError(f"--sweep needs two objectives; the model has {len(objectives)}")
    if config.sweep:
        grid = simplex_grid(2, config.sweep - 1)
        return [dict(zip(objectives, map(float, shares), strict=True)) for shares in grid.round(6)]
    preference = parse_preference(config.preference) if config.preference else None
    if objectives:
        preference_vector(preference, objectives)
    return [preference]


# ---- completions ----


def _completions(
    engine: Engine, items: Sequence[DecodingItem], config: DecodeConfig, *, to_stdout: bool
) -> Iterator[tuple[DecodingItem, DecodedCompletion]]:
    out = RESULTS.get(sys.stdout)
    is_single = len(items) == 1
    with tqdm(total=len(items), desc="decoding", disable=True if to_stdout and is_single else None) as bar:
        for first in range(0, len(items), config.batch_size):
            batch = items[first : first + config.batch_size]
            for piece in stream(engine, [item.request for item in batch]):
                item, completion = batch[piece.row], piece.completion
                if to_stdout:
                    _print(piece, item, out, is_single)
                if completion is not None:
                    bar.update()
                    if completion.finished == "context":
                        full = f"the context is full after {len(completion.tokens)} tokens; the completion is cut off"
                        log(f"prompt {item.id}: {full}")
                    yield item, completion


def _print(piece: TextPiece, item: DecodingItem, out: Any, is_single: bool) -> None:
    """Stream a single completion as text. Print several completions as JSON lines, each when it is finished."""
    if is_single:
        text = escape_terminal(piece.text) if out.isatty() else piece.text
        print(text, end="" if piece.completion is None else "\n", file=out, flush=True)
    elif piece.completion is not None:
        print(terminal_json(json.dumps(_row(item, piece.completion), ensure_ascii=False)), file=out, flush=True)


def _row(item: DecodingItem, completion: DecodedCompletion) -> dict[str, Any]:
    return {
        "id": item.id,
        "preference": item.request.preference,
        "weight": item.request.weight,
        "prompt": list(item.request.prompt),
        "completion": completion.text,
        "finished": completion.finished,
    }


def _tokens(completion: DecodedCompletion, tokenizer: Any) -> dict[str, Any]:
    """Return the text of each token, and its log-probabilities under base model, guides and mixture, in nats."""
    curves = {"base": completion.base, "mixed": completion.mixed, "kl": completion.kl, "entropy": completion.entropy}
    curves |= dict(completion.guides)
    return {"tokens": list(completion.tokens), "pieces": token_texts(tokenizer, completion.tokens)} | {
        name: [round(value, 6) for value in curve.tolist()] for name, curve in curves.items()
    }
