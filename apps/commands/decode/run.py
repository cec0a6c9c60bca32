"""`rewardlab decode`: guided completions of prompts."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from ....policy.decoding.engines import Engine, SeparateModels, SharedBackbone
from ....policy.decoding.guided import Piece, stream
from ....policy.decoding.language_models import DecodingModel, decoding_model, room_of
from ....policy.decoding.requests import DecodedCompletion, Request
from ....rm.adapters.settings import SETTINGS, load_settings
from ....rm.backbones.loading import fingerprint, load_causal_lm, load_tokenizer, sharing
from ....rm.contract.scoring_contract import FILE, load_contract
from ....rm.data.pairs import collect, row_prompt
from ....rm.data.preference_vectors import Preference, parse_preference, preference_vector, simplex_grid
from ....rm.errors import DataError, UsageError
from ....rm.io.escaping import terminal, terminal_json
from ....rm.kinds.autoregressive.model import load_autoregressive
from ....rm.types import OVERALL, Messages, content_hash, user_turn
from ...runs.lock import only_writer
from ...runs.run_folder import PARTIAL, RESULTS, log, plain, replace_text, seconds_since, trust, write_rows
from ...runs.signals import Terminated
from ...runs.token_texts import pieces
from .guides import arms, base_of, check_guides
from .settings import DecodeConfig

UNNAMED = ("reward",)  # the objectives of a model that was trained for none by name


class Asked(NamedTuple):
    """A completion to decode: the prompt's id, the request, and a key of both for files that are resumed."""

    id: str
    request: Request
    key: str


def run_decode(config: DecodeConfig) -> dict[str, Any]:
    """Decode each prompt at the given preference, or at those of a sweep; completions go to stdout or to a file."""
    if config.output is None:
        return _decode(config, None)
    with only_writer(Path(config.output)):
        unfinished = _partial(config, Path(config.output))
        try:
            return _decode(config, unfinished)
        except Terminated as signal:
            if unfinished.exists():
                signal.mark_resumable()
            raise


def _decode(config: DecodeConfig, unfinished: Path | None) -> dict[str, Any]:
    started = time.time()
    prompts = read_prompts(config.data)
    engine, objectives = open_engine(config)
    _check_room(prompts, engine)
    asked = _asked(config, prompts, objectives, engine)
    done = _resumed(unfinished, asked) if unfinished and unfinished.exists() else {}
    waiting = [request for request in asked if request.key not in done]
    log(f"prompts: {len(prompts)}; completions to decode: {len(waiting)} of {len(asked)}")
    finished, tokens = 0, 0
    for request, answer in _answers(engine, waiting, config, to_stdout=unfinished is None):
        finished, tokens = finished + 1, tokens + len(answer.tokens)
        if unfinished:
            line = {"key": request.key} | _row(request, answer) | _tokens(answer, engine.base.encoder.tokenizer)
            with open(unfinished, "a", encoding="utf-8") as lines:
                lines.write(json.dumps(plain(line), ensure_ascii=False) + "\n")
    if unfinished:
        _put_in_place(unfinished, Path(str(config.output)), asked)
    return {
        "completions": len(asked),
        "decoded": finished,
        "tokens": tokens,
        "seconds": round(seconds_since(started), 2),
        "output": config.output,
        "forwards": engine.counters.forwards,
    }


# ---- prompts ----


def read_prompts(source: str) -> list[tuple[str, Messages]]:
    """Return (id, prompt) from rows with a `prompt`, or from a text file or stdin with one prompt per line."""
    if source != "-" and not source.endswith(".txt"):
        rows, _ = collect(source, lambda row: (row.get("id"), row_prompt(row)))
        return [(str(index if name is None else name), prompt) for index, (name, prompt) in enumerate(rows)]
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the prompts in {source}: {error}") from error
    lines = text.split("\n")
    prompts = [(str(number), user_turn(line)) for number, line in enumerate(lines, start=1) if line.strip()]
    if not prompts:
        raise DataError(f"no prompt in {'stdin' if source == '-' else source}; write one a line")
    return prompts


# ---- models ----


