"""Explanation of a judge's verdict: criteria with quoted evidence, reasoning, and the replies."""

import re
from collections.abc import Sequence
from html import escape
from itertools import pairwise, zip_longest
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

from ......judges.kinds.route import ROUTED
from ......judges.parsing.grammars import LABELS
from ......judges.parsing.statements import NoVerdict
from ......judges.parsing.verdicts import pair_verdict
from ......judges.types import Criterion
from ......rm.errors import UNREADABLE, DataError
from .....runs.tables import JUDGMENTS
from ....database import query, table
from ....html import LONGEST, box_html, number, text_html
from ....texts.rendering import rendered_html
from ...metrics import table_html

ROW = f"""SELECT criteria, reasoning, raw, orders, prompt_tokens, completion_tokens, seconds, cost
          FROM {table("judgments")} WHERE scorer = $scorer AND "case" = $case"""
WORDS = {1.0: ("met", "right"), 0.5: ("partly", "tie"), 0.0: ("not met", "wrong")}


class Grounds(NamedTuple):
    """Stored explanation of one judge's judgment of one case: criteria, reasoning, replies and their cost."""

    criteria: tuple[Criterion, ...]
    reasoning: str
    raw: tuple[str, ...]
    orders: tuple[tuple[int, ...], ...]
    """For each request, the indices of the responses in the order in which the judge saw them."""
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    cost: float

    def values(self, answers: int) -> list[dict[str, float]]:
        """Return criterion name -> value for each response. `answers` is the number of responses."""
        return [
            {criterion.name: criterion.value for criterion in self.criteria if criterion.answer == index}
            for index in range(answers)
        ]


def load_grounds(folder: Path, scorer: str, case: str) -> Grounds | None:
    """Load the stored explanation of a judgment. None if the scorer is not a judge."""
    path = folder / JUDGMENTS
    if not path.is_file():
        return None
    rows = query(ROW, {"judgments": path}, {"scorer": scorer, "case": case}, way_out="run `rewardlab judge` again")
    try:
        return _grounds(*rows[0]) if rows else None
    except UNREADABLE as error:
        raise DataError(f"{path}: the judgment of '{case}' is damaged ({error}); run rewardlab judge again") from error


def _grounds(criteria, reasoning, raw, orders, prompt_tokens, completion_tokens, seconds, cost) -> Grounds:
    return Grounds(
        tuple(_criterion(**criterion) for criterion in criteria or ()),
        str(reasoning or ""),
        tuple(map(str, raw or ())),
        tuple(tuple(map(int, order)) for order in orders or ()),
        int(prompt_tokens or 0),
        int(completion_tokens or 0),
        float(seconds or 0.0),
        float(cost or 0.0),
    )


def _criterion(answer: Any, name: Any, value: Any, evidence: Any, quoted: Any) -> Criterion:
    return Criterion(int(answer), str(name), float(value), str(evidence), bool(quoted))


# ---- evidence in an answer ----


class Quotation(NamedTuple):
    """Position of a criterion's quoted evidence in a response."""

    start: int
    end: int
    criterion: Criterion


def quotations(answer: str, criteria: Sequence[Criterion]) -> list[Quotation]:
    """Return all passages that a criterion's evidence quotes, ignoring spaces, letter case and quotation marks."""
    matches = []
    for criterion in criteria:
        words = [re.escape(word) for word in criterion.evidence.strip(" \"'“”‘’«»\n").split()]
        for match in re.finditer(r"\s+".join(words), answer, re.IGNORECASE) if words else ():
            matches.append(Quotation(match.start(), match.end(), criterion))
    return matches


def marked_html(answer: str, criteria: Sequence[Criterion]) -> str:
    """Return a response as HTML with its quoted evidence marked. The tooltip of a mark names its criteria."""
    text, rest = answer[:LONGEST], answer[LONGEST:]
    quoted = quotations(text, criteria)
    cuts = sorted({0, len(text), *(edge for quotation in quoted for edge in (quotation.start, quotation.end))})
    parts = []
    for start, end in pairwise(cuts):
        over = dict.fromkeys(
            quotation.criterion for quotation in quoted if quotation.start <= start and end <= quotation.end
        )
        parts.append(_mark(text[start:end], [*over]))
    return "".join(parts) + text_html(rest, 0) if rest else "".join(parts)


def _mark(text: str, criteria: Sequence[Criterion]) -> str:
    """Return a passage as HTML, marked and with a tooltip if criteria quote it."""
    if not criteria:
        return text_html(text)
    worst = min(criterion.value for criterion in criteria)
    names = ", ".join(f"{criterion.name}: {_label(criterion.value)}" for criterion in criteria)
    return f'<mark class="{_colour(worst)}" title="{escape(names)}">{text_html(text)}</mark>'


def _label(value: float) -> str:
    """Return the word for the value of a criterion, or the value as a number."""
    return WORDS[value][0] if value in WORDS else number(value)


def _colour(value: float) -> str:
    """Return the CSS class of the colour for the value of a criterion."""
    return WORDS[value][1] if value in WORDS else "tie"


# ---- what is shown ----


