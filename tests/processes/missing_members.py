"""Rewards of two processes, with an ensemble that has no value at all in the second; run by torchrun."""

import numpy as np
from accelerate import Accelerator
from rewardlab.apps.runs.processes import leave
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.training.trainer import PolicyTrainer
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


class Gatherer:
    """What `PolicyTrainer` gathers rewards with."""

    _gather, rewards_everywhere = PolicyTrainer._gather, PolicyTrainer._rewards_everywhere

    def __init__(self):
        self.accelerator = Accelerator(cpu=True)


if __name__ == "__main__":
    gatherer = Gatherer()
    assert gatherer.accelerator.num_processes == 2, "start me with torchrun --nproc_per_node 2"
    examples = [Example(user_turn("why?"), completion) for completion in ("so", "no")]
    sources = RewardSources({"rm": Ensemble(fails=gatherer.accelerator.process_index == 1)}, skip=True)
    rewards = gatherer.rewards_everywhere(sources(examples)[0])
    members = rewards.members
    assert rewards.values[:2, 0].tolist() == [2.0, 2.0] and rewards.values[2:].isnan().all()
    assert members is not None and members.shape == (4, 1, 3)
    assert members[:2, 0].tolist() == [[1.0, 2.0, 3.0]] * 2 and members[2:].isnan().all()
    leave(finished=True)
