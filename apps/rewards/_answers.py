"""Final answers in completions, and the majority answer of a group."""

import re
from collections import Counter
from collections.abc import Callable, Iterable

from ...rm.errors import UsageError

BOXED = r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}"
"""Pattern of an answer in \\boxed{...}, in which braces may be nested once."""


def answer_reader(pattern: str) -> Callable[[str], list[str]]:
    """Return a function that extracts all answers from a completion: the stripped matches of the group in `pattern`.

    >>> answer_reader(BOXED)(r"\\boxed{3}, no: \\boxed{ \\frac{1}{2} }")
    ['3', '\\\\frac{1}{2}']
    """
    try:
        compiled = re.compile(str(pattern), re.DOTALL)
    except re.error as error:
        raise UsageError(f"answer={pattern!r} is not a regular expression ({error}); correct it") from error
    if compiled.groups != 1:
        raise UsageError(f"answer={pattern!r} has {compiled.groups} groups; put parentheses around the answer alone")
    return lambda text: [answer.strip() for answer in compiled.findall(text) if answer.strip()]


def last_answer(pattern: str) -> Callable[[str], str]:
    """Return a function that extracts the last answer from a completion. Empty if there is no answer."""
    read = answer_reader(pattern)
    return lambda text: (read(text) or [""])[-1]


def majority_answer(answers: Iterable[str]) -> tuple[str, float]:
    """Return the most frequent answer (the first one in a tie) and its share; ("", 0.0) without an answer.

    >>> majority_answer(["4", "", "5", "5"])
    ('5', 0.6666666666666666)
    """
    counts = Counter(filter(None, answers))
    return max(
        ((answer, number / counts.total()) for answer, number in counts.items()), key=lambda x: x[1], default=("", 0.0)
    )
