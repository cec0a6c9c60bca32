"""The toolbar of the judgments tab: run, scorer, search, filters and order of the cases."""

from collections.abc import Sequence

from ...components import Site, run_select
from ...html import input_html, radio_html, select_html
from ...run_list import JUDGED
from .annotation.annotation_html import LABELS
from .filters import ONLY, ORDERS, FilterValues
from .queries import OUTCOMES

MORE = '<button type="button" id="more-button" class="button">More filters</button>'
Choices = Sequence[tuple[str, str]]


def toolbar_html(site: Site, values: FilterValues, scorers: Choices, subsets: Choices) -> str:
    """Return the toolbar with these values. Rarely used filters are folded."""
    outcome = radio_html("outcome", "Outcome", [(name, name) for name in OUTCOMES], values.outcome)
    search = input_html("search", "Search", values.search, type="search", placeholder="prompts, responses, case names")
    first = [
        run_select(site, JUDGED, values.run),
        select_html("scorer", "Scorer", scorers, values.scorer),
        search,
        select_html("subset", "Subset", subsets, values.subset),
        select_html("order", "Sort", ORDERS, values.order),
    ]
    only = {*values.only.split(",")} - {""}
    boxes = {
        name: f'<label class="box-label"><input type="checkbox" name="only" value="{name}"'
        f"{' checked' if name in only else ''}>{label}</label>"
        for label, name in ONLY
    }
    annotated = boxes.pop("annotated")
    more = [
        input_html("margin", "Largest |margin|", values.margin, placeholder="any"),
        input_html("gap", "Length gap", values.gap, placeholder="200, or -200"),
        input_html("length", "Response length", values.length, placeholder="100-200"),
        select_html(
            "verdict", "Verdict", [("any", ""), *((label, name) for name, label in LABELS.items())], values.verdict
        ),
        input_html("reader", "Reader", values.reader, placeholder="any"),
        input_html("note", "Note", values.note, placeholder="any"),
        *boxes.values(),
    ]
    folds = [values.margin, values.gap, values.length, values.verdict, values.reader, values.note, only - {"annotated"}]
    folded = "" if any(folds) else " folded-away"
    return (
        f'<div class="controls">{"".join(first)}</div>'
        f'<div class="controls"><span id="outcome">{outcome}{annotated}</span>{MORE}</div>'
        f'<div class="controls{folded}" id="more-filters">{"".join(more)}</div>'
    )
