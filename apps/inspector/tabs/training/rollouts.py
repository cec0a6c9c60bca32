"""Completions of one step of policy training: a table, and one completion in full."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .....rm.errors import UNREADABLE, DataError, UsageError
from .....rm.io.reading_faults import reading_fault
from .....rm.training import CHECKPOINTS
from ...html import box_html, decimals_of, number, text_html
from ...texts.tokens import heat_html, legend_html, scale_of, shades
from ..metrics import link_html, row_html, table_html
from .log import Sources

ROLLOUTS = "rollouts"
FILE = re.compile(r"step-(\d+)\.parquet")
WAY_OUT = "the other steps can still be looked at"
MOST_TOKENS = 4_000
SHOWN = 160  # characters of a text in the table


class Rollout(NamedTuple):
    """One completion: texts, rewards by stage and component, advantages by stage, and values of tokens.

    A stage is the raw value or the output of a transform.
    """

    step: int
    position: int
    group: int
    prompt: str
    answer: str
    finished: bool
    tokens: tuple[int, ...]
    rewards: Mapping[str, Mapping[str, float | None]]
    """Stage -> component -> reward. None for a missing reward."""
    advantages: Mapping[str, np.ndarray]
    """Stage -> advantages, shape [1] or one for each token."""
    numbers: Mapping[str, np.ndarray]
    """Name -> values of tokens: `log π`, `log base` and `value`, as far as they are stored."""
    versions: Mapping[str, Any]


# ---- reading ----


def steps_of(folder: Path) -> list[int]:
    """Return the steps whose completions are stored."""
    numbers = map(_number, (folder / ROLLOUTS).glob("step-*.parquet"))
    return sorted(number for number in numbers if number is not None)


def nearest(steps: Sequence[int], target: float) -> int:
    """Return the stored step closest to `target`. Of two equally close steps, return the earlier."""
    return min(steps, key=lambda step: (abs(step - target), step))


def number_of(folder: Path, step: int) -> int:
    """Return the number of stored completions of a step. Raise `DataError` if there are none."""
    rows = _file(folder, step).metadata.num_rows
    if not rows:
        raise DataError(f"the file of step {step} contains no completion; {WAY_OUT}")
    return rows


def read_answers(folder: Path, step: int, start: int, size: int) -> list[Rollout]:
    """Load `size` completions from position `start`, without token values other than advantages."""
    file = _file(folder, step)
    left_out = ("tokens", "logprobs", "policy_logprobs", "base", "values")
    rows = _load_rows(file, start, size, [name for name in file.schema_arrow.names if name not in left_out])
    return [_rollout(step, start + index, row) for index, row in enumerate(rows)]


def read_answer(folder: Path, step: int, index: int) -> Rollout:
    """Load a completion with all stored values."""
    file = _file(folder, step)
    rows = _load_rows(file, index, 1, file.schema_arrow.names)
    if not rows:
        raise UsageError(f"step {step} has {file.metadata.num_rows} completions, and none at index {index}")
    return _rollout(step, index, rows[0])


def _file(folder: Path, step: int) -> pq.ParquetFile:
    path = next((path for path in (folder / ROLLOUTS).glob("step-*.parquet") if _number(path) == step), None)
    if path is None:
        raise UsageError(f"no completions of step {step} are stored; there are steps {_list(steps_of(folder))}")
    try:
        return pq.ParquetFile(path, memory_map=True)
    except (OSError, MemoryError, pa.ArrowException) as error:
        raise DataError(f"{path}: {reading_fault(error, 'it is damaged', WAY_OUT)}") from error


def _number(path: Path) -> int | None:
    """Return the step in the name of a file. None for another file name."""
    match = FILE.fullmatch(path.name)
    return int(match[1]) if match else None


def _list(steps: Sequence[int]) -> str:
    """Return the range of the stored steps as text, or none."""
    return f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else ", ".join(map(str, steps)) or "none"


def _load_rows(file: pq.ParquetFile, start: int, size: int, names: list[str]) -> list[dict[str, Any]]:
    """Load some rows of the given columns. Raise `DataError` if the file is damaged."""
    try:
        return file.read(names).slice(max(0, start), size).to_pylist()
    except (OSError, MemoryError, pa.ArrowException) as error:
        fault = reading_fault(error, "the file is damaged", WAY_OUT)
        raise DataError(f"the completions of this step: {fault}") from error


def _rollout(step: int, index: int, row: Mapping[str, Any]) -> Rollout:
    try:
        rewards: dict[str, dict[str, float | None]] = {}
        for name, value in row.items():
            if name.startswith("reward/"):
                _, stage, component = name.split("/", 2)
                rewards.setdefault(stage, {})[component] = None if value is None else float(value)
        of_tokens = {"log π": "policy_logprobs", "log base": "base", "value": "values"}
        return Rollout(
            step=step,
            position=index,
            group=int(row["group"]),
            prompt=str(row["prompt"]),
            answer=str(row["completion"]),
            finished=bool(row["finished"]),
            tokens=tuple(map(int, row.get("tokens") or ())),
            rewards=rewards,
            advantages={name: _array(row[f"advantage/{name}"]) for name in _columns_with_prefix(row, "advantage/")},
            numbers={name: _array(row[column]) for name, column in of_tokens.items() if row.get(column)},
            versions={name: row[f"version/{name}"] for name in _columns_with_prefix(row, "version/")},
        )
    except UNREADABLE as error:
        raise DataError(f"the completions of step {step} lack a column ({error}); {WAY_OUT}") from error


def _columns_with_prefix(row: Mapping[str, Any], prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in row if name.startswith(prefix)]


def _array(values: Sequence[float | None] | None) -> np.ndarray:
    numbers = np.array([np.nan if value is None else value for value in values or ()], float)
    if numbers.ndim > 1:
        raise ValueError("lists in a column of numbers")
    return numbers


# ---- the table ----


def total(rollout: Rollout, sources: Sources, stage: str | None = None) -> float | None:
    """Return Σ_k w_k r_k over components k with weight w_k and reward r_k after a stage, by default the last.

    None if a component with a nonzero weight is missing.
    """
    if not rollout.rewards:
        return None
    rewards = rollout.rewards[stage or [*rollout.rewards][-1]]
    used = [(sources.weight(name), value) for name, value in rewards.items() if sources.weight(name)]
    if not used or any(value is None for _, value in used):
        return None
    return sum(weight * value for weight, value in used if value is not None)


def advantage(rollout: Rollout) -> float | None:
    """Return the mean advantage of the last stage over the tokens. None without advantages."""
    last = [*rollout.advantages.values()][-1:] or [np.empty(0)]
    known = last[0][~np.isnan(last[0])]
    return float(known.mean()) if len(known) else None


def rows_html(rollouts: Sequence[Rollout], sources: Sources, chosen: int, address: str) -> str:
    """Return a table of completions with rewards after the last transform and the mean advantage over tokens.

    The link to a completion is `address` followed by its position; `chosen` is the position of the shown completion.
    """
    names = [*[*rollouts[0].rewards.values()][-1]] if rollouts and rollouts[0].rewards else []
    heads = ["prompt", "completion", *map(text_html, names), "trained on", "advantage", "finished"]
    columns = zip(*(_numbers(rollout, sources) for rollout in rollouts), strict=True)
    texts = [[_missing(value, decimals_of(column)) for value in column] for column in columns]
    rows = []
    for index, rollout in enumerate(rollouts):
        link = link_html(f"{address}{rollout.position}", _beginning(rollout.answer) or "(empty)")
        cells = [_beginning(rollout.prompt), link, *(column[index] for column in texts)]
        cells.append("yes" if rollout.finished else "no")
        rows.append(row_html(cells, words={1}, kind="mine" if rollout.position == chosen else ""))
    return f'<div class="box scores">{table_html(heads, rows, words={1})}</div>'


def _numbers(rollout: Rollout, sources: Sources) -> list[float | None]:
    components = ([*rollout.rewards.values()] or [{}])[-1].values()
    return [*components, total(rollout, sources), advantage(rollout)]


def _beginning(text: str) -> str:
    return text_html(" ".join(text.removeprefix("user: ")[: 4 * SHOWN].split())[:SHOWN])


def _missing(value: float | None, decimals: int | None = None) -> str:
    """Return a number as text, or "missing" for None."""
    return "missing" if value is None else number(value, decimals)


# ---- one answer ----


def answer_html(rollout: Rollout, sources: Sources) -> str:
    """Return prompt and completion in full, and the rewards after every stage."""
    finished = "finished" if rollout.finished else "cut off at the longest length"
    versions = ", ".join(
        f"{name} {number(value) if isinstance(value, int | float) else value}"
        for name, value in rollout.versions.items()
    )
    head = f"<span>Step {rollout.step}, completion {rollout.position + 1}</span>"
    head += f'<span class="faint">group {rollout.group}, {finished}</span>'
    prompt, answer = (f'<div class="text">{text_html(text)}</div>' for text in (rollout.prompt, rollout.answer))
    rated = f"<p class=faint>Rated by {text_html(versions)}.</p>" if versions else ""
    boxes = f'{box_html(head, prompt, "prompt")}<div class="answers">{box_html("Completion", answer, "answer")}</div>'
    return f"{boxes}{_rewards_html(rollout, sources)}{rated}"


def _rewards_html(rollout: Rollout, sources: Sources) -> str:
    names = list(dict.fromkeys(name for stage in rollout.rewards.values() for name in stage))
    heads = ["rewards after", *(f"{text_html(name)}{_weight_html(sources, name)}" for name in names), "trained on"]
    stages = {
        stage: [*(rewards.get(name) for name in names), total(rollout, sources, stage)]
        for stage, rewards in rollout.rewards.items()
    }
    decimals = [decimals_of(column) for column in zip(*stages.values(), strict=True)]
    rows = (
        [text_html(stage), *(_missing(*cell) for cell in zip(values, decimals, strict=True))]
        for stage, values in stages.items()
    )
    return f'<div class="box scores">{table_html(heads, rows)}</div>'


def _weight_html(sources: Sources, name: str) -> str:
    """Return the weight of a reward in a table heading as HTML. Empty for weight 1."""
    if sources.watches(name):
        return ' <span class="faint">watched</span>'
    weight = sources.weight(name)
    return "" if weight == 1 else f' <span class="faint">× {number(weight)}</span>'


# ---- tokens ----


def token_series(rollout: Rollout) -> dict[str, np.ndarray]:
    """Return name -> values for colouring tokens, the last stage's advantage first. A single value is repeated."""
    T = len(rollout.tokens)
    series = {
        f"advantage: {name}": np.repeat(values, T) if len(values) == 1 else values
        for name, values in reversed(rollout.advantages.items())
    }
    known = {name: values for name, values in rollout.numbers.items() if len(values) == T}
    if {"log π", "log base"} <= known.keys():
        series["log π - log base"] = known["log π"] - known["log base"]
    if "value" in known:
        series["value"] = known["value"]
    return {name: values for name, values in series.items() if len(values) == T}


