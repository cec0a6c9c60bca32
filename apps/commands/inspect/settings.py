"""The settings of `rewardlab inspect`."""

from dataclasses import dataclass

from ...settings.fields import as_list, given, setting


@dataclass
class InspectConfig:
    """Runs in the browser, and the models that explain them and decode there."""

    run: str = setting("A run folder, or a folder of runs; may stand without the flag.", default="")
    model: list[str] = setting("Reward models that explain what runs hold: folders or Hub ids.", default_factory=list)
    base: str | None = setting("Language model of the playground; by default the one of its adapter.", default=None)
    arm: list[str] = setting("Autoregressive reward model of the playground, as for `decode`.", default_factory=list)
    host: str = setting("Address to listen on; another than 127.0.0.1 needs a token.", default="127.0.0.1")
    port: int = setting("Port; 0 takes a free one.", default=7860)
    token: str | None = setting("Password that a visitor has to give (user name: rewardlab).", default=None)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)

    def __post_init__(self):
        self.model, self.arm = as_list(self.model), as_list(self.arm)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("run", self.run)
