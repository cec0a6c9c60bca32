"""Rewards of two processes, with an ensemble that has no value at all in the second; run by torchrun."""

import numpy as np
from accelerate import Accelerator
from rewardlab.apps.runs.processes import leave
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.training.step_inputs import all_members
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.types import Example, user_turn


class Ensemble:
    """Three members that rate a completion by its length, with offsets of -1, 0 and 1."""

    contract = ScoringContract(kind="ensemble", objectives=("overall",))

    def __init__(self, fails: bool):
        self.fails = fails

    def rate(self, examples):
        if self.fails:
            raise RuntimeError("no server")
        return self.spread(examples).mean(0)

    def spread(self, examples):
        return np.array([[[len(example.completion) + shift] for example in examples] for shift in (-1.0, 0.0, 1.0)])


if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2, "start me with torchrun --nproc_per_node 2"
    examples = [Example(user_turn("why?"), completion) for completion in ("so", "no")]
    sources = RewardSources({"rm": Ensemble(fails=accelerator.process_index == 1)}, skip=True)
    members = all_members(accelerator, sources(examples)[0].members)
    assert members is not None and members.shape == (2, 1, 3)
    everywhere = accelerator.gather(members)
    assert everywhere[:2, 0].tolist() == [[1.0, 2.0, 3.0]] * 2 and everywhere[2:].isnan().all()
    leave(finished=True)
