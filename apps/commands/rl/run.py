"""`rewardlab rl`: policy training on prompts and rewards, with metrics and rollouts of each step."""

import time
from typing import Any

from ....policy.training.arguments import PolicyArguments
from ...assembly.policy_training.run import POLICY, train_policy
from ...assembly.policy_training.settings import RlConfig
from ...runs.run_folder import seconds_since


def run_rl(config: RlConfig, arguments: PolicyArguments) -> dict[str, Any]:
    """Train a policy on rewards, and return the summary of the run."""
    started = time.time()
    output, here, results = train_policy(config, arguments)
    if not here.leads:
        return {"output": output, "processes": here.world, "rank": here.rank}
    return {"output": output, "policy": f"{output}/{POLICY}", **results, "seconds": round(seconds_since(started), 1)}