def strip_html(rollout: Rollout, texts: Sequence[str], name: str) -> str:
    """Return the tokens coloured by the series `name` of `token_series`, with all values of a token in its tooltip."""
    every = token_series(rollout)
    values = every[name][:MOST_TOKENS]
    scale = scale_of([values])
    titles = [_title(rollout, every, index) for index in range(len(values))]
    unit = "nats" if name == "log π - log base" else "reward's unit" if name == "value" else ""
    cut = len(rollout.tokens) - len(values)
    return (
        f"{legend_html(scale, unit=unit, low='', high='')}"
        f"{heat_html(texts[: len(values)], shades(values.tolist(), scale), titles)}"
        f"{f'<p class=faint>{cut:,} more tokens</p>' if cut else ''}"
    )


def _title(rollout: Rollout, every: Mapping[str, np.ndarray], index: int) -> str:
    numbers = {**every, **rollout.numbers}
    facts = (f"{name} {number(float(values[index]))}" for name, values in numbers.items() if index < len(values))
    return f"token {index + 1}, id {rollout.tokens[index]}\n" + "\n".join(facts)


def token_texts(folder: Path, tokens: Sequence[int]) -> list[str]:
    """Return the text of each token from the run's tokenizer, or the token's id if the run has no tokenizer yet."""
    saved = [path for parent in (folder / CHECKPOINTS, folder) for path in sorted(parent.glob("checkpoint-*"))]
    homes = [folder / "policy", *saved]
    home = next((home for home in homes if (home / "tokenizer.json").is_file()), None)
    if home is None:
        return [f"{token} " for token in tokens]
    from .....policy.decoding.guided import token_texts as texts_of

    return texts_of(_tokenizer(home, (home / "tokenizer.json").stat().st_mtime_ns), list(tokens[:MOST_TOKENS]))


@lru_cache(maxsize=2)
def _tokenizer(folder: Path, _mtime: int) -> Any:
    from transformers import PreTrainedTokenizerFast

    try:
        return PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # the library raises what its parsers do
        raise DataError(f"{folder / 'tokenizer.json'} cannot be read ({error}); {WAY_OUT}") from error
