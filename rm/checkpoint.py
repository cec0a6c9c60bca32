"""Open a reward model's folder by what it says it is, and prove that it still gives the numbers it gave."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .contract import FILE, load_contract
from .errors import CheckFailed, DataError
from .plugins import load
from .types import Example, RewardModel, prompt_text

GOLDEN = "golden.jsonl"


def load_reward_model(source: str, **options: Any) -> RewardModel:
    """The reward model in a folder, of the kind its contract names; any other path or Hub id as a scalar one."""
    folder = Path(source)
    if folder.is_dir() and not (folder / FILE).exists() and not (folder / "config.json").exists():
        raise DataError(f"{source}: neither {FILE} nor config.json in it; give the folder of a trained reward model")
    kind = load_contract(folder).kind if (folder / FILE).exists() else "scalar"
    return load("rm.models", kind)(source, **options)


def write_golden(model: RewardModel, examples: Sequence[Example], folder: Path) -> None:
    """Keep a few conversations with their rewards beside the weights."""
    rewards = model.rate(examples)
    rows = [
        {"prompt": list(example.prompt), "answer": example.answer, "rewards": reward.tolist()}
        for example, reward in zip(examples, rewards, strict=True)
    ]
    (folder / GOLDEN).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def check_golden(model: RewardModel, folder: Path, tolerance: float = 1e-5) -> float:
    """The largest difference to the kept rewards; beyond `tolerance` times their standard deviation it is an error."""
    rows = [json.loads(line) for line in (folder / GOLDEN).read_text(encoding="utf-8").split("\n") if line]
    kept = np.array([row["rewards"] for row in rows])
    found = model.rate([Example(tuple(row["prompt"]), row["answer"]) for row in rows])
    worst = np.abs(found - kept).max(axis=1)
    if (worst > tolerance * max(kept.std(), 1e-12)).any():
        row, place = rows[int(worst.argmax())], int(worst.argmax())
        raise CheckFailed(
            f"{folder}: '{prompt_text(row['prompt'])[:40]}' now scores {found[place].tolist()} and was saved with "
            f"{kept[place].tolist()}; the weights, the tokenizer or the base model have changed"
        )
    return float(worst.max())
