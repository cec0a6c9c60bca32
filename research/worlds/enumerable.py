"""A language small enough to enumerate all completions: the optimum of KL-regularised RL is known exactly.

There are V words and one prompt; a completion is any T of the words, so there are M = V^T completions (6^4 = 1296 by
default) and a policy is a vector log π [M] in nats. The prompt is a word itself, `PROMPT`, and there is no padding and
no end token: a language model over this vocabulary gives every completion a probability, and they sum to 1. The true
rewards are sums over words, so the ideal autoregressive reward model has a closed form (`ideal_guide`). A point of an
exact front is `log_p.exp() @ rewards`. All values are float64.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from ...rm.errors import UsageError

WORDS = 6
LENGTH = 4
MOST_WORDS = 8
MOST_ANSWERS = 300_000
PROMPT = 0
CONFLICT = -0.6
SPREAD = 0.18
ROWS = 2**14  # completions in one forward pass


def answers(words: int = WORDS, length: int = LENGTH) -> Int[Tensor, "M T"]:
    """Return all completions, in lexicographic order."""
    if not (2 <= words <= MOST_WORDS and length >= 1 and words**length <= MOST_ANSWERS):
        raise UsageError(
            f"{words} words in answers of {length}; take 2 to {MOST_WORDS} words, and at most {MOST_ANSWERS:,} answers"
        )
    return torch.cartesian_prod(*[torch.arange(words)] * length).reshape(-1, length)


# ---- rewards ----


def word_rewards(objectives: int = 2, words: int = WORDS, seed: int = 0) -> Float[Tensor, "K V"]:
    """Return the reward of each word under each objective: mean 0 and mean square 1 over the words.

    The first two objectives are in conflict, with correlation `CONFLICT` over the words; a third is uncorrelated.
    """
    if objectives not in (2, 3) or words <= objectives:
        raise UsageError(
            f"{objectives} objectives over {words} words; take 2 or 3 objectives, and more words than that"
        )
    drawn = torch.randn(words, objectives, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    axes = torch.linalg.qr(drawn - drawn.mean(0)).Q.T * words**0.5
    axes[1] = CONFLICT * axes[0] + (1 - CONFLICT**2) ** 0.5 * axes[1]
    return axes


def rewards(answers: Int[Tensor, "M T"], word_rewards: Float[Tensor, "K V"]) -> Float[Tensor, "M K"]:
    """Compute the true rewards: r_i(y) = Σ_t w_i[y_t]."""
    return word_rewards[:, answers].sum(-1).T


class LabelledPairs(NamedTuple):
    """Two completions [N, T] each, and P(the first is better) or 0/1 under each objective [N, K]."""

    first: Int[Tensor, "N T"]
    second: Int[Tensor, "N T"]
    wins: Float[Tensor, "N K"]


def labelled_pairs(
    n: int,
    seed: int,
    answers: Int[Tensor, "M T"],
    rewards: Float[Tensor, "M K"],
    log_base: Float[Tensor, " M"],
    *,
    sampled: bool = False,
) -> LabelledPairs:
    """Return pairs of independent completions of the base model, with Bradley-Terry labels by objective (1952).

    P(y0 better | i) = σ(r_i(y0) - r_i(y1))

    `wins` are these probabilities, or with `sampled` one draw from them for each objective. The two completions of a
    pair may be equal.
    """
    random = torch.Generator().manual_seed(seed)
    indices = torch.multinomial(log_base.exp(), 2 * n, replacement=True, generator=random).reshape(2, n)
    chances = (rewards[indices[0]] - rewards[indices[1]]).sigmoid()
    wins = chances.bernoulli(generator=random) if sampled else chances
    return LabelledPairs(*answers[indices], wins)


# ---- policies ----


def language_model(words: int = WORDS, *, spread: float = SPREAD, seed: int = 0) -> PreTrainedModel:
    """Build an untrained Qwen 3 over the words alone, in float64: hidden size 32, two layers, about 27,000 parameters.

    Its weights have standard deviation `spread`. At the default, six words have an entropy of 1.09 to 1.59 nats per
    token over seeds 0 to 19 (median 1.41; uniform is log 6 = 1.79), and depend on each other. At 0.02, the usual
    initialization, words are nearly uniform, as from a guide without training.
    """
    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=words,
        hidden_size=32,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
        initializer_range=spread,
        bos_token_id=PROMPT,
        eos_token_id=None,
        pad_token_id=None,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config).double().eval()


def next_logits(model: Any, answers: Int[Tensor, "M T"]) -> Float[Tensor, "M T V"]:
    """Compute a causal language model's logits before each word of each completion, teacher-forced; differentiable."""
    seen = torch.cat([torch.full_like(answers[:, :1], PROMPT), answers[:, :-1]], dim=1)
    return torch.cat([model(input_ids=chunk, use_cache=False).logits.double() for chunk in seen.split(ROWS)])


