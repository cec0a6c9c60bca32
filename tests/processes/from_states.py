"""Trainings whose steps start from the states and completions of earlier runs: `from_states.py RUNS`; run by torchrun.

RUNS is a JSON file with an object for each run: `words` of `rewardlab`, and the folders of the earlier run (`run`), of
its states (`states`) and of our own (`own`). All of them in the same processes: most of the time goes into imports.
"""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import rewardlab.apps.assembly.policy_training.run as training
import rewardlab.apps.runs.processes as processes
from rewardlab.apps.cli import main
from rewardlab.rm.data.conversation_split import as_prompt
from rewardlab.rm.types import prompt_text

sys.path.insert(0, str(Path(__file__).parent))
from step_states import TakeStates, with_callback


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
    leave, processes.leave = processes.leave, lambda finished: None
    for run in json.loads(Path(sys.argv[1]).read_text()):
        training._rollouts = lambda *_, folder=Path(run["run"]) / "rollouts": replayed(folder)
        with with_callback(TakeStates, Path(run["states"]), Path(run["own"])):
            if code := main(run["words"]):
                sys.exit(code)
    leave(finished=True)
