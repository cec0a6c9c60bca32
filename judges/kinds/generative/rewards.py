"""Verdict reward: correctness of the verdict in a written comparison, for RL training of a judge."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....rm.types import Example, Messages, prompt_text
from ...parsing.grammars import LABELS
from ...parsing.statements import NoVerdict
from ...parsing.verdicts import Verdict
from ...rubrics.rubric import Rubric
from ...types import Case
from .._comparison import ComparisonPrompt, comparison_prompt, orders_of
from .traces import right_label

PROMPTS, LABEL_COLUMN, SHOWN_COLUMN = "prompt_variants", "labels", "responses"
"""Columns beside `prompt`: the request in the other order, the right label of each request, and both responses."""


def verdict_reward(verdict: Verdict | NoVerdict, label: str, no_verdict: float = 0.0) -> float:
    """Return the reward of a verdict: 1 for the right label, 0 for the other label or a tie.

    Without a verdict the reward is `no_verdict`, where NaN means a missing reward.

    RM-R1 (Chen et al. 2025, arXiv:2505.02387) uses 1 and -1, and J1 (Whitehouse et al. 2025, arXiv:2505.10320) 1 and 0.
    Both papers give a reply without a verdict the lower value. With missing rewards a policy learns to give no verdict
    when it is unsure (`research/studies/generative`).

    >>> verdict_reward(Verdict("A"), "A"), verdict_reward(Verdict("tie"), "A")
    (1.0, 0.0)
    """
    if isinstance(verdict, NoVerdict):
        return no_verdict
    return float(verdict.choice == label)


def verdict_row(case: Case, prompt: ComparisonPrompt, rubric: Rubric | None = None) -> dict[str, Any]:
    """Return the row of a pair for policy training: the request in both orders, their right labels, the responses."""
    plan = orders_of(case)
    first, *others = ([dict(turn) for turn in prompt.ask(case, order, rubric=rubric).messages] for order in plan)
    labels = [right_label(case, order) for order in plan]
    return {"prompt": first, PROMPTS: others, LABEL_COLUMN: labels, SHOWN_COLUMN: [*case.texts]}


class LabelledPrompts(NamedTuple):
    """The right label of each request of a row, and the two responses."""

    labels: Mapping[str, str]
    """Text of the request -> label."""
    responses: tuple[str, ...]


def labelled_prompts(prompts: Sequence[Messages], columns: Mapping[str, Any]) -> LabelledPrompts:
    """Parse the columns of a row whose requests are `prompts`. Only columns from `verdict_row` are valid."""
    labels, responses = columns.get(LABEL_COLUMN), columns.get(SHOWN_COLUMN)
    if not isinstance(labels, list) or len(labels) != len(prompts) or not {*labels} <= {*LABELS}:
        raise ValueError(f"'{LABEL_COLUMN}' must have A or B for each of its {len(prompts)} requests, got {labels!r}")
    if not isinstance(responses, list) or not all(isinstance(text, str) for text in responses):
        raise ValueError(f"'{SHOWN_COLUMN}' must be a list of the responses shown, got {str(responses)[:60]}")
    return LabelledPrompts(dict(zip(map(prompt_text, prompts), labels, strict=True)), tuple(responses))


class VerdictRewards:
    """A reward source for requests of comparisons: 1 for the right verdict, 0 for a wrong one.

    A truncated completion has no verdict. `facts` are metrics of the last batch: shares of right verdicts and of
    completions without a verdict, and the share of verdicts for the response shown first. That share is 0.5 without
    position bias if both orders are equally frequent.
    """

    reads_finished = True

    def __init__(self, rows: Sequence[LabelledPrompts], *, no_verdict: float = 0.0):
        self.rows, self.no_verdict = rows, no_verdict
        self.prompt = comparison_prompt(ties=False)
        self._last: list[tuple[Verdict | NoVerdict, str]] = []

    def __call__(self, examples: Sequence[Example], rows: Sequence[int], finished: Sequence[bool]) -> list[float]:
        """Return one reward per completion. `rows` are the indices of the prompts' data rows."""
        self._last = [
            self._read(example, self.rows[row], ended)
            for example, row, ended in zip(examples, rows, finished, strict=True)
        ]
        return [verdict_reward(verdict, label, self.no_verdict) for verdict, label in self._last]

    def _read(self, example: Example, row: LabelledPrompts, finished: bool) -> tuple[Verdict | NoVerdict, str]:
        verdict = self.prompt.read(example.text, row.responses, "stop" if finished else "length")
        return verdict, row.labels[prompt_text(example.prompt)]

    def facts(self) -> dict[str, float]:
        """Return the metrics of the last batch. They are NaN if the batch has no verdict."""
        read = [(verdict.choice, label) for verdict, label in self._last if isinstance(verdict, Verdict)]
        shares = {"right": [choice == label for choice, label in read], "first": [v == LABELS[0] for v, _ in read]}
        means = {name: sum(values) / len(read) if read else math.nan for name, values in shares.items()}
        return {**means, "no_verdict": 1 - len(read) / len(self._last) if self._last else math.nan}