def sequence_logprobs(logits: Float[Tensor, "... V"], answers: Int[Tensor, "M T"]) -> Float[Tensor, " M"]:
    """Compute log π(y) = Σ_t log softmax(z_t)[y_t] in nats.

    Logits are [M, T, V] as of `next_logits`, or [T, V] or [V] where they do not depend on the prefix or the position.
    """
    logprobs = logits.log_softmax(-1).expand(*answers.shape, logits.shape[-1])
    return logprobs.gather(2, answers[..., None]).squeeze(2).sum(1)


def guided_distribution(
    base: Float[Tensor, "... V"], guide: Float[Tensor, "... V"], answers: Int[Tensor, "M T"], weight: float
) -> Float[Tensor, " M"]:
    """Compute log π̃ [M] of guided decoding at temperature 1 from logits of base model and guide: normalised per word.

    π̃(y_t | y_<t) = softmax(z_base + w z_guide)[y_t]                       Xu et al. 2024, arXiv:2410.08193

    Several guides are equivalent to one with logits Σ_i α_i z_i. Logits and log-probabilities give the same π̃.
    """
    return sequence_logprobs(base + weight * guide, answers)


def optimum(
    log_base: Float[Tensor, " M"], rewards: Float[Tensor, "M K"], preference: Float[Tensor, " K"], beta: float
) -> Float[Tensor, " M"]:
    """Compute log π* of the policy that maximises E[<α, r>] - β KL(π || π_base), in nats.

    π*(y) ∝ π_base(y) exp(<α, r(y)> / β)                        Korbak et al. 2022, arXiv:2205.11275; β > 0
    """
    if beta <= 0:
        raise UsageError(f"β = {beta} for the optimum; KL-regularised RL has one for β > 0 only")
    return (log_base + rewards @ preference / beta).log_softmax(0)


def ideal_guide(
    word_rewards: Float[Tensor, "K V"], preference: Float[Tensor, " K"], beta_r: float
) -> Float[Tensor, " V"]:
    """Compute the logits of the autoregressive reward model with the least Bradley-Terry loss: equal at every position.

    β_r log π_θ(y) = <α, r(y)> + c,   solved by π_θ(v | anything) = softmax(Σ_i α_i w_i / β_r)[v] as r sums over words

    The tilt of whole completions by π_θ^w, normalised once, is `optimum` at β = β_r / w. `guided_distribution`
    normalises at each word instead and does not account for the base model's later words: the two are equal only for
    a base model whose words are independent.
    """
    return preference @ word_rewards / beta_r


def kl(log_p: Float[Tensor, " M"], log_q: Float[Tensor, " M"]) -> Float[Tensor, ""]:
    """Compute KL(p || q) = Σ_y p(y) log(p(y) / q(y)) in nats, at least 0; completions with p = 0 add nothing."""
    return (log_p.exp() * torch.where(log_p == -torch.inf, 0, log_p - log_q)).sum()
