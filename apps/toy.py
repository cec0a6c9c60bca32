"""The toy world as files, so that every verb can be tried on it."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..benchmarks.worlds.garden import pairs, supervised
from ..benchmarks.worlds.models import causal_lm, pretrain, tokenizer
from ..rm.data import pair_row
from ..rm.types import PreferencePair
from .config import WorldConfig
from .runs import run_folder, say, write_manifest

SUPERVISED = 6000
VALIDATION = 400


def write_world(config: WorldConfig) -> dict[str, Any]:
    """Preference files `train`, `valid` and `test`, and a start policy in `policy`."""
    started = time.time()
    with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
        _write(work / "train.jsonl", pairs(config.pairs, config.seed, "train"))
        _write(work / "valid.jsonl", pairs(VALIDATION, config.seed, "validation"))
        _write(work / "test.jsonl", pairs(config.test, config.seed, "test"))
        say(f"toy world: {config.pairs} training and {config.test} test pairs; training the start policy")
        words = tokenizer()
        policy = causal_lm(words, config.architecture, config.seed)
        losses = pretrain(policy, words, supervised(SUPERVISED, config.seed), seed=config.seed)
        policy.save_pretrained(work / "policy")
        words.save_pretrained(work / "policy")
        write_manifest(work, data=[], seed=config.seed, started=started, policy_loss=losses[-1])
    return {"world": config.output, "pairs": config.pairs, "test": config.test, "policy_loss": round(losses[-1], 3)}


def _write(path: Path, made: Sequence[PreferencePair]) -> None:
    path.write_text("".join(json.dumps(pair_row(pair), ensure_ascii=False) + "\n" for pair in made), encoding="utf-8")
