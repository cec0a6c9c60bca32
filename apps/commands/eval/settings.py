"""The settings of `rewardlab eval`."""

from dataclasses import dataclass
from typing import Literal

from ....rm.errors import UsageError
from ...settings.fields import as_list, given, one_of, setting


@dataclass
class EvalConfig:
    """Which models on which suite."""

    benchmark: str = setting("A suite of benchmarks/suites.", default="pairs")
    model: list[str] = setting(
        "Model folders, Hub ids, package.module:factory, or served(urls=[http://a:8000, http://b:8000]).",
        default_factory=list,
    )
    read_as: str | None = setting("Read the models as this kind, such as autoregressive or implicit.", default=None)
    preference: str | None = setting(
        "Read autoregressive models at a preference, such as helpful=0.7,harmless=0.3.", default=None
    )
    reference_policy: str | None = setting("What an implicit reward is relative to: path or Hub id.", default=None)
    scores: list[str] = setting("Files of stored scores, by case id, to add up as models.", default_factory=list)
    reference: list[str] = setting("Scorers to show beside the models, such as a gold reward.", default_factory=list)
    data: list[str] = setting("The suite's data: files, or hub-id[@revision][:split].", default_factory=list)
    output: str = setting("Run folder.", default="")
    objective: str | None = setting(
        "Label of the pairs, and the objective of models with several; by default their mean.", default=None
    )
    on_bad_row: Literal["refuse", "skip"] = setting("What to do with a row that cannot be used.", default="refuse")
    samples: int = setting("Bootstrap samples.", default=1000)
    seed: int = setting("Of the bootstrap, the random baseline and the folds.", default=0)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)
    processes: int = setting("How many torchrun started; they share the cases.", default=1)
    resume: bool = setting("Continue a run that was cut off.", default=False)
    overwrite: bool = setting("Replace the run folder.", default=False)

    def __post_init__(self):
        self.model, self.scores = as_list(self.model), as_list(self.scores)
        self.reference, self.data = as_list(self.reference), as_list(self.data)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("model", self.model or self.scores)
        if self.reference_policy and self.read_as != "implicit":
            raise UsageError("--reference_policy belongs to --read_as implicit")
        given("output", self.output)
        one_of("on_bad_row", self.on_bad_row, ("refuse", "skip"))
