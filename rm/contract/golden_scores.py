"""Golden scores (rewards of stored examples) and file checksums of a saved reward model, which loading checks."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UNREADABLE, CheckFailed, DataError
from ..io.checked_files import from_json_lines
from ..io.checksums import fault_of, read_sums, write_sums
from ..types import Completion, Example, RewardModel, completion, completion_json, prompt_text

GOLDEN, SUMS = "golden.jsonl", "checksums.json"
HASHED = 2_000_000_000
"""Weights of at most this many bytes are hashed whenever a model is loaded (one to two seconds). For larger ones only
file sizes and golden scores are checked; `rewardlab verify` hashes them."""


def write_golden(model: RewardModel, examples: Sequence[Example], folder: Path) -> None:
    """Save examples with their rewards (golden scores), and checksums of the weights, in the model's folder."""
    rewards = model.rate(examples)
    if not np.isfinite(rewards).all():
        raise CheckFailed("the trained model gives rewards that are not finite; lower --learning_rate and train again")
    rows = [
        {"prompt": list(example.prompt), "completion": completion_json(example.completion), "rewards": reward.tolist()}
        for example, reward in zip(examples, rewards, strict=True)
    ]
    (folder / GOLDEN).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    write_sums(folder, [*folder.glob("*.safetensors"), *folder.glob("tokenizer.json")], folder / SUMS)


def check_files(folder: Path, *, read_all: bool = False) -> int | None:
    """Return the number of weight and tokenizer files that match their checksums; None if no checksums were saved.

    Raises `CheckFailed` for a file that differs. Unless `read_all`, weights above `HASHED` bytes are compared by size
    only.
    """
    if not (folder / SUMS).is_file():
        return None
    try:
        sums = read_sums(folder / SUMS)
    except ValueError as error:
        raise CheckFailed(f"{folder}: {error}; restore it, or delete it to skip this check") from error
    hashed = read_all or sum(entry["bytes"] for entry in sums.values()) <= HASHED
    if fault := fault_of(folder, sums, hashed=hashed):
        raise CheckFailed(f"{folder}: {fault}; restore the file, or delete {SUMS} if it was changed on purpose")
    return len(sums)


def read_golden(folder: Path) -> tuple[list[Example], np.ndarray]:
    """Return the stored examples and their rewards [N, K]."""
    try:
        rows = from_json_lines((folder / GOLDEN).read_text(encoding="utf-8"))
        rewards = np.array([row["rewards"] for row in rows], float)
        return [Example(tuple(row["prompt"]), _completion(row)) for row in rows], rewards
    except UNREADABLE as error:
        raise _damaged_error(folder, error) from error


def _completion(row: Mapping[str, Any]) -> str | Completion:
    """Return the completion of a stored example."""
    stored = row["completion"] if "completion" in row else row["answer"]  # its name in models of earlier versions
    return completion(stored) if isinstance(stored, list) else stored


def _damaged_error(folder: Path, reason: object) -> DataError:
    return DataError(f"{folder / GOLDEN}: damaged ({reason}); restore it, or delete it to skip this check")


def check_golden(model: RewardModel, folder: Path) -> float:
    """Return the largest difference from the stored rewards; raise `CheckFailed` if it exceeds the dtype's tolerance.

    The tolerance is relative to the size of the rewards: 1e-5 in float32 and float64, 0.05 in half precision, where
    the order of summation differs between machines.
    """
    examples, stored = read_golden(folder)
    try:
        rewards = model.rate(examples)
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged_error(folder, error) from error
    if rewards.shape != stored.shape:
        raise _damaged_error(folder, f"its rewards have shape {stored.shape}, the model's {rewards.shape}")
    worst = np.abs(rewards - stored).max(axis=1, initial=0.0)
    share = 1e-5 if model.contract.dtype in ("float32", "float64") else 0.05
    tolerance = share * max(stored.std(), np.abs(stored).max())
    if not (worst <= tolerance).all():
        index = int(np.nan_to_num(worst, nan=np.inf).argmax())
        prompt = prompt_text(examples[index].prompt)[:40]
        raise CheckFailed(
            f"{folder}: '{prompt}' now scores {rewards[index].tolist()}, but was saved with "
            f"{stored[index].tolist()}; the weights, the tokenizer or the base model have changed"
        )
    return float(worst.max(initial=0.0))
