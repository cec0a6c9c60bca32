"""HACPO: advantages over the completions of several agents, rescaled by the agents' capabilities."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..advantages._groups import groups, masked_advantages
from ..losses._kinds import n_own_completions
from ..types import Rollout, State, Transform


def hacpo(*, floor: float, window: int = 5, epsilon: float = 1e-4, agents: int = 1) -> Transform:
    """Replace advantages by `pooled_advantages`, with capability P_j = max(floor, moving mean of agent j's rewards).

    The moving mean is over the last `window` steps, including the current step, as in the authors' code. Agent 0 is the
    learner; the index of a completion in its group determines its agent (`writers`). `floor` > 0 has no default,
    because the paper states none; the authors' code limits ratios to [0.1, 10]. Rewards must be >= 0. NaN rewards have
    no effect. An agent without any reward so far gets the mean P of the other agents. For one agent the result is
    `grpo`.
    """
    if floor <= 0 or window < 1 or agents < 1:
        raise ValueError(
            f"hacpo: floor must be above 0, window and agents at least 1, got {floor}, {window} and {agents}"
        )

    def change(state: State, advantages: Float[Tensor, "N ..."], rollout: Rollout) -> tuple[State, Tensor]:
        (total,) = rollout.require("hacpo", "total")
        if (total < 0).any():
            raise ValueError(
                f"hacpo: capabilities are divided by one another, so rewards must be >= 0; got {total.min().item()}; "
                "use verdicts, or a reward transform that adds a constant"
            )
        agent = writers(rollout.group, agents)
        means = [*state["means"], agents_means(total, agent, agents)][-window:]
        P = torch.tensor(capabilities(means, floor), dtype=torch.float64, device=total.device)
        agent_advantages = pooled_advantages(total, rollout.group, agent, P, learner=0, epsilon=epsilon)
        return {"means": means}, agent_advantages.to(advantages.dtype)

    return Transform("advantage", change, stage=1, start={"means": []})


def pooled_advantages(
    rewards: Float[Tensor, " N"],
    group: Int[Tensor, " N"],
    agent: Int[Tensor, " N"],
    P: Float[Tensor, " A"],
    *,
    learner: int,
    epsilon: float = 1e-4,
) -> Float[Tensor, " N"]:
    """A_i = P_j/P_k (r_i - μ) / (std + ε), where k is the learner and j generated completion i; μ is `pooled_baseline`.

    HACPO: arXiv:2603.02604. P are the agents' capabilities and r rewards. std is over the group's rewards of all
    agents, with the denominator of `grpo`. For one agent or equal capabilities the result equals `grpo`. Groups of
    equal rewards have advantage exactly 0, for any μ.
    """
    statistics, baseline = groups(rewards, group), pooled_baseline(rewards, group, agent, P, learner)
    scaled = (rewards - baseline) / (statistics.variance.sqrt() + epsilon) * (P[agent] / P[learner])
    return masked_advantages(scaled, statistics.valid & (statistics.variance > 0), rewards)


def pooled_baseline(
    rewards: Float[Tensor, " N"], group: Int[Tensor, " N"], agent: Int[Tensor, " N"], P: Float[Tensor, " A"], k: int
) -> Float[Tensor, " N"]:
    """μ = mean over a group's completions of P_k/P_j r: partners' rewards rescaled to learner k's mean.

    HACPO: arXiv:2603.02604. Agent j generated the completion with reward r. The baseline is unbiased on average over
    prompts. It is biased for single prompts if the ratio of the agents' rewards depends on the prompt, since P_j is one
    number for all prompts.
    """
    return groups(rewards * (P[k] / P[agent]), group).mean


def writers(group: Int[Tensor, " N"], agents: int) -> Int[Tensor, " N"]:
    """Return the index of the agent that generated each completion.

    The first n completions of a group are from agent 0, the next n from agent 1, and so on.
    """
    agents_of_rows = torch.zeros_like(group)
    for group_id in group.unique():
        rows = (group == group_id).nonzero().squeeze(1)
        own_rows = n_own_completions(len(rows), agents)
        agents_of_rows[rows] = torch.arange(len(rows), device=group.device) // own_rows
    return agents_of_rows


def agents_means(rewards: Float[Tensor, " N"], agent: Int[Tensor, " N"], agents: int) -> list[float | None]:
    """Return the mean reward of each agent. None for an agent without rewards."""
    rewards_by_agent = [rewards[(agent == index) & ~rewards.isnan()].double() for index in range(agents)]
    return [agent_rewards.mean().item() if len(agent_rewards) else None for agent_rewards in rewards_by_agent]


def capabilities(means: Sequence[Sequence[float | None]], floor: float) -> list[float]:
    """Return the capability P of each agent from its mean rewards by step.

    >>> capabilities([[0.5, 0.0], [1.0, None]], floor=0.1)
    [0.75, 0.1]
    """
    columns = [[mean for mean in column if mean is not None] for column in zip(*means, strict=True)]
    estimates = [max(floor, sum(history) / len(history)) if history else None for history in columns]
    others = [capability for capability in estimates if capability is not None] or [floor]
    return [sum(others) / len(others) if capability is None else capability for capability in estimates]
