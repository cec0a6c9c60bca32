"""HTML of a case: prompt, responses side by side, and the scores of every scorer."""

from collections.abc import Sequence

from .....rm.types import message_text, tools_of, tools_text
from ...html import box_html, decimals_of, number, pill, text_html
from ...texts.rendering import completion_html, message_html
from ..metrics import row_html, table_html
from .annotation.annotation_html import order_of
from .cases import Item, Verdict
from .diff import WORDS, pieces_html, word_diff

LINES, CHARACTERS = 40, 4_000
"""Lines and characters above which a text is folded."""


def case_html(item: Item, *, diff: bool = False, raw: bool = True, blind: bool = False) -> str:
    """Return a case as HTML.

    `diff` marks the words that only one of two responses has. `raw` shows the stored text instead of rendered Markdown.
    `blind` hides the label and all scores.
    """
    texts, note = _texts(item, diff and not blind, raw)
    order = order_of(item, blind=blind)
    responses = "".join(
        _response_html(item, index, texts[index], position + 1, blind=blind) for position, index in enumerate(order)
    )
    scores = "" if blind else f'<div class="box scores">{_scores_html(item)}</div>'
    return f'{_prompt_html(item, raw, blind=blind)}{note}<div class="answers">{responses}</div>{scores}'


def _texts(item: Item, diff: bool, raw: bool) -> tuple[list[str], str]:
    """Return each response as HTML, and a note on words that were not compared."""
    texts = [completion_html(answer, rendered=not raw) for answer in item.answers]
    if not (diff and item.pair):
        return texts, ""
    right, wrong = item.pair
    difference = word_diff(item.texts[right], item.texts[wrong])
    pieces = pieces_html(difference.first, "ins"), pieces_html(difference.second, "del")
    texts[right], texts[wrong] = (f'<div class="text" dir="auto">{html}</div>' for html in pieces)
    note = f"Only the first {WORDS:,} words of each response are compared." if difference.left else ""
    return texts, f'<p class="faint">{note}</p>' if note else ""


def _prompt_html(item: Item, raw: bool, *, blind: bool) -> str:
    alone = len(item.messages) == 1
    turns = "".join(
        _turn_html(turn["role"], message_html(turn, rendered=not raw), message_text(turn), alone=alone)
        for turn in item.messages
    )
    if tools := tools_of(item.messages):
        declared = tools_text(tools)
        turns = _turn_html("tools", f'<div class="text">{text_html(declared)}</div>', declared, alone=False) + turns
    known = not blind and item.interval is not None and item.interval.value == item.interval.value
    interval = f"{item.interval} % of the subset" if known else ""
    parts = [
        f'<h2 class="case-name">{text_html(item.case, 300)}</h2>',
        f'<span class="faint">{text_html(item.subset, 300)}</span>',
        f'<span class="faint" title="the scorer on this subset, with its 95 % interval">{interval}</span>',
        f'<span class="end">{pill(item.verdict.outcome)}</span>' if item.verdict and not blind else "",
    ]
    return box_html("".join(parts), turns, "prompt")


def _turn_html(role: str, html: str, text: str, *, alone: bool) -> str:
    label = "" if alone and role == "user" else f'<div class="faint">{text_html(role, 100)}</div>'
    return f'<div class="turn">{label}{folded_html(html, text)}</div>'


def folded_html(html: str, text: str) -> str:
    """Return the HTML of a text, folded to its first 40 lines if it is long, with a control that shows all of it.

    >>> folded_html("<p>short</p>", "short")
    '<p>short</p>'
    """
    lines = text.count("\n") + 1
    if lines <= LINES and len(text) <= CHARACTERS:
        return html
    size = f"{lines:,} {'line' if lines == 1 else 'lines'}, {len(text):,} characters"
    return f'<div class="folded">{html}</div><button type="button" class="unfold">Show all ({size})</button>'


def _response_html(item: Item, index: int, text: str, name: int, *, blind: bool) -> str:
    best = index in item.best and not blind
    scores = item.verdict.scores if item.verdict and not blind else ()
    parts = [
        f"<span>Response {name}</span>",
        '<span class="right">✓ right</span>' if best else "",
        _rank(scores, index),
        f'<span class="faint">{len(item.texts[index]):,} characters</span>',
        f'<span class="end">{number(scores[index], decimals_of(scores))}</span>' if scores else "",
    ]
    body = text if item.texts[index] else '<p class="faint">(empty)</p>'
    return box_html("".join(parts), folded_html(body, item.texts[index]), "answer best" if best else "answer")


def _rank(scores: Sequence[float], index: int) -> str:
    """Return a mark if the score at `index` is the highest, alone or tied."""
    if not scores or scores[index] < max(scores):
        return ""
    ties = sum(score == scores[index] for score in scores) > 1
    return f'<span class="pill{" tie" if ties else ""}">{"tied for highest score" if ties else "highest score"}</span>'


def _scores_html(item: Item) -> str:
    heads = [f"Response {index + 1}{' ✓' if index in item.best else ''}" for index in range(len(item.answers))]
    rows = (_verdict_html(verdict, len(item.answers), item.scorer) for verdict in item.verdicts)
    return table_html(["Scorer", *heads, "Margin", "Outcome"], rows)


def _verdict_html(verdict: Verdict, answers: int, chosen: str) -> str:
    numbers = [*verdict.scores, verdict.margin]
    why = f'<td class="why" colspan="{answers + 1}">abstained: {text_html(verdict.abstained, 2000)}</td>'
    cells = [number(value, decimals_of(numbers)) for value in numbers] if verdict.scores else [why]
    name = f'{text_html(verdict.scorer.name, 300)} <span class="faint">{text_html(verdict.scorer.role, 40)}</span>'
    return row_html([name, *cells, pill(verdict.outcome)], kind="mine" if verdict.scorer.name == chosen else "")
