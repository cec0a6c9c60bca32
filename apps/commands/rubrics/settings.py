"""The settings of `rewardlab rubrics`."""

from dataclasses import dataclass
from typing import Any, Literal

from ....rm.registry.settings import AT_LEAST_1, SHARE, SHARE_ABOVE_0, Rule, declarations, setting
from ....rm.types import OVERALL
from ...publishing.hub_upload import DataHubSettings

ACTIONS = ("build", "train", "lint", "apply")


@dataclass
class RubricsConfig(DataHubSettings):
    """Settings of contrastive rubrics: building, training, linting and applying them."""

    rules = (
        Rule(
            lambda config: config.does not in ACTIONS, f"--action must be one of {', '.join(ACTIONS)}, got '{{does}}'"
        ),
        Rule(lambda config: config.does == "lint" and not config.files, "--action lint FILE is missing"),
        Rule(
            lambda config: config.does != "lint" and config.files,
            "rubrics {does} takes no '{files}'; files are given with --data",
        ),
        Rule(lambda config: config.does != "lint" and not config.data, "--data is missing"),
        Rule(lambda config: config.does != "lint" and not (config.output or config.dry_run), "--output is missing"),
        Rule(lambda config: config.does == "train" and not config.base, "--base is missing"),
        Rule(
            lambda config: config.push_to_hub and (config.dry_run or config.does in ("train", "lint")),
            "--push_to_hub uploads the rubrics of build and apply; leave it out with {does} or --dry_run",
        ),
    )
    action: list[str] = setting(
        [],
        "build (rubrics from preferences), train (a rubric generator), apply (rubrics for cases) or lint FILE ...; "
        "can be given as a positional argument.",
        group="Rubrics",
    )
    data: list[str] = setting([], "build: preference files. train: run folders of build. apply: cases as for judge.")
    output: str = setting("", "Run folder.")
    judge: str = setting(
        "",
        "Model that checks rubrics in build, or judges with them in apply: a name at --endpoint, or a folder. By "
        "default build uses the writer in separate calls, and apply writes rubrics without judging.",
    )
    objective: str = setting(OVERALL, "Label of the pairs.")
    most_rules: int = setting(6, "build: maximum number of rules; a rubric with more is dropped.", range=AT_LEAST_1)
    overlap: float = setting(
        0.5,
        "build: a rubric is dropped if a rule has more than this share of its words in one response only.",
        range=SHARE,
    )
    alike: float = setting(
        0.8, "build: of rules with more than this share of equal words, only the first is kept.", range=SHARE_ABOVE_0
    )
    contrast_first: bool = setting(False, "build: train the generator to write both diagnoses before the rubric.")
    base: str = setting("", "train: language model to start from: path or Hub id.")
    learn: Literal["generator", "judge"] = setting(
        "generator", "train: which model to train, the rubric generator or a judge that uses rubrics."
    )
    flip: Literal["tie", "abstain"] = setting(
        "tie", "apply: how to count two verdicts that differ between the two orders of the responses."
    )
    dry_run: bool = setting(False, "build, apply: report the number of calls, tokens and cost, and send no request.")
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "What to do with a row that cannot be used.")
    on_fault: Literal["stop", "abstain"] = setting(
        "stop", "Whether a request without a reply stops the run (which can be resumed) or drops the pair."
    )
    resume: bool = setting(False, "Continue a run that was cut off; stored replies are not requested again.")
    overwrite: bool = setting(False, "Replace the run folder.")

    @property
    def does(self) -> str:
        """Name of the action, the first positional argument."""
        return self.action[0] if self.action else ""

    @property
    def files(self) -> list[str]:
        """Files, the positional arguments after the action."""
        return self.action[1:]

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the result."""
        free = ("resume", "overwrite", "dry_run", "on_fault", "output", *declarations(DataHubSettings))
        return {name: value for name, value in vars(self).items() if name not in free}
