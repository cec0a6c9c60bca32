"""`rewardlab rl` that is given the answers of an earlier run: `replayed_rl.py ROLLOUTS WORDS...`; run by torchrun."""

import sys
from pathlib import Path

import pyarrow.parquet as pq
import rewardlab.apps.policy_training as training
from rewardlab.apps.cli import main
from rewardlab.rm.data import as_prompt
from rewardlab.rm.types import prompt_text


def replayed(folder: Path):
    """Every process takes its own rows of each step; the policy says how likely they are."""

    def rollout(prompts, trainer):
        rows = pq.read_table(folder / f"step-{trainer.state.global_step:06d}.parquet").to_pylist()
        assert len(rows) == len(prompts) * trainer.accelerator.num_processes
        first = len(prompts) * trainer.accelerator.process_index
        own = rows[first : first + len(prompts)]
        assert [row["prompt"] for row in own] == [prompt_text(as_prompt(one)) for one in prompts], "in the same order"
        ids = trainer._tokenize_prompts(list(prompts))[0]
        absent = [[float("nan")] * len(row["tokens"]) for row in own]
        return {"prompt_ids": ids, "completion_ids": [row["tokens"] for row in own], "logprobs": absent}

    return rollout


if __name__ == "__main__":
    training._rollouts = lambda *_: replayed(Path(sys.argv[1]))
    sys.exit(main(["rl", *sys.argv[2:]]))
