"""`rewardlab decode`: guided completions of prompts."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from ....policy.decoding.engines import Engine, check_room, open_engine
from ....policy.decoding.guided import TextPiece, stream, token_texts
from ....policy.decoding.requests import DecodedCompletion, Request
from ....rm.data.pairs import read_prompts
from ....rm.data.preference_vectors import Preference, checked_preference, simplex_grid
from ....rm.errors import UsageError
from ....rm.io.escaping import escape_terminal, terminal_json
from ....rm.types import Messages, content_hash
from ...publishing.hub_upload import open_repository, source_names, upload_data
from ...runs.resumable_rows import ResumableRows, engine_identity, resumable_rows
from ...runs.run_folder import PRINTS_JSON, RESULTS, log, seconds_since, trust_option
from .settings import DecodeConfig


class DecodingItem(NamedTuple):
    """A completion to decode: the prompt's id, the request, and a key that identifies both in a resumed output file."""

    id: str
    request: Request
    key: str


def run_decode(config: DecodeConfig) -> dict[str, Any]:
    """Decode each prompt at one preference or at every preference of a sweep. Write completions to stdout or a file."""
    if config.output is None:
        return _decode(config, None)
    repository = open_repository(config, "dataset")
    with resumable_rows(Path(config.output), resume=config.resume, overwrite=config.overwrite) as rows:
        facts = _decode(config, rows)
    about = _card_text(config, facts["completions"])
    return facts | upload_data(repository, config.output, about, [Path(config.output).name], config.hub_license)


def _decode(config: DecodeConfig, rows: ResumableRows | None) -> dict[str, Any]:
    """Decode all completions that are not stored yet. Return counts and durations."""
    started = time.time()
    prompts = read_prompts(config.data)
    engine, objectives = open_engine(
        config.base, config.arm, dtype=config.dtype, chat_template=config.chat_template, **trust_option(config)
    )
    check_room(engine, prompts)
    items = _items(config, prompts, objectives, engine)
    keys = [item.key for item in items]
    stored_keys = rows.resume(keys) if rows else set()
    remaining = [item for item in items if item.key not in stored_keys]
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


def _card_text(config: DecodeConfig, number: int) -> str:
    """Return the text of the data card."""
    guides = f", guided by {source_names(config.arm)} with weight {config.weight:g}" if config.arm else ""
    base = source_names([config.base]) if config.base else "of the guide"
    return (
        f"{number} completions of the prompts in {source_names([config.data])} by `rewardlab decode`: base model {base}"
        f"{guides}, temperature {config.temperature:g}, seed {config.seed}."
    )


# ---- requests ----


def _items(
    config: DecodeConfig, prompts: Sequence[tuple[str, Messages]], objectives: tuple[str, ...], engine: Engine
) -> list[DecodingItem]:
    """Return one item to decode per prompt and preference vector.

    The seed depends only on the index of the prompt.
    """
    common = config.request_settings(guided=bool(engine.guides))
    models = engine_identity(engine)
    requests = [
        (name, Request(prompt, preference, seed=config.seed + index, **common))
        for preference in _preferences(config, objectives)
        for index, (name, prompt) in enumerate(prompts)
    ]
    return [DecodingItem(name, request, content_hash([name, asdict(request), models])) for name, request in requests]


def _preferences(config: DecodeConfig, objectives: tuple[str, ...]) -> list[Preference | None]:
    """Return the preference vectors of the sweep, or the single configured preference."""
    if config.sweep and len(objectives) != 2:
        raise UsageError(f"--sweep needs two objectives, got {len(objectives)}; use --preference instead")
    if config.sweep:
        grid = simplex_grid(2, config.sweep - 1)
        return [dict(zip(objectives, map(float, shares), strict=True)) for shares in grid.round(6)]
    return [checked_preference(config.preference, objectives)]


# ---- completions ----


def _completions(
    engine: Engine, items: Sequence[DecodingItem], config: DecodeConfig, *, to_stdout: bool
) -> Iterator[tuple[DecodingItem, DecodedCompletion]]:
    """Decode items in batches, print the completions if requested, and yield each finished completion."""
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
    """Stream a single completion as text. Print several completions one by one: as text on a terminal, else as JSON."""
    if is_single:
        text = escape_terminal(piece.text) if out.isatty() else piece.text
        print(text, end="" if piece.completion is None else "\n", file=out, flush=True)
    elif piece.completion is not None and not PRINTS_JSON.get():
        weights = [f"{name} {weight:g}" for name, weight in (item.request.preference or {}).items()]
        print(escape_terminal(f"[{', '.join([item.id, *weights])}]\n{piece.completion.text}\n"), file=out, flush=True)
    elif piece.completion is not None:
        print(terminal_json(json.dumps(_row(item, piece.completion), ensure_ascii=False)), file=out, flush=True)


def _row(item: DecodingItem, completion: DecodedCompletion) -> dict[str, Any]:
    """Return the fields of a completion that are written both to standard output and to output files."""
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
