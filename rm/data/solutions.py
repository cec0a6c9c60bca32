"""Solutions whose steps are labelled, in the formats of TRL, Math-Shepherd, PRM800K and ProcessBench."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..errors import UsageError
from ..types import Example, Messages, Steps, content_hash, user_turn
from .pairs import OnBadRow, RowReport, check_filled, collect, column, is_number, row_id, row_prompt, text_list

TAG = "ки"
"""Tag that Math-Shepherd writes after every step."""
SIGNS = {"+": 1.0, "-": 0.0}
Labelled = tuple[str, float]
"""A step and its label."""


class Solution(NamedTuple):
    """A prompt and the steps of one completion, with P(step is correct) in [0, 1]; NaN is an unlabelled step."""

    id: str
    prompt: Messages
    steps: tuple[str, ...]
    labels: tuple[float, ...]

    def example(self, separator: str) -> Example:
        """Return the solution as an example, whose completion stores the steps."""
        return Example(self.prompt, Steps(self.steps, separator))


def load_solutions(
    sources: str | Sequence[str], *, neutral: float = 1.0, on_bad_row: OnBadRow = "refuse"
) -> tuple[list[Solution], RowReport]:
    """Load labelled solutions, in order, with a report of dropped rows. Formats are recognised by their columns.

    `prompt`, `steps` (TRL: `completions`) and `labels`, each in [0, 1], a truth value, or none where unlabelled;
    Math-Shepherd's `input` and `label` (arXiv:2312.08935); PRM800K's `question` and `label` (arXiv:2305.20050), whose
    neutral steps get the label `neutral` (NaN: unlabelled); ProcessBench's `problem`, `steps` and `label`.
    """
    if not (math.isnan(neutral) or 0 <= neutral <= 1):
        raise UsageError(f"the label of neutral steps must lie in [0, 1], or be NaN for unlabelled; got {neutral}")
    rows, report = collect(sources, partial(parse_solutions, neutral=neutral), on_bad_row, unique_ids=True)
    return [solution for row in rows for solution in row], report


def parse_solutions(values: Mapping[str, Any], neutral: float = 1.0) -> list[Solution]:
    """Parse a row into solutions (PRM800K: one per rated alternative); raise `ValueError` if the row is malformed."""
    if isinstance(values.get("label"), Mapping):
        return _prm800k(values, neutral)
    if "input" in values:
        return [_math_shepherd(values)]
    if "problem" in values:
        return [parse_first_error(values)[0]]
    name = "completions" if "completions" in values else "steps"
    steps, labels = text_list(values, name), column(values, "labels")
    if not isinstance(labels, list) or len(labels) != len(steps):
        number = len(labels) if isinstance(labels, list) else f"{labels!r:.40}"
        raise ValueError(f"labels do not fit the steps: {len(steps)} {name}, and labels: {number}")
    return [_solution(values, row_prompt(values), [*zip(steps, map(_label, labels), strict=True)])]


def parse_first_error(values: Mapping[str, Any]) -> tuple[Solution, int]:
    """Parse a row of ProcessBench: steps before the first wrong one (-1: none) are correct, later ones unlabelled."""
    steps, first = text_list(values, "steps"), column(values, "label")
    if isinstance(first, bool) or not isinstance(first, int) or not -1 <= first < len(steps):
        raise ValueError(f"'label' is not the index of a step; expected -1 to {len(steps) - 1}, got {first!r:.40}")
    wrong = len(steps) if first == -1 else first
    labels = [1.0 if index < wrong else 0.0 if index == wrong else math.nan for index in range(len(steps))]
    return _solution(values, user_turn(column(values, "problem")), [*zip(steps, labels, strict=True)]), first


def _label(value: Any) -> float:
    """Return the label of a step as a number; NaN for an unlabelled step."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return math.nan
    if not isinstance(value, bool) and not (is_number(value) and 0 <= value <= 1):
        raise ValueError(f"a label must be true, false, none or a number in [0, 1], got {value!r:.40}")
    return float(value)


def _math_shepherd(values: Mapping[str, Any]) -> Solution:
    """Parse steps from `input`, where a tag ends each step, and their signs from the same positions of `label`."""
    text, signed = column(values, "input"), column(values, "label")
    *parts, rest = text.split(TAG)
    if not parts or rest.strip():
        raise ValueError(f"no tag '{TAG}' ends the last step: {text[-40:]!r}")
    labels, position = [], 0
    for number, part in enumerate(parts, start=1):
        sign = signed[position + len(part) : position + len(part) + 1]
        if not signed.startswith(part, position) or sign not in SIGNS:
            raise ValueError(f"'label' must be 'input' with + or - in place of the tags: they differ at step {number}")
        labels.append(SIGNS[sign])
        position += len(part) + 1
    if not (first := re.search(r"Step 1\s*:", parts[0])):
        raise ValueError(f"no 'Step 1:' after the question: {text[:40]!r}")
    prompt, parts[0] = parts[0][: first.start()].strip(), parts[0][first.start() :]
    return _solution(values, user_turn(prompt), [*zip(map(str.strip, parts), labels, strict=True)])


def _prm800k(values: Mapping[str, Any], neutral: float) -> list[Solution]:
    """Return a solution of the chosen steps, and one per alternative step, in which only this last step is labelled."""
    ratings = {1: 1.0, 0: neutral, -1: 0.0, None: math.nan}
    chosen: list[Labelled] = []
    solutions = [chosen]
    for number, step in enumerate(column(values["label"], "steps"), start=1):
        candidates: list[Labelled] = []
        for candidate in step.get("completions") or ():
            if (rating := candidate.get("rating")) not in ratings:
                raise ValueError(f"a rating must be 1, 0, -1 or none: step {number} has {rating!r:.40}")
            candidates.append((column(candidate, "text"), ratings[rating]))
        index, written = step.get("chosen_completion"), step.get("human_completion")
        before = [(text, math.nan) for text, _ in chosen]
        solutions += [[*before, other] for position, other in enumerate(candidates) if position != index]
        if index is None and not written:
            break
        # a step that a labeller wrote replaces wrong ones, and is correct
        chosen.append(candidates[index] if index is not None else (column(written, "text"), 1.0))
    rated = [solution for solution in solutions if any(not math.isnan(label) for _, label in solution)]
    prompt = user_turn(column(column(values, "question"), "problem"))
    if not rated:
        raise ValueError("no step has a rating")
    return [_solution(values, prompt, solution, part) for part, solution in enumerate(rated)]


def _solution(values: Mapping[str, Any], prompt: Messages, labelled: Sequence[Labelled], part: int = 0) -> Solution:
    """Return a validated solution. `part` is its number among the solutions of one row."""
    if not labelled:
        raise ValueError("no steps")
    steps, labels = zip(*labelled, strict=True)
    check_filled(prompt, **{f"step {number}": step for number, step in enumerate(steps, start=1)})
    if all(map(math.isnan, labels)):
        raise ValueError("no step is labelled")
    identity = row_id(values)
    name = content_hash([prompt, steps]) if identity is None else str(identity)
    return Solution(f"{name}/{part}" if part else name, prompt, steps, labels)