def grounds_html(grounds: Grounds, answers: Sequence[str]) -> str:
    """Return criteria, responses with marked evidence, reasoning, replies and their cost as HTML."""
    reasoning = _box("Reasoning", _written(grounds.reasoning)) if grounds.reasoning else ""
    parts = [_replies_html(grounds, answers), reasoning, _cost_html(grounds)]
    if grounds.criteria:
        parts = [_criteria_html(grounds, len(answers)), _answers_html(grounds, answers), *parts]
    return f'<div class="rl">{"".join(parts)}</div>'


def _criteria_html(grounds: Grounds, answers: int) -> str:
    names = dict.fromkeys(criterion.name for criterion in grounds.criteria)
    by_place = {(criterion.name, criterion.answer): criterion for criterion in grounds.criteria}
    marks = any(criterion.evidence for criterion in grounds.criteria if criterion.name != ROUTED)
    heads = ["Criterion", *(f"Response {index + 1}" for index in range(answers))]
    rows = ([text_html(name), *(_verdict(by_place.get((name, k)), marks) for k in range(answers))] for name in names)
    return f'<div class="box scores criteria">{table_html(heads, rows)}</div>'


def _verdict(criterion: Criterion | None, marks: bool) -> str:
    """Return the table cell of a criterion: met, partly or not met with its evidence, or a number for other scales."""
    if criterion is None:
        return '<td class="verdict faint">no verdict</td>'
    if criterion.name == ROUTED:
        return f'<td class="verdict">{number(criterion.value)} {text_html(criterion.evidence, 400)}</td>'
    if not marks:
        return f"<td>{number(criterion.value)}</td>"
    stray = "" if criterion.quoted else ' <span class="wrong">(this quotation is not in the response)</span>'
    quoted = f"<q>{text_html(criterion.evidence, 400)}</q>{stray}" if criterion.evidence else ""
    return f'<td class="verdict"><span class="{_colour(criterion.value)}">{_label(criterion.value)}</span>{quoted}</td>'


def _answers_html(grounds: Grounds, answers: Sequence[str]) -> str:
    said = [[criterion for criterion in grounds.criteria if criterion.answer == k] for k in range(len(answers))]
    boxes = "".join(_box(f"Response {k + 1}", marked_html(text, said[k])) for k, text in enumerate(answers))
    return f'<div class="answers evidence">{boxes}</div>'


def _box(head: str, text: str, kind: str = "") -> str:
    return box_html(head, f'<div class="text">{text}</div>', kind)


def _written(text: str) -> str:
    """Return a judge's text as HTML: Markdown is rendered; JSON and tagged text are shown unchanged."""
    if text.lstrip().startswith(("{", "[", "<")):
        return text_html(text)
    return f'<div class="rendered">{rendered_html(text)}</div>'


def _replies_html(grounds: Grounds, answers: Sequence[str]) -> str:
    """Return the replies side by side, for example the replies for both orders of a comparison."""
    requests = enumerate(zip_longest(grounds.raw, grounds.orders[: len(grounds.raw)], fillvalue=()))
    boxes = "".join(
        _box(_request(index, order, raw, answers), _written(raw), "reply") for index, (raw, order) in requests
    )
    turned = _order_effect_html(grounds, answers)
    return f'{turned}<div class="answers replies">{boxes}</div>' if boxes else ""


def _request(answer_index: int, order: tuple[int, ...], raw: str, answers: Sequence[str]) -> str:
    """Return HTML with the order of the responses in a request, and the verdict of the reply."""
    names = ", then ".join(f"response {index + 1}" for index in order)
    head = f"<span>Reply {answer_index + 1}</span>" + (f'<span class="faint">was shown {names}</span>' if names else "")
    verdict = reply_verdict(raw, order, answers)
    return head + (f'<span class="end">{text_html(verdict)}</span>' if verdict else "")


def reply_verdict(raw: str, order: tuple[int, ...], answers: Sequence[str]) -> str:
    """Return the verdict of a pairwise reply, with the responses' numbers in the case. Empty for other requests.

    >>> reply_verdict("Winner: A", (1, 0), ["first", "second"])
    'response 2 is better'
    """
    if len(order) != len(LABELS) or not all(0 <= index < len(answers) for index in order):
        return ""
    verdict = pair_verdict(raw, quoted=[answers[index] for index in order])
    if isinstance(verdict, NoVerdict):
        return str(verdict)
    if verdict.choice not in LABELS:
        return "a tie"
    return f"response {order[LABELS.index(verdict.choice)] + 1} is better"


def _order_effect_html(grounds: Grounds, answers: Sequence[str]) -> str:
    """Return a sentence if the verdict depends on the order of the responses."""
    verdicts_by_pair: dict[Any, set[str]] = {}
    for raw, order in zip(grounds.raw, grounds.orders, strict=False):
        if len(order) == len(LABELS):
            verdicts_by_pair.setdefault(frozenset(order), set()).add(reply_verdict(raw, order, answers))
    if all(len(verdicts) == 1 for verdicts in verdicts_by_pair.values()):
        return ""
    return '<p class="wrong">The replies differ: the verdict follows the order of the responses.</p>'


def _cost_html(grounds: Grounds) -> str:
    return (
        f'<div class="faint">{len(grounds.raw)} requests, {grounds.prompt_tokens:,} + '
        f"{grounds.completion_tokens:,} tokens, "
        f"{number(grounds.seconds)} seconds, cost {'unknown' if isnan(grounds.cost) else number(grounds.cost)}.</div>"
    )
