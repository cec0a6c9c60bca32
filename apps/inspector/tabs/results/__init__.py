"""The results tab: results of a run on its benchmark, beside the baselines."""

from ...html import columns, skeleton_html, template

TEMPLATE = "".join(
    [
        template("benchmarks-controls"),
        f'<div class="part" id="facts">{skeleton_html()}</div>',
        template("gaps", "areas", "guides"),
        columns(template("calibration", "claims"), template("lengths", "slopes")),
        template("style-matrix", "about-run", "run-report"),
    ]
)
