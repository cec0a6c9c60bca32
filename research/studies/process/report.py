"""Report of the study of process reward models: claims, and every arm with what it was trained on."""

from collections.abc import Mapping

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._design import Assessment, Design, Values, claims_table, design_markdown
from .chains import RIGHT
from .verifiers import BEST, F1, LABELS, SOLUTIONS, THRESHOLD


def text(design: Design, assessments: Mapping[str, Assessment], results: Values) -> str:
    """Return the report in Markdown."""
    parts = [
        "# Process and outcome labels on chains of arithmetic",
        _introduction(),
        design_markdown(design),
        "## Claims",
        claims_table(assessments),
        "![Effects with intervals](effects.png)",
        "## Arms",
        _arms(results),
        "## What this cannot say",
        "- A toy: models of 100,000 weights, five operations on last digits, at most one error in a solution. Real "
        "solutions have steps that are right for wrong reasons, and errors that cancel.\n"
        "- Labels are true. Labels from rollouts (Math-Shepherd) are not, and may be worth less.\n"
        "- The same number of labels is not the same cost: a labeller of steps reads a solution once for all of its "
        "labels.",
    ]
    return "\n\n".join(parts) + "\n"


def _introduction() -> str:
    return (
        "Lightman et al. 2023, arXiv:2305.20050; Uesato et al. 2022, arXiv:2211.14275. A solution writes out one to "
        f"five operations on last digits; {100 * RIGHT:.0f} % of the solutions have no error, the others one wrong "
        "result at a uniform step, which is carried on. All arms train the same token classifier from the same "
        "weights, those of a language model of right solutions, with the same number of optimizer steps. `process` has "
        "a label for every step up to the first error; `outcome` has one for the last step, whether the final answer "
        "is right: for as many solutions as `process` has labels, or for the same solutions. `shuffled labels` gives "
        "each solution the labels of another one. First errors are found at the threshold that is best on other "
        "solutions. Best of 16 counts problems with right and wrong candidates; rewards are the minimum over steps, or "
        "the last step for `outcome`."
    )


def _arms(results: Values) -> str:
    header = ["arm", "solutions", "labels", "F1 of first errors", "best of 16", "threshold"]
    lines = [
        [
            arm,
            *(f"{results[name][arm].mean():,.0f}" for name in (SOLUTIONS, LABELS)),
            *(t_interval(results[name][arm]).formatted(".3f") for name in (F1, BEST)),
            f"{results[THRESHOLD][arm].mean():.2f}",
        ]
        for arm in results[F1]
    ]
    return table(header, lines, right={*header[1:]})
