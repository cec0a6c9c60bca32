"""Process reward model: a token classifier that scores every step of a completion where the step ends."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ...contract.scoring_contract import ScoringContract
from ...registry import Kind
from ...registry.settings import Rule, setting
from .._settings import ClassifierSettings, RowSettings


def process() -> Kind:
    """p_t = σ(w · h_t + b) = P(step t is correct); the scoring contract states how the p_t are aggregated."""
    return Kind(
        __name__,
        "model:load_process",
        "training:ProcessTraining",
        ProcessSettings,
        contract=ProcessContract,
        by_gradient=True,
        padding_free=True,
    )


UNLABELLED = "unlabelled"
AGGREGATES = ("min", "product", "last", "mean")


def neutral_label(text: str) -> float | None:
    """Parse the label of neutral steps: a number in [0, 1], or NaN for the text `UNLABELLED`. None for other texts."""
    if text == UNLABELLED:
        return math.nan
    try:
        label = float(text)
    except ValueError:
        return None
    return label if 0 <= label <= 1 else None


@dataclass
class ProcessSettings(RowSettings, ClassifierSettings):
    """Settings of process reward models: separation, reading and labels of steps, and aggregation of their scores."""

    rules = (
        Rule(
            lambda settings: settings.step_separator == "",
            "--step_separator is empty; remove it to separate steps by blank lines",
        ),
        Rule(
            lambda settings: neutral_label(settings.neutral) is None,
            f"--neutral must be a number in [0, 1], or {UNLABELLED}; got '{{neutral}}'",
        ),
    )
    step_separator: str | None = setting(
        None,
        r"Text between the steps of a completion, such as \n; by default a blank line, \n\n.",
        group="Process reward models (--kind process)",
    )
    step_token: str | None = setting(
        None, "Token that is read in place of every separator, such as <extra_0>; by default none.", advanced=True
    )
    aggregate: str | None = setting(
        None, "How step scores are aggregated to the reward of a completion; by default min.", choices=AGGREGATES
    )
    neutral: str = setting("1", "Label of PRM800K's neutral steps: a number in [0, 1], or unlabelled.", advanced=True)

    def __post_init__(self) -> None:
        """Replace escapes such as backslash-n in the separator."""
        super().__post_init__()
        if self.step_separator is not None:
            self.step_separator = self.step_separator.replace("\\n", "\n").replace("\\t", "\t")


Aggregate = Literal["min", "product", "last", "mean"]


@dataclass(frozen=True, kw_only=True)
class ProcessContract(ScoringContract):
    """Scoring contract fields: separator of steps, step token, and aggregation of the step scores."""

    step_separator: Annotated[str, Field(min_length=1)]
    """Text between the steps of a completion."""
    step_token: str | None = None
    """Token that is read in place of every separator."""
    aggregate: Aggregate
    """Aggregation of the step scores to one reward: min, product, last or mean."""
