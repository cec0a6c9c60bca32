"""`rewardlab world`: write a toy world (a small data set and policy), on which every command can be tried."""

import time
from dataclasses import asdict
from typing import Any

from ....benchmarks.garden import pairs, supervised_examples
from ....benchmarks.garden.models import causal_lm, pretrain, tokenizer
from ....rm.data.pairs import pair_row
from ...runs.run_folder import log, run_folder, write_manifest, write_rows
from .settings import WorldConfig

SUPERVISED = 6000
VALIDATION = 400


def write_world(config: WorldConfig) -> dict[str, Any]:
    """Write the preference files `train`, `valid` and `test`, and a start policy in `policy`."""
    started = time.time()
    with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
        write_rows(work / "train.jsonl", map(pair_row, pairs(config.pairs, config.seed, "train")))
        write_rows(work / "valid.jsonl", map(pair_row, pairs(VALIDATION, config.seed, "validation")))
        write_rows(work / "test.jsonl", map(pair_row, pairs(config.test, config.seed, "test")))
        log(f"toy world: {config.pairs} training and {config.test} test pairs; training the start policy")
        words = tokenizer()
        policy = causal_lm(words, config.architecture, config.seed)
        losses = pretrain(policy, words, supervised_examples(SUPERVISED, config.seed), seed=config.seed)
        policy.save_pretrained(work / "policy")
        words.save_pretrained(work / "policy")
        write_manifest(work, data=[], seed=config.seed, started=started, policy_loss=losses[-1])
    return {"world": config.output, "pairs": config.pairs, "test": config.test, "policy_loss": round(losses[-1], 3)}