def open_engine(config: DecodeConfig) -> tuple[Engine, tuple[str, ...]]:
    """Return the engine that reads the fewest weights, and the objectives of a preference, if the guides follow one."""
    named = arms(config.arm)
    if len(named) > 1 and not all(name for name, _ in named):
        raise UsageError(f"several reward models go by objective, as name=folder; got {' '.join(config.arm)}")
    for name, folder in named:
        _check_objective(name, folder)
    check_guides(config.base, [folder for _, folder in named])
    base = _open_base(config, [folder for _, folder in named])
    if not named:
        return SeparateModels(base), ()
    if named[0][0]:
        guides = {name: _open_guide(folder, base, config, copy=True) for name, folder in named}
        return SeparateModels(base, guides), tuple(guides)
    folder = named[0][1]
    if _adapts(folder, base):
        guide = _open_guide(folder, base, config, copy=False)
        starts_late = guide.adapter is not None and guide.adapter.settings.from_layer > 0
        late = starts_late and guide.contract.template == base.contract.template
        engine: Engine = SharedBackbone(guide, encoder=base.encoder, late=late)
    else:
        guide = _open_guide(folder, base, config, copy=True)
        engine = SeparateModels(base, guide)
    follows = guide.adapter is not None and guide.adapter.settings.follows_preference
    return engine, guide.adapter.objectives if guide.adapter and follows else ()


def _check_objective(name: str, folder: str) -> None:
    """Refuse a guide under another objective's name; one whose scoring.json names no objective goes by any."""
    path = Path(folder)
    stated = load_contract(path).objectives if (path / FILE).exists() else UNNAMED
    if name and stated != UNNAMED and OVERALL not in stated and name not in stated:
        raise UsageError(
            f"--arm {name}={folder}: its {FILE} says that it was trained for {', '.join(stated)}; write "
            f"{stated[0]}={folder}, or name the folder of a model for {name}"
        )


def _open_base(config: DecodeConfig, folders: Sequence[str]) -> DecodingModel:
    source = base_of(config.base, folders)
    assert source is not None, "check_guides refuses guides without a base model"
    dtypes = [load_contract(Path(folder)).dtype for folder in folders if (Path(folder) / FILE).exists()]
    dtype = config.dtype or next(iter(dtypes), "float32")
    tokenizer = load_tokenizer(source, chat_template=config.chat_template, **trust(config))
    return decoding_model(load_causal_lm(source, tokenizer, dtype=dtype, **trust(config)), tokenizer)


def _adapts(folder: str, base: DecodingModel) -> bool:
    """Return whether a reward model is an adapter on this base model."""
    path = Path(folder)
    return (path / SETTINGS).exists() and load_settings(path).base_fingerprint == fingerprint(base.model)


def _open_guide(folder: str, base: DecodingModel, config: DecodeConfig, *, copy: bool) -> DecodingModel:
    """Load a guide on the weights of the base model if it is an adapter on it, else with separate weights."""
    over = (sharing(base.model) if copy else base.model) if _adapts(folder, base) else None
    return load_autoregressive(folder, base=over, **trust(config))


# ---- requests ----


def _check_room(prompts: Sequence[tuple[str, Messages]], engine: Engine) -> None:
    """Raise `DataError` with the id of the first prompt that leaves no room for a completion."""
    for name, prompt in prompts:
        for model in engine.models:
            try:
                room_of(model, [model.encoder.encode_prompt(prompt)])
            except DataError as error:
                raise DataError(f"{error} (the prompt with id {name})") from error


def _asked(
    config: DecodeConfig, prompts: Sequence[tuple[str, Messages]], objectives: tuple[str, ...], engine: Engine
) -> list[Asked]:
    """Return a request for every prompt at every preference; its seed depends on the prompt's index alone."""
    rules: dict[str, Any] = {
        name: getattr(config, name) for name in ("weight", "temperature", "top_k", "top_p", "min_p", "max_new_tokens")
    }
    if not engine.guides:
        rules["weight"] = 0.0
    models = [engine.guides, [(fingerprint(model.model), model.contract.hash()) for model in engine.models]]
    requests = [
        (name, Request(prompt, preference, seed=config.seed + index, stop=tuple(config.stop), **rules))
        for preference in _preferences(config, objectives)
        for index, (name, prompt) in enumerate(prompts)
    ]
    return [Asked(name, request, content_hash([name, asdict(request), models])) for name, request in requests]


def _preferences(config: DecodeConfig, objectives: tuple[str, ...]) -> list[Preference | None]:
    if config.sweep and len(objectives) != 2:
        raise UsageError(f"--sweep goes from one objective to another; the model has {len(objectives)}")
    if config.sweep:
        grid = simplex_grid(2, config.sweep - 1)
        return [dict(zip(objectives, map(float, shares), strict=True)) for shares in grid.round(6)]
    preference = parse_preference(config.preference) if config.preference else None
    if objectives:
        preference_vector(preference, objectives)
    return [preference]


