"""The studies tab: reports with tables and figures."""

from ...html import skeleton_html, template

TEMPLATE = "".join(
    [template("studies-controls"), f'<div class="part" id="study">{skeleton_html()}</div>', template("study-figures")]
)
