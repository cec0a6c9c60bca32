"""Scorers for inspect_ai: a judge of rewardlab, or a reward model behind `rewardlab serve`. Needs inspect_ai."""

from typing import Any

from inspect_ai.scorer import Score, Target, mean, scorer, stderr  # pyright: ignore[reportMissingImports]
from inspect_ai.solver import TaskState  # pyright: ignore[reportMissingImports]

from ._rewards import BatchedReward, judged_rewards, served_rewards


@scorer(metrics=[mean(), stderr()])
def judged(**settings: Any):
    """Score by a judge. `settings` are those of the reward `judge(...)`: endpoint, model, kind, rubric and so on."""
    return _score(BatchedReward(judged_rewards(**settings)), "the judge abstained")


@scorer(metrics=[mean(), stderr()])
def rewarded(url: str | None = None, objective: str | None = None):
    """Score by a reward model behind `rewardlab serve`."""
    return _score(BatchedReward(served_rewards(url, objective)), "no reward: too long, or not finite")


def _score(reward: BatchedReward, absent: str):
    async def score(state: TaskState, target: Target) -> Score:
        """Return the score of the last message. Metrics ignore a missing score."""
        prompt = [{"role": message.role, "content": message.text} for message in state.messages]
        while prompt and prompt[-1]["role"] == "assistant":
            prompt.pop()
        value = await reward(prompt, state.output.completion)
        if value is None:
            return Score.unscored(answer=state.output.completion, explanation=absent)
        return Score(value=value, answer=state.output.completion)

    return score
