"""Comparison of responses with references without a model: ordered keywords, and checks of form."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

KeyPoint = Sequence[Sequence[str]]
"""A required point of content: lists of keywords, one list per wording."""


def find_keywords(text: str, keywords: Sequence[str]) -> list[str]:
    """Return the keywords that occur in a text as whole words, ignoring case, in the text's order with repetitions.

    >>> find_keywords("The sun heats the sea, then Sun and wind...", ["sea", "sun"])
    ['sun', 'sea', 'sun']
    """
    longest_first = sorted(keywords, key=len, reverse=True)
    pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)"
    return [keyword.lower() for keyword in re.findall(pattern, text, re.IGNORECASE)] if keywords else []


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    >>> longest_common("abcd", "xbyd")
    2
    """
    row = [0] * (len(second) + 1)
    for item in first:
        before, row = row, [0]
        for index, other in enumerate(second):
            row.append(before[index] + 1 if item == other else max(before[index + 1], row[index]))
    return row[-1]


def content_score(answer: str, references: Sequence[str], points: Sequence[KeyPoint]) -> float:
    """Compute how well a response y matches the keywords of references y*, in [0, 1] (RLVRR: arXiv:2601.18533).

        mean_k max_{v, y*} LCS(m_v(y), m_v(y*)) / max(|m_v(y)|, |m_v(y*)|)

    m_v(y) are the keywords in y for wording v of key point k, in order, and LCS is the length of the longest common
    subsequence. So the order counts, and more repetitions than in the reference lower the value. If y and y* both have
    no keyword, the value is 0.
    """
    if not points or not references:
        raise ValueError(f"content needs a reference and a key point, got {len(references)} and {len(points)}")
    return sum(
        max(_shared(answer, reference, v) for v in wordings for reference in references) for wordings in points
    ) / len(points)


def _shared(answer: str, reference: str, keywords: Sequence[str]) -> float:
    """Return LCS(m(y), m(y*)) / max(|m(y)|, |m(y*)|) of the keywords; see `content_score`."""
    in_answer, in_reference = find_keywords(answer, keywords), find_keywords(reference, keywords)
    return longest_common(in_answer, in_reference) / max(len(in_reference), len(in_answer), 1)


class FormCheck(NamedTuple):
    """Check of a response's form. It passes if all its conditions hold."""

    weight: float
    has: str = ""
    """Regular expression that must match in the response."""
    lacks: str = ""
    """Regular expression that must not match in the response."""
    least: int = 0
    """Minimum number of words."""
    most: int | None = None

    def passes(self, answer: str) -> bool:
        """Return whether the response meets all conditions."""
        words = len(answer.split())
        has_pattern = not self.has or bool(re.search(self.has, answer))
        clean = not self.lacks or not re.search(self.lacks, answer)
        return has_pattern and clean and self.least <= words and (self.most is None or words <= self.most)


def style_score(answer: str, checks: Sequence[FormCheck]) -> float:
    """Return Σ_j w_j 1[check j passes], with the weight w_j of check j (RLVRR: arXiv:2601.18533).

    The authors run Python code that a language model wrote for each reference. Ours are regular expressions and limits
    of length.

    >>> style_score("1. Dig. 2. Water.", [FormCheck(0.3, has=r"^1\\."), FormCheck(0.2, most=3)])
    0.3
    """
    return sum((check.weight for check in checks if check.passes(answer)), 0.0)


def key_points(values: Any) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Parse key points from JSON: a list of points, each a list of wordings, each a list of keywords.

    >>> key_points([[["sun", "sea"], ["sunlight", "ocean"]]])
    ((('sun', 'sea'), ('sunlight', 'ocean')),)
    """

    def lists(value: Any) -> bool:
        return isinstance(value, list) and bool(value)

    good = lists(values) and all(lists(point) and all(map(lists, point)) for point in values)
    if not good or not all(isinstance(word, str) and word.strip() for point in values for v in point for word in v):
        raise ValueError(
            f"keywords must be a list of points, each a list of wordings, each a list of words; got {str(values)[:60]}"
        )
    return tuple(tuple(map(tuple, point)) for point in values)


def checks_of(values: Any) -> tuple[FormCheck, ...]:
    """Parse checks from JSON objects with the fields of `FormCheck`. Raise an error for a check without a condition."""
    if not isinstance(values, list):
        raise ValueError(f"checks must be a list of objects, got {str(values)[:60]}")
    return tuple(_check(value, f"check {number}") for number, value in enumerate(values, 1))


def _check(values: Any, location: str) -> FormCheck:
    if not isinstance(values, Mapping) or values.keys() - {*FormCheck._fields} or "weight" not in values:
        raise ValueError(
            f"{location} must have a weight and some of {', '.join(FormCheck._fields[1:])}, got {str(values)[:60]}"
        )
    for name, kind in (("weight", (int, float)), ("has", str), ("lacks", str), ("least", int), ("most", int)):
        if name in values and not isinstance(values[name], kind):
            raise ValueError(f"{location}: '{name}' has the wrong type, got {values[name]!r}")
    check = FormCheck(**values)
    for pattern in (check.has, check.lacks):
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{location}: not a regular expression: {pattern!r} ({error})") from error
    if check[1:] == FormCheck(0.0)[1:]:
        raise ValueError(f"{location} has no condition; add 'has', 'lacks', 'least' or 'most'")
    return check
