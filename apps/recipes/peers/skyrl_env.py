"""SkyRL environment with one turn and the reward of `rewardlab serve` (see `skyrl.sh` beside it).

Needs skyrl-gym. Importing this module registers the environment as `rewardlab`.
"""

import asyncio
from typing import Any

from skyrl_gym.envs import register  # pyright: ignore[reportMissingImports]
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput  # pyright: ignore[reportMissingImports]

from ._rewards import BatchedReward, require_reward, served_rewards

ID = "rewardlab"


class RewardServerEnv(BaseTextEnv):
    """Single-turn environment that rewards the completion. A row's `reward_spec` may set `missing` and `objective`."""

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None):
        super().__init__()
        self.reward_spec = (extras or {}).get("reward_spec") or {}
        self.prompt: list[dict[str, str]] = []

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Store the prompt, which the reward model reads before the completion."""
        self.prompt = [dict(message) for message in prompt]
        return prompt, {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Return the reward of the completion, and end the episode."""
        reward = BatchedReward(served_rewards(self.reward_spec.get("url"), self.reward_spec.get("objective"), True))
        score = require_reward(asyncio.run(reward(self.prompt, action)), self.reward_spec.get("missing"))
        return BaseTextEnvStepOutput(observations=[], reward=score, done=True, metadata={})


register(id=ID, entry_point=f"{__name__}:RewardServerEnv")
