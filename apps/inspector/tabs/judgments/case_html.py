"""One case as HTML: the prompt, the answers side by side, every scorer's scores beneath."""

from urllib.parse import urlencode

from .....rm.types import message_text, tools_of, tools_text
from ...html import STYLE, number, pill, shown
from .cases import Item, Verdict
from .diff import WORDS, pieces_html, word_diff


def item_html(item: Item, *, diff: bool = False, star: bool = False, run: str = "") -> str:
    """`diff` marks the words that only one of two answers has; `run` is the run's id for a link to this item."""
    texts, note = _texts(item, diff)
    answers = "".join(_answer_html(item, index, text) for index, text in enumerate(texts))
    return (
        f'{STYLE}<div class="rl">{_prompt_html(item, star, run)}{note}<div class="answers">{answers}</div>'
        f'<div class="box scores">{_scores_html(item)}</div></div>'
    )


def _texts(item: Item, diff: bool) -> tuple[list[str], str]:
    """Each answer as HTML, and a sentence on what was not compared."""
    texts = [shown(answer) for answer in item.answers]
    if not (diff and item.pair):
        return texts, ""
    right, wrong = item.pair
    difference = word_diff(item.answers[right], item.answers[wrong])
    texts[right], texts[wrong] = pieces_html(difference.first, "ins"), pieces_html(difference.second, "del")
    note = f"Only the first {WORDS:,} words of each answer are compared." if difference.left else ""
    return texts, f'<p class="faint">{note}</p>' if note else ""


def _prompt_html(item: Item, star: bool, run: str) -> str:
    alone = len(item.messages) == 1
    turns = "".join(_turn_html(turn["role"], message_text(turn), alone=alone) for turn in item.messages)
    if tools := tools_of(item.messages):
        turns = _turn_html("tools", tools_text(tools), alone=False) + turns
    link = urlencode({"tab": "judgments", "run": run, "scorer": item.scorer, "item": item.case})
    parts = [
        '<span class="star" title="marked">★</span>' if star else "",
        f"<span>{shown(item.case, 300)}</span>",
        f'<span class="faint">{shown(item.subset, 300)}</span>',
        f'<span class="faint" title="the scorer on this subset, with its 95 % interval">{_interval(item)}</span>',
        f'<a class="faint" href="?{link.replace("&", "&amp;")}">link</a>' if run else "",
        f'<span class="end">{pill(item.verdict.outcome)}</span>' if item.verdict else "",
    ]
    return f'<div class="box prompt"><div class="head">{"".join(parts)}</div><div class="body">{turns}</div></div>'


def _interval(item: Item) -> str:
    known = item.interval is not None and item.interval.value == item.interval.value
    return f"{item.interval} % of the subset" if known else ""


def _turn_html(role: str, content: str, *, alone: bool) -> str:
    label = "" if alone and role == "user" else f'<div class="faint">{shown(role, 100)}</div>'
    return f'<div class="turn">{label}<div class="text">{shown(content)}</div></div>'


def _answer_html(item: Item, index: int, text: str) -> str:
    best = index in item.best
    mark = '<span class="right">✓ right</span>' if best else ""
    scores = item.verdict.scores if item.verdict else ()
    top = '<span class="pill">highest score</span>' if scores and scores[index] == max(scores) else ""
    length = f'<span class="faint">{len(item.answers[index]):,} characters</span>'
    score = f'<span class="end">{number(scores[index])}</span>' if scores else ""
    return (
        f'<div class="box answer{" best" if best else ""}"><div class="head"><span>Answer {index + 1}</span>{mark}'
        f'{top}{length}{score}</div><div class="body"><div class="text">{text}</div></div></div>'
    )


def _scores_html(item: Item) -> str:
    heads = [f"Answer {index + 1}{' ✓' if index in item.best else ''}" for index in range(len(item.answers))]
    head = "".join(f"<th>{name}</th>" for name in ["Scorer", *heads, "Margin", "Outcome"])
    rows = "".join(_verdict_html(verdict, len(item.answers), item.scorer) for verdict in item.verdicts)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _verdict_html(verdict: Verdict, answers: int, chosen: str) -> str:
    if verdict.scores:
        cells = "".join(f"<td>{number(score)}</td>" for score in [*verdict.scores, verdict.margin])
    else:
        cells = f'<td class="why" colspan="{answers + 1}">abstained: {shown(verdict.abstained, 2000)}</td>'
    name = f'{shown(verdict.scorer.name, 300)} <span class="faint">{shown(verdict.scorer.role, 40)}</span>'
    mine = ' class="mine"' if verdict.scorer.name == chosen else ""
    return f"<tr{mine}><td>{name}</td>{cells}<td>{pill(verdict.outcome)}</td></tr>"
