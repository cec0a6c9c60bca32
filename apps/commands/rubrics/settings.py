"""The settings of `rewardlab rubrics`."""

from dataclasses import dataclass
from typing import Any, Literal

from ....rm.errors import UsageError
from ....rm.types import OVERALL
from ...settings.fields import as_list, given, one_of, setting

ACTIONS = ("build", "train", "lint", "apply")


@dataclass
class RubricsConfig:
    """Rubrics from contrast: made, learnt from, checked, used."""

    action: list[str] = setting(
        "build (rubrics from preferences), train (their generator), apply (write rubrics for cases) or lint FILE ...; "
        "may stand without the flag.",
        default_factory=list,
    )
    data: list[str] = setting(
        "build: preference files. train: folders of build. apply: cases, as for judge.", default_factory=list
    )
    output: str = setting("Run folder.", default="")
    judge: str = setting(
        "Who checks rubrics in build, or judges under them in apply: a model's name at --endpoint, or a folder. By "
        "default build asks the writer in calls of their own, and apply writes rubrics without judging.",
        default="",
    )
    objective: str = setting("Label of the pairs.", default=OVERALL)
    most_rules: int = setting("build: a rubric with more rules is dropped.", default=6)
    overlap: float = setting(
        "build: a rule with more of its words in one answer alone is dropped with its rubric.", default=0.5
    )
    alike: float = setting("build: of rules with more words in common than this share, the first stays.", default=0.8)
    contrast_first: bool = setting("build: the generator shall write both diagnoses before the rubric.", default=False)
    base: str = setting("train: language model to start from, path or Hub id.", default="")
    learn: Literal["generator", "judge"] = setting(
        "train: writing rubrics, or judging under them.", default="generator"
    )
    flip: Literal["tie", "abstain"] = setting("apply: what two verdicts are that follow the order.", default="tie")
    dry_run: bool = setting("build, apply: tell calls, tokens and cost, and send no request.", default=False)
    on_bad_row: Literal["refuse", "skip"] = setting("What to do with a row that cannot be used.", default="refuse")
    on_fault: Literal["stop", "abstain"] = setting(
        "Requests without a reply end the run, to be resumed, or their pairs are dropped.", default="stop"
    )
    resume: bool = setting("Continue a run that was cut off; what was answered is not asked again.", default=False)
    overwrite: bool = setting("Replace the run folder.", default=False)

    def __post_init__(self):
        self.action, self.data = as_list(self.action), as_list(self.data)

    @property
    def does(self) -> str:
        """What is to be done."""
        return self.action[0] if self.action else ""

    @property
    def files(self) -> list[str]:
        """What follows it."""
        return self.action[1:]

    def validate(self) -> None:
        """Refuse what cannot be run."""
        one_of("action", self.does, ACTIONS)
        if self.does == "lint":
            return given("action lint FILE", self.files)
        if self.files:
            raise UsageError(f"rubrics {self.does} takes no '{self.files[0]}'; files are given with --data")
        given("data", self.data)
        if not self.dry_run:
            given("output", self.output)
        if self.does == "train":
            given("base", self.base)
        one_of("learn", self.learn, ("generator", "judge"))
        one_of("flip", self.flip, ("tie", "abstain"))
        one_of("on_bad_row", self.on_bad_row, ("refuse", "skip"))
        one_of("on_fault", self.on_fault, ("stop", "abstain"))

    def identity(self) -> dict[str, Any]:
        """The settings that decide the result."""
        free = ("resume", "overwrite", "dry_run", "on_fault", "output")
        return {name: value for name, value in vars(self).items() if name not in free}
