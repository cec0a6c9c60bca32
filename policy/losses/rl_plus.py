"""RL-PLUS: PPO on the policy's completions, a bounded ratio with an exploration bonus on partners' completions."""

from torch import Tensor

from ._kinds import TokenLoss, clipped_with_partners


def rl_plus(*, epsilon: float = 0.2, power: float = 0.5, agents: int = 1) -> TokenLoss:
    """by the policy    L = -min(r A, clip(r, 1 - ε, 1 + ε) A), which is `ppo`              RL-PLUS: arXiv:2508.00222

    by partners      L = -2 π / (sg π + ω) A (1 - sg π)^γ,   ω = (sg π + 1) / 2

    π is the policy's probability of a token, A its advantage, and sg stops the gradient. The ratio does not depend on
    the partner's probabilities and lies between 0 and 1; (1 - sg π)^γ with γ = `power` gives more weight to unlikely
    tokens. ε and γ are those of the released code. sg π is of the current policy; in the released code, of the
    generating policy (equal in the first optimizer step). The first completions of a group are the policy's
    (`n_own_completions`).
    """
    if power < 0:
        raise ValueError(f"rl_plus: power must be 0 or more, got {power}")

    def of_partners(logprobs: Tensor, advantages: Tensor) -> Tensor:
        p, fixed = logprobs.exp(), logprobs.detach().exp()
        return -2 * p / (1.5 * fixed + 0.5) * advantages * (1 - fixed).clamp_min(0) ** power

    return clipped_with_partners(of_partners, epsilon, agents)
