"""The settings of `rewardlab merge`."""

from dataclasses import dataclass

from ....rm.contract.loading_settings import bos_setting, eos_setting, label_setting
from ....rm.contract.scoring_contract import Edge
from ....rm.registry.settings import setting
from ...publishing.hub_upload import HubSettings


@dataclass
class MergeConfig(HubSettings):
    """Settings of a merge: a model with an adapter or a value head, and the output folder."""

    required = ("model", "output")
    model: str = setting(
        "",
        "Folder or Hub id of a LoRA or of a value-head checkpoint; can be given as a positional argument.",
        group="Model and output",
    )
    output: str = setting("", "Output folder, which Transformers can load.")
    preference: str | None = setting(
        None, "Preference vector of a preference-conditioned autoregressive adapter, such as helpful=0.7,harmless=0.3."
    )
    objective: str | None = label_setting()
    bos: Edge | None = bos_setting()
    eos: Edge | None = eos_setting()
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")
    overwrite: bool = setting(False, "Replace the output folder.")
