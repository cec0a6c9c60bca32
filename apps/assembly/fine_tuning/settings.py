"""The settings of `rewardlab sft` and `rewardlab dpo`, in addition to TRL's in `policy/training/arguments.py`."""

from dataclasses import dataclass
from typing import Literal

from ....rm.registry.settings import setting
from ..policy_training.settings import PolicySettings


@dataclass
class FineTuningSettings(PolicySettings):
    """Settings of the fine-tuning of a policy on files."""

    required = ("model", "data")
    model: str = setting("", "Policy to start from: path or Hub id of a language model.", group="Data and output")
    output: str = setting("", "Run folder; the trained policy is in policy/.")
    eval_data: list[str] = setting([], "Data for evaluation, every eval_steps and at the end.")
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that cannot be used.")
    on_long: Literal["truncate", "skip", "refuse"] = setting(
        "truncate", "What to do with a row longer than max_length; truncate cuts off its end."
    )


@dataclass
class SftSettings(FineTuningSettings):
    """Settings of supervised fine-tuning."""

    data: list[str] = setting(
        [],
        "Files with prompt and completion, or messages; for preference files, the preferred completions. Or "
        "hub-id[@revision][:split].",
        group="Data and output",
    )


@dataclass
class DpoSettings(FineTuningSettings):
    """Settings of direct preference optimisation."""

    data: list[str] = setting([], "Preference files, or hub-id[@revision][:split].", group="Data and output")
    reference: str | None = setting(None, "Reference policy: path or Hub id; by default the start policy.")
