"""Settings of a policy's weights, of its reference policy, and of the algorithm of its training."""

from dataclasses import dataclass
from typing import Literal

from ...rm.registry.settings import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    DTYPES,
    FINITE,
    RANK,
    SHARE,
    SHARE_BELOW_1,
    Settings,
    setting,
)


@dataclass
class ModelSettings(Settings):
    """Settings of a policy's weights."""

    chat_template: str | None = setting(None, "Chat template of the policy: Jinja file, or 'plain'.", group="Model")
    dtype: str = setting("float32", "Precision of the weights.", choices=DTYPES)
    lora: bool = setting(False, "Train low-rank adapters instead of all weights.")
    lora_r: int = setting(16, "Rank of the adapters.", range=RANK, requires="lora")
    lora_alpha: int = setting(32, "Scale of the adapters is alpha / r.", range=ABOVE_0, requires="lora")
    lora_dropout: float = setting(
        0.0, "Dropout before the adapters; needs --disable_dropout False.", range=SHARE_BELOW_1, requires="lora"
    )
    lora_target_modules: list[str] = setting(["all-linear"], "Layers that get adapters.", requires="lora")


@dataclass
class ReferenceSettings(ModelSettings):
    """Settings of a policy's weights and of its reference policy."""

    reference: str | None = setting(
        None, "Reference policy: path or Hub id; by default the start policy.", group="Reference policy and KL"
    )
    soup: str | None = setting(None, "Model whose weights are averaged with those of the reference policy.")
    soup_share: float = setting(
        0.5, "Weight of the soup model in the average, in [0, 1].", range=SHARE, requires="soup"
    )


@dataclass
class AlgorithmSettings(Settings):
    """Settings of an algorithm: names of its formulas, such as `ppo(epsilon=0.1)`, and numeric coefficients."""

    weight: list[str] = setting([], "Weights of rewards as NAME=number; 1 for the others.", group="Rewards")
    on_missing: Literal["group", "strict", "sum"] = setting(
        "group",
        "Total of a completion that lacks some rewards: sum of the rewards that its whole group has (group), "
        "missing (strict), or sum of its rewards (sum).",
    )
    advantage: str = setting("grpo", "Advantage estimator.", group="Algorithm", registry="policy.advantages")
    loss: str = setting("ppo", "Policy loss, such as ppo(epsilon=0.1).", registry="policy.losses")
    aggregation: str = setting("token_mean", "Mean of token losses.", registry="policy.aggregations")
    reward_transform: list[str] = setting(
        [], "Transforms of rewards in order, such as gate(reward=rm, by=form, threshold=0.5)."
    )
    advantage_transform: list[str] = setting([], "Transforms of advantages in order, such as entropy_mask.")
    scheduler: str | None = setting(
        None, "Schedule that weights the completions in training.", registry="policy.schedulers"
    )
    kl: float = setting(
        0.0,
        "Coefficient of the KL divergence to the reference policy.",
        group="Reference policy and KL",
        range=AT_LEAST_0,
    )
    kl_place: str = setting("loss", "Where the KL penalty is applied.", choices=("loss", "token", "completion"))
    kl_kind: str | None = setting(
        None, "Estimator of the KL; k3 in the loss and k1 elsewhere by default.", choices=("k1", "k2", "k3", "forward")
    )
    kl_corrected: bool = setting(True, "Multiply the KL term by the importance ratio of each token, as TRL does.")
    entropy: float = setting(0.0, "Coefficient of the policy's entropy.", range=FINITE)
    agents: int = setting(1, "Number of agents.", group="Several agents", range=AT_LEAST_1)
