"""Rewards of single steps by a process reward model."""

from typing import Any

from ...policy.rewards.step_rewards import ProcessRewards
from ...rm.errors import UsageError
from ...rm.kinds.process.model import ProcessRewardModel
from ...rm.load import load_reward_model
from ._open import RunFacts


def process(*, run: RunFacts, model: str, scale: float = 1.0) -> ProcessRewards:
    """r_t = `scale` p_t at the token where step t ends           Lightman et al. 2023, arXiv:2305.20050

    p_t is the score of step t by the process reward model in folder `model`, which splits completions at its separator.
    If the folder is given without `process(...)`, the reward of the whole completion is the aggregate of its step
    scores.
    """
    loaded: Any = load_reward_model(model, **run.loading)
    if not isinstance(loaded, ProcessRewardModel):
        raise UsageError(f"{model} is a reward model of kind '{loaded.contract.kind}', which does not score steps")
    return ProcessRewards(loaded, scale)
