"""HTML of the annotation form of a case, its annotations, and the progress of readers."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ......judges.audit.agreement import krippendorff_alpha
from ....html import text_html
from ....texts.rendering import rendered_html
from ..cases import Item
from .annotations import VERDICTS, Annotation, case_annotations, file_of

GUIDELINES = "guidelines.md"
QUESTION = "Is the label right?"
BLIND_QUESTION = "Which response is better?"
LABELS = {"agree": "Yes", "disagree": "No", "tie": "Tie"}


def order_of(item: Item, *, blind: bool) -> list[int]:
    """Return the display order of the responses. In blind mode the order depends only on the case's name.

    The order of the data could reveal the label, since datasets often have the best response first.
    """
    order = list(range(len(item.answers)))
    if blind:
        order.sort(key=lambda index: hashlib.sha256(f"{item.case}\0{index}".encode(errors="replace")).digest())
    return order


def choices(item: Item, *, blind: bool) -> tuple[str, list[list[str]]]:
    """Return the question, and value, label and key of each choice. Blind readers choose a response or a tie."""
    if not blind:
        return QUESTION, [[name, LABELS[name], {"agree": "y", "disagree": "n", "tie": "t"}[name]] for name in VERDICTS]
    responses = [
        [str(index), f"Response {position + 1}", str(position + 1)]
        for position, index in enumerate(order_of(item, blind=True))
    ]
    return BLIND_QUESTION, [*responses, ["tie", "Tie", "t"]]


def progress(annotations: Sequence[Annotation], reader: str, total: int) -> str:
    """Return a line on the annotations of a run: numbers of annotated cases and readers, and the readers' agreement."""
    latest = {(annotation.case, annotation.who): annotation for annotation in annotations}
    annotators = sorted({who for _, who in latest})
    mine = sum(who == reader for _, who in latest)
    parts = [f"{mine:,} of {total:,} cases by you"] if reader else []
    if annotators:
        cases = len({case for case, _ in latest})
        parts.append(f"{cases:,} by {len(annotators):,} {'reader' if len(annotators) == 1 else 'readers'}")
    verdicts = {key: annotation.verdict for key, annotation in latest.items()}
    return "; ".join([*parts, *agreement(verdicts)])


def agreement(verdicts: dict[tuple[str, str], str]) -> list[str]:
    """Return the share of equal verdicts on a case, over all pairs of readers, and Krippendorff's alpha.

    `verdicts` maps (case, reader) to a verdict. Return an empty list if no case has two readers.

    >>> agreement({("a", "x"): "tie", ("a", "y"): "tie", ("b", "x"): "tie", ("b", "y"): "agree"})
    ['2 cases by two or more readers: 50 % of pairs equal, alpha 0.00']
    """
    readers, cases = sorted({who for _, who in verdicts}), sorted({case for case, _ in verdicts})
    names = list(VERDICTS)
    codes = {key: names.index(verdict) for key, verdict in verdicts.items()}
    ratings = np.array([[codes.get((case, who), np.nan) for case in cases] for who in readers])
    both = (~np.isnan(ratings)).sum(0) >= 2 if len(readers) > 1 else np.zeros(0, bool)
    if not both.any():
        return []
    known = ratings[:, both]
    counts = np.stack([(known == code).sum(0) for code in range(len(names))])
    raters = counts.sum(0)
    equal = (counts * (counts - 1)).sum() / (raters * (raters - 1)).sum()
    alpha = krippendorff_alpha(known)
    beyond = "" if alpha != alpha else f", alpha {alpha:.2f}"
    return [f"{int(both.sum()):,} cases by two or more readers: {100 * equal:.0f} % of pairs equal{beyond}"]


def annotations_html(item: Item, annotations: Sequence[Annotation]) -> str:
    """Return a case's annotations as HTML, newest first. Annotations of other texts are only counted."""
    known = case_annotations(item, annotations)
    stale = sum(annotation.case == item.case for annotation in annotations) - len(known)
    rows = [_annotation_html(annotation) for annotation in known]
    if stale:
        rows.append(f'<div class="turn faint">Not shown: annotations of a run with other texts ({stale}).</div>')
    return "".join(rows)


def guidelines_html(run: Path) -> str:
    """Return the guidelines for readers as HTML: `guidelines.md` in the folder of annotations. Empty if missing."""
    try:
        text = (file_of(run).parent / GUIDELINES).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f'<details><summary>Guidelines</summary><div class="text rendered">{rendered_html(text)}</div></details>'


def _annotation_html(annotation: Annotation) -> str:
    blind = ", blind" if annotation.blind else ""
    when = annotation.when[:16].replace("T", " ")
    return (
        f'<div class="turn"><b>{LABELS[annotation.verdict]}</b> <span class="faint">{text_html(annotation.who)}, '
        f"{text_html(when)}, {text_html(annotation.outcome)} by {text_html(annotation.scorer)}{blind}</span>"
        f'<div class="text" dir="auto">{text_html(annotation.note)}</div></div>'
    )
