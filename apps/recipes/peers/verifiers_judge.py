"""A judge for verifiers (v1): a judge of rewardlab as the reward of a task's last reply. Needs verifiers.

A task's `judges` name a judge by a top-level module. Put a file `rewardlab_judge.py` on the path, with the line
`from rewardlab.apps.recipes.peers.verifiers_judge import RewardlabJudge, __all__`, and `id = "rewardlab_judge"` in the
task's settings.
"""

from functools import cached_property
from typing import Any

from verifiers.v1 import Judge, JudgeConfig, TaskData, Trace  # pyright: ignore[reportMissingImports]

from ._rewards import BatchedReward, judged_rewards, served_rewards


class RewardlabJudgeConfig(JudgeConfig):
    """Configuration: `url` of a scoring server, or `settings` of a judge as in the reward `judge(...)`."""

    url: str | None = None
    objective: str | None = None
    settings: dict[str, Any] = {}  # noqa: RUF012  (a field of pydantic, which copies it)


class RewardlabJudge(Judge[float, RewardlabJudgeConfig]):
    """Score of a judge or reward model. An abstention raises an error, so that the policy is not penalised for it."""

    @cached_property
    def rewards(self) -> BatchedReward:
        """Client of the judge or of the scoring server."""
        config = self.config
        served = config.url is not None
        return BatchedReward(
            served_rewards(config.url, config.objective) if served else judged_rewards(**config.settings)
        )

    async def score(self, task: TaskData, trace: Trace) -> float:
        """Return the score of the last reply to the task's prompt."""
        system = [{"role": "system", "content": task.system_prompt}] if task.system_prompt else []
        value = await self.rewards([*system, {"role": "user", "content": task.prompt_text}], trace.last_reply)
        if value is None:
            raise ValueError("no score: the judge abstained, or the reply is too long for the reward model")
        return value


__all__ = ["RewardlabJudge"]
