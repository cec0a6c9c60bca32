"""Verdict reward for training a generative judge: whether the judge prefers the right response."""

from ...judges.kinds.generative.rewards import VerdictRewards, labelled_prompts
from ...policy.training.prompts import PromptRow
from ...rm.errors import DataError
from ...rm.types import prompt_text
from ._open import SHOWN, RunFacts


def verdict(*, run: RunFacts, no_verdict: float = 0.0) -> VerdictRewards:
    """r = 1 for the right verdict of a comparison, 0 for a wrong one, `no_verdict` without a verdict (NaN: missing)

    RM-R1: arXiv:2505.02387; J1: arXiv:2505.10320. The prompts are those of `rewardlab judge train`: each row has the
    comparison in both orders of the responses, as one group, with the right labels and the responses. A truncated
    completion has no verdict.
    """
    return VerdictRewards([*map(_parse_labels, run.table)], no_verdict=no_verdict)


def _parse_labels(row: PromptRow):
    try:
        return labelled_prompts(row.prompts, row.columns)
    except ValueError as error:
        raise DataError(f"the row of the prompt {prompt_text(row.prompt)[:SHOWN]!r}: {error}") from error
