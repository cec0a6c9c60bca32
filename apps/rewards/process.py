"""Rewards of single steps by a process reward model."""

from typing import Any

from ...policy.rewards.step_rewards import ProcessRewards
from ...rm.errors import UsageError
from ...rm.kinds.process.model import ProcessRewardModel
from ...rm.load import load_reward_model
from ._run import RunFacts


def process(*, run: RunFacts, model: str, scale: float = 1.0) -> ProcessRewards:
    """r_t = `scale` p_t at the token where step t ends           Lightman et al. 2023, arXiv:2305.20050

    `model` is the folder of a process reward model, which splits completions at its separator. A folder named as a
    reward without `process(...)` rewards the whole completion by the aggregate of its steps instead.
    """
    loaded: Any = load_reward_model(model, **run.loading)
    if not isinstance(loaded, ProcessRewardModel):
        raise UsageError(f"{model} is a reward model of kind '{loaded.contract.kind}', which scores no steps")
    return ProcessRewards(loaded, scale)
