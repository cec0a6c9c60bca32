"""The compare tab: two scorers on the same cases, or all pairs of several scorers."""

from ...html import columns, skeleton_html, template

TEMPLATE = "".join(
    [
        template("compare-controls", "pairs"),
        columns(
            f'<div class="part" id="differences">{skeleton_html()}</div>', template("outcomes", "margins", "drawn")
        ),
        template("flip-bar", "flips"),
    ]
)
