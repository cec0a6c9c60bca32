"""Features of a case for routing: metadata of prompt and responses, and a reward model's margin."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....rm.data.text_style import markdown_marks
from ....rm.errors import UsageError
from ....rm.kinds.ensemble.combination import UncertainRewardModel
from ....rm.types import Example, RewardModel, prompt_text
from ...types import Case

CODE, MATHS, OTHER = "code", "maths", "other"
CODE_SIGNS = re.compile(
    r"```|^\s*(?:def|class|import|#include)\s"
    r"|\b(?:python|javascript|java|c\+\+|sql|source code|standard (?:in|out)put|write a program|programming)(?!\w)",
    re.IGNORECASE | re.MULTILINE,
)
MATHS_SIGNS = re.compile(
    r"\$(?!\s)[^$\n]+(?<!\s)\$(?!\d)|\\(?:frac|sqrt|boxed|int|sum|cdot|begin)\b"
    r"|\b(?:equations?|integrals?|derivatives?|polynomials?|theorem|probability|triangle|prove that|solve for)\b",
    re.IGNORECASE,
)
NAN = float("nan")


class CaseFeatures(NamedTuple):
    """Features of a case that need no judge. Lengths are in characters, differences in doublings (log2)."""

    case: Case
    kind: str
    """Kind of the prompt: `code`, `maths` or `other`; see `prompt_kind`."""
    prompt_length: int
    response_length: float
    """Mean length of the responses."""
    length_difference: float
    """log2 of the ratio of the longest to the shortest response, >= 0. An empty response counts as one character."""
    markdown: float
    """Mean number of Markdown marks of a response."""
    markdown_difference: float
    """log2 of the ratio of the largest to the smallest (1 + number of Markdown marks), >= 0."""
    margin: float = NAN
    """Best minus second best reward.

    NaN without a reward model, with a single response, or if a reward is not finite.
    """
    spread: float = NAN
    """Standard deviation of the margin over the members of a reward model ensemble. NaN if there are no members."""

    @property
    def prompt(self) -> str:
        """The prompt as text."""
        return prompt_text(self.case.prompt)

    @property
    def rewards(self) -> dict[str, float]:
        """Margin and spread by name, as far as they are known."""
        rewards = {"margin": self.margin, "spread": self.spread}
        return {name: value for name, value in rewards.items() if np.isfinite(value)}


def prompt_kind(text: str) -> str:
    """Return the kind of a prompt: `code`, `maths` or `other`. Code is tested first.

    Code: a fenced block, a line that begins with def, class, import or #include, a language's name, "standard input".
    Maths: a LaTeX formula, or a word such as equation, polynomial, triangle, probability.

    >>> prompt_kind("Write it in Python."), prompt_kind("What is $x^2$ for x = 3?"), prompt_kind("Who was Plato?")
    ('code', 'maths', 'other')
    """
    return CODE if CODE_SIGNS.search(text) else MATHS if MATHS_SIGNS.search(text) else OTHER


def case_features(cases: Sequence[Case], reward_model: RewardModel | None = None) -> list[CaseFeatures]:
    """Compute the features of cases. `reward_model` (mean of its objectives) adds margin and spread."""
    rewards = _reward_features(cases, reward_model) if reward_model else [(NAN, NAN)] * len(cases)
    return [
        _metadata(case)._replace(margin=margin, spread=spread)
        for case, (margin, spread) in zip(cases, rewards, strict=True)
    ]


def _metadata(case: Case) -> CaseFeatures:
    prompt, lengths = prompt_text(case.prompt), [*map(len, case.texts)]
    marks = [*map(markdown_marks, case.texts)]
    return CaseFeatures(
        case,
        prompt_kind(prompt),
        len(prompt),
        float(np.mean(lengths)),
        float(np.log2(max(1, *lengths) / max(1, min(lengths)))),
        float(np.mean(marks)),
        float(np.log2((1 + max(marks)) / (1 + min(marks)))),
    )


def _reward_features(cases: Sequence[Case], model: RewardModel) -> Iterator[tuple[float, float]]:
    """Yield margin and spread of every case."""
    examples = [Example(case.prompt, answer) for case in cases for answer in case.answers]
    rewards = np.asarray(model.rate(examples)).mean(axis=1)
    uncertain = isinstance(model, UncertainRewardModel)
    by_member = model.spread(examples).mean(axis=2) if uncertain else np.full((1, len(rewards)), NAN)
    start = 0
    for case in cases:
        rows = slice(start, start := start + len(case.answers))
        yield _margin_and_spread(rewards[rows], by_member[:, rows])


def _margin_and_spread(rewards: np.ndarray, by_member: np.ndarray) -> tuple[float, float]:
    if len(rewards) < 2 or not np.isfinite(rewards).all():
        return NAN, NAN
    best, second = np.argsort(-rewards, kind="stable")[:2]
    return float(rewards[best] - rewards[second]), float((by_member[:, best] - by_member[:, second]).std())


NUMBERS: Mapping[str, Any] = {
    "code": lambda features: float(features.kind == CODE),
    "maths": lambda features: float(features.kind == MATHS),
    "prompt length": lambda features: np.log2(1 + features.prompt_length),
    "response length": lambda features: np.log2(1 + features.response_length),
    "length difference": lambda features: features.length_difference,
    "Markdown": lambda features: np.log2(1 + features.markdown),
    "Markdown difference": lambda features: features.markdown_difference,
    "margin": lambda features: features.margin,
    "spread": lambda features: features.spread,
}
REWARDS = ("margin", "spread")
METADATA = tuple(name for name in NUMBERS if name not in REWARDS)


def feature_numbers(features: Sequence[CaseFeatures], names: Sequence[str] = METADATA) -> np.ndarray:
    """Return the named features [N, F] in float64. Lengths are transformed to log2(1 + characters)."""
    if unknown := [name for name in names if name not in NUMBERS]:
        raise UsageError(f"unknown feature '{unknown[0]}'; the features are {', '.join(NUMBERS)}")
    return np.array([[NUMBERS[name](each) for name in names] for each in features], np.float64).reshape(
        len(features), len(names)
    )


def describe_features(features: CaseFeatures) -> str:
    """Return the metadata as text for a language model. Margin and spread are included if they are known."""
    lines = [
        f"kind of prompt: {features.kind}",
        f"length of the prompt: {features.prompt_length} characters",
        f"responses: {len(features.case.answers)}, {features.response_length:.0f} characters on average",
        f"longest response / shortest: {2**features.length_difference:.2f}",
        f"Markdown marks of a response: {features.markdown:.1f} on average",
        f"most marks / fewest, each plus 1: {2**features.markdown_difference:.2f}",
    ]
    return "\n".join([*lines, *(f"{name} of a reward model: {value:.3g}" for name, value in features.rewards.items())])
