"""The settings of process reward models (--kind process)."""

import math
from dataclasses import dataclass

from ....rm.errors import UsageError
from ...settings.fields import changed_settings, setting

UNLABELLED = "unlabelled"
AGGREGATES = ("min", "product", "last", "mean")


@dataclass
class ProcessConfig:
    """How steps are separated, read and labelled, and how their scores make one reward."""

    step_separator: str | None = setting(
        r"Text between the steps of a completion, such as \n; by default a blank line, \n\n.",
        group="Process reward models (--kind process)",
        default=None,
    )
    step_token: str | None = setting(
        "Token of the vocabulary that is read in place of every separator, such as <extra_0>; by default none.",
        advanced=True,
        default=None,
    )
    aggregate: str | None = setting(
        "How the scores of the steps make the reward of a completion; by default min.", choices=AGGREGATES, default=None
    )
    neutral: str = setting(
        "Label of PRM800K's neutral steps: a number in [0, 1], or unlabelled.", advanced=True, default="1"
    )

    def __post_init__(self):
        if self.step_separator is not None:
            self.step_separator = self.step_separator.replace("\\n", "\n").replace("\\t", "\t")

    def validate(self, kind: str) -> None:
        """Raise a `UsageError` for settings of another kind of reward model, and for invalid values."""
        if kind != "process" and (changed := [*changed_settings(self)]):
            raise UsageError(f"--{changed[0]} belongs to --kind process, got {kind}")
        if self.step_separator is not None and not self.step_separator:
            raise UsageError("--step_separator is a text, got none; leave it out for a blank line")
        if self.aggregate not in (*AGGREGATES, None):
            raise UsageError(f"--aggregate is one of {', '.join(AGGREGATES)}, got '{self.aggregate}'")
        _ = self.neutral_label

    @property
    def neutral_label(self) -> float:
        """Label of neutral steps; NaN leaves them unlabelled."""
        try:
            label = math.nan if self.neutral == UNLABELLED else float(self.neutral)
            if self.neutral == UNLABELLED or 0 <= label <= 1:
                return label
        except ValueError:
            pass
        raise UsageError(f"--neutral is a number in [0, 1], or {UNLABELLED}; got '{self.neutral}'")
