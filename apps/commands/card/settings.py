"""The settings of `rewardlab card`."""

from dataclasses import dataclass
from pathlib import Path

from ....rm.registry.settings import Rule, setting
from ...publishing.hub_upload import HubSettings


@dataclass
class CardConfig(HubSettings):
    """Settings of a model card: a model folder and its evaluation runs."""

    required = ("model",)
    rules = (
        Rule(
            lambda config: config.push_to_hub and config.output and Path(config.output).name != "README.md",
            "--push_to_hub needs an --output named README.md, got {output}; rename it, or leave --push_to_hub out",
        ),
    )
    model: str = setting("", "Model folder; can be given as a positional argument.", group="Model and card")
    runs: list[str] = setting(
        [],
        "Runs of `eval` with this model; the card shows their results. Results on data of the Hub are also written to "
        "the folder .eval_results beside the card; the Hub shows them on the model's page.",
    )
    output: str | None = setting(None, "Output file; by default README.md in the model folder.")
    trust_remote_code: bool = setting(False, "Run code that comes with a model.")
    overwrite: bool = setting(False, "Replace the file.")
