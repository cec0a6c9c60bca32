"""Report of the study of latent reasoning reward models: claims, and every arm with its work and its time."""

from collections.abc import Mapping

from ....benchmarks.report import table
from ....rm.kinds.latent.model import P_DEEPEST
from ...statistics.estimates import t_interval
from .._design import Assessment, Design, Values, claims_table, design_markdown
from .pairs import OPERATIONS_OF_A_PROBLEM, RATIONALE
from .reasoners import ACCURACY, MILLISECONDS, NO_STEPS, SECONDS, STEPS, UPDATES


def text(design: Design, assessments: Mapping[str, Assessment], results: Values) -> str:
    """Return the report in Markdown."""
    parts = [
        "# Latent and written reasoning on chains of arithmetic",
        _introduction(),
        design_markdown(design),
        "## Claims",
        claims_table(assessments),
        "![Effects with intervals](effects.png)",
        "## Arms",
        _arms(results),
        "Means over seeds; brackets are Student's 95 % intervals. Optimizer steps and CPU-seconds are those of the "
        "arm's training, without the training that it starts from. Milliseconds are CPU time per response on one "
        "thread, in batches of 64: all arms score the same responses in turn, and the figure is the median over "
        "repeats. They are a measurement of one run, and no claim is about them.",
        "## What this cannot say",
        "- A toy: models of 100,000 weights, trained from random weights on the results of every step. A pretrained "
        "language model can compute before it is trained here, and its rationales are longer.\n"
        f"- All problems have {OPERATIONS_OF_A_PROBLEM} operations: a depth head has little to adapt to.\n"
        "- Why the depth head loses what the steps have learned was only tried, after the counted runs. With all steps "
        "at first and the old learning rate accuracy was 0.48 to 0.52 (three seeds of the pilot), with equal "
        "probabilities and the lower rate 0.49 (one seed), with both changes 0.98 (the same seed).\n"
        f"- The writer writes {RATIONALE} tokens, as many as there are latent steps, and no token that ends the "
        "rationale. Real rationales have many more tokens than steps; the time that is saved then is not measured.\n"
        "- At this size most of the time is that of launching operations, not of arithmetic.",
    ]
    return "\n\n".join(parts) + "\n"


def _introduction() -> str:
    return (
        "LASAR, arXiv:2605.10207, of which the abstract is known; Coconut, arXiv:2412.06769. A prompt is a digit and "
        f"{OPERATIONS_OF_A_PROBLEM} operations on last digits, a completion is the final answer, right or wrong. The "
        f"rationale has {RATIONALE} tokens: the result of every operation, and whether the answer is right. All arms "
        "train the same backbone on the same pairs with the Bradley-Terry loss and the rationale's negative "
        "log-likelihood (μ = 1; `no steps, no rationale`: μ = 0), and are tested on other problems. `no steps` scores "
        f"at once, `longer` after 1.5 times the optimizer steps. `aligned` takes {RATIONALE} latent steps, aligned "
        "with the tokens of the rationale (λ = 1); `unaligned` takes them with λ = 0. `shuffled rationales` has those "
        "of other pairs, with other results and the same last word. `depth head` goes on from `aligned` with a head "
        "that chooses 0 to all steps, all equally likely at first, at a price of 0.01 of accuracy a step; `aligned, "
        "trained on` goes on for as many optimizer steps without it. `depth head, from all steps` was added after the "
        f"counted runs: its head takes all steps with a probability of {P_DEEPEST:g} at first, and its "
        "learning rate is a tenth; no claim is about it. `writer` reads the given rationale in training; in tests "
        "it writes the rationale itself, greedily and with the cache, and its time includes that."
    )


def _arms(results: Values) -> str:
    header = ["arm", "optimizer steps", "CPU-seconds", "accuracy", "latent steps or written tokens"]
    header += ["ms per response", f"ms relative to `{NO_STEPS}`"]
    times = results[MILLISECONDS]
    lines = [
        [
            arm,
            *(f"{results[name][arm].mean():,.0f}" for name in (UPDATES, SECONDS)),
            t_interval(results[ACCURACY][arm]).formatted(".3f"),
            t_interval(results[STEPS][arm]).formatted(".2f"),
            f"{times[arm].mean():.3f}",
            t_interval(times[arm] / times[NO_STEPS]).formatted(".2f"),
        ]
        for arm in results[ACCURACY]
    ]
    return table(header, lines, right={*header[1:]})