# ---- completions ----


def _answers(
    engine: Engine, asked: Sequence[Asked], config: DecodeConfig, *, to_stdout: bool
) -> Iterator[tuple[Asked, DecodedCompletion]]:
    out = RESULTS.get(sys.stdout)
    alone = len(asked) == 1
    with tqdm(total=len(asked), desc="decoding", disable=True if to_stdout and alone else None) as bar:
        for first in range(0, len(asked), config.batch_size):
            batch = asked[first : first + config.batch_size]
            for piece in stream(engine, [each.request for each in batch]):
                if to_stdout:
                    _show(piece, batch[piece.row], out, alone)
                if (answer := piece.completion) is not None:
                    bar.update()
                    request = batch[piece.row]
                    if answer.finished == "context":
                        full = f"the context is full after {len(answer.tokens)} tokens; the completion is cut off"
                        log(f"prompt {request.id}: {full}")
                    yield request, answer


def _show(piece: Piece, asked: Asked, out: Any, alone: bool) -> None:
    """Print a single completion piece by piece, or each of several as a line of JSON when it is finished."""
    if alone:
        text = terminal(piece.text) if out.isatty() else piece.text
        print(text, end="" if piece.completion is None else "\n", file=out, flush=True)
    elif piece.completion is not None:
        print(terminal_json(json.dumps(_row(asked, piece.completion), ensure_ascii=False)), file=out, flush=True)


def _row(asked: Asked, answer: DecodedCompletion) -> dict[str, Any]:
    return {
        "id": asked.id,
        "preference": asked.request.preference,
        "weight": asked.request.weight,
        "prompt": list(asked.request.prompt),
        "completion": answer.text,
        "finished": answer.finished,
    }


def _tokens(answer: DecodedCompletion, tokenizer: Any) -> dict[str, Any]:
    """Return the text of each token, and its log-probability under base, guides and mixture, in nats."""
    curves = {"base": answer.base, "mixed": answer.mixed, "kl": answer.kl, "entropy": answer.entropy}
    curves |= dict(answer.guides)
    return {"tokens": list(answer.tokens), "pieces": pieces(tokenizer, answer.tokens)} | {
        name: [round(value, 6) for value in curve.tolist()] for name, curve in curves.items()
    }


# ---- an output file that survives a kill ----


def _partial(config: DecodeConfig, output: Path) -> Path:
    """Return where lines are kept until all are there; raise `UsageError` if a file would be lost."""
    if output.is_dir():
        raise UsageError(f"--output {output} is a folder; name a file for the completions")
    unfinished = output.with_name(f".{output.name}{PARTIAL}")
    if output.exists() and not config.overwrite:
        raise UsageError(f"{output} exists already; name another file with --output, or replace it with --overwrite")
    if unfinished.exists() and not config.resume:
        if not config.overwrite:
            raise UsageError(
                f"{unfinished} holds completions of a run that was cut off; continue it with --resume, or start over "
                "with --overwrite"
            )
        unfinished.unlink()
    return unfinished


def _done(path: Path) -> dict[str, str]:
    """Return complete lines by key; an incomplete line is decoded again."""
    lines: dict[str, str] = {}
    for line in path.read_bytes().split(b"\n"):
        try:  # a kill may cut a line within a character
            lines[json.loads(line)["key"]] = line.decode()
        except (ValueError, KeyError):
            continue
    return lines


def _resumed(unfinished: Path, asked: Sequence[Asked]) -> dict[str, str]:
    """Drop an incomplete line of the file and return the others by key; raise `UsageError` if one is not asked for."""
    done = _done(unfinished)
    if others := done.keys() - {each.key for each in asked}:
        raise UsageError(
            f"{unfinished}: {len(others)} of its {len(done)} completions come from other weights, prompts or settings; "
            "resume with the same ones, or leave --resume out and start over with --overwrite"
        )
    replace_text(unfinished, "".join(f"{line}\n" for line in done.values()))
    return done


def _put_in_place(unfinished: Path, output: Path, asked: Sequence[Asked]) -> None:
    """Write the lines to the output file in the order of the prompts, without their keys, in one step."""
    done = _done(unfinished)
    rows = [json.loads(done[each.key]) for each in asked]
    write_rows(output, [{name: value for name, value in row.items() if name != "key"} for row in rows])
    unfinished.unlink()
