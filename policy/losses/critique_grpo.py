"""Critique-GRPO: PPO on first attempts, and on refinements a loss that raises the probability of unlikely tokens."""

from torch import Tensor

from ._kinds import TokenLoss, clipped_with_partners


def critique_grpo(*, gamma: float = 0.1, epsilon: float = 0.2, agents: int = 1) -> TokenLoss:
    """first attempts    L = -min(r A, clip(r, 1 - ε, 1 + ε) A), which is `ppo`      Critique-GRPO: arXiv:2506.03106

    refinements       L = -π / (π + γ) A

    π is the policy's probability of a token without the critique in the prompt, and A its advantage; the gradient in
    log π is largest at π = γ; γ = 0.1 in the released code. The advantages are those of `grpo`, with attempts and
    refinements in one group. The first completions of a group are the policy's (`n_own_completions`), the rest
    refinements or completions of partner models. Not implemented: the generation of critiques and refinements.
    """
    if gamma <= 0:
        raise ValueError(f"critique_grpo: gamma must be above 0, got {gamma}")

    def of_partners(logprobs: Tensor, advantages: Tensor) -> Tensor:
        p = logprobs.exp()
        return -p / (p + gamma) * advantages

    return clipped_with_partners(of_partners, epsilon, agents)
