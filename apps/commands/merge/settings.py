"""The settings of `rewardlab merge` and `rewardlab card`."""

from dataclasses import dataclass

from ...settings.fields import given, setting


@dataclass
class MergeConfig:
    """A model with an adapter or a value head, and where its plain folder goes."""

    model: str = setting(
        "Folder or Hub id of a LoRA or of a value-head checkpoint; may stand without the flag.", default=""
    )
    output: str = setting("Folder that plain Transformers loads.", default="")
    preference: str | None = setting(
        "Of an autoregressive adapter that follows one, such as helpful=0.7,harmless=0.3.", default=None
    )
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)
    overwrite: bool = setting("Replace the output folder.", default=False)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        for name in ("model", "output"):
            given(name, getattr(self, name))
