"""Final answers in completions, and the majority answer of a group."""

import re
from collections import Counter
from collections.abc import Callable, Iterable

from ...rm.errors import UsageError

BOXED = r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}"
"""Pattern of an answer in \\boxed{...}, in which braces may be nested once."""


def answer_reader(pattern: str) -> Callable[[str], list[str]]:
    """Return a function from a completion to all its answers: the matches of `pattern`'s only group, stripped.

    >>> answer_reader(BOXED)(r"\\boxed{3}, no: \\boxed{ \\frac{1}{2} }")
    ['3', '\\\\frac{1}{2}']
    """
    try:
        compiled = re.compile(str(pattern), re.DOTALL)
    except re.error as error:
        raise UsageError(f"answer={pattern!r} is not a regular expression ({error}); correct it") from error
    if compiled.groups != 1:
        raise UsageError(f"answer={pattern!r} has {compiled.groups} groups; put parentheses around the answer alone")
    return lambda text: [match.strip() for match in compiled.findall(text) if match.strip()]


def majority_answer(answers: Iterable[str]) -> tuple[str, float]:
    """Return the most frequent answer, the first of several, and its share; ("", 0.0) without an answer.

    >>> majority_answer(["4", "", "5", "5"])
    ('5', 0.6666666666666666)
    """
    counts = Counter(filter(None, answers))
    return max(
        ((answer, number / counts.total()) for answer, number in counts.items()), key=lambda x: x[1], default=("", 0.0)
    )
