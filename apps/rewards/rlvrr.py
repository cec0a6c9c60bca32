"""RLVRR: a rule-based reward from references: keywords in the order of the reference, and checks of form."""

from collections.abc import Sequence
from typing import NamedTuple

from ...judges.rubrics.reference_checks import FormCheck, KeyPoint, checks_of, content_score, key_points, style_score
from ...policy.training.prompts import Row
from ...policy.types import RewardFunction
from ...rm.data.pairs import column
from ...rm.errors import UsageError
from ._open import RunFacts, per_completion


class _Required(NamedTuple):
    references: tuple[str, ...]
    points: Sequence[KeyPoint]
    checks: tuple[FormCheck, ...]


def rlvrr(
    *,
    run: RunFacts,
    reference: str = "reference",
    keywords: str = "keywords",
    checks: str = "checks",
    content_weight: float = 1.0,
    style_weight: float = 1.0,
) -> RewardFunction:
    """r = a content(y, y*) + b style(y)                                                     RLVRR: arXiv:2601.18533

    y is the completion and y* the reference; a = `content_weight` and b = `style_weight` are 1 in the paper. `content`
    and `style` are defined in `judges/rubrics/reference_checks.py`. They read the columns `reference` (a text or a list
    of texts), `keywords` (a list of points; each point is a list of wordings, each wording a list of words) and
    `checks` (each has a weight and one of has, lacks, least, most) of the prompts' rows; `checks` is optional. If
    several rows have the same prompt, the reward is the largest one.
    """
    if not content_weight and not style_weight:
        raise UsageError("rlvrr: content_weight and style_weight are both 0; set one of them above 0")

    def required_content(row: Row) -> _Required:
        stated = column(row, reference)
        texts = stated if isinstance(stated, list) else [stated]
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError(f"'{reference}' must be a string or a list of strings, got {str(stated)[:60]!r}")
        return _Required(tuple(texts), key_points(column(row, keywords)), checks_of(row.get(checks) or []))

    def worth(answer: str, required: _Required) -> float:
        content_share = content_score(answer, required.references, required.points)
        return content_weight * content_share + style_weight * style_score(answer, required.checks)

    return per_completion(run.by_prompt(required_content), lambda text, rows: max(worth(text, row) for row in rows))
