"""Report of the retrieval study."""

from collections.abc import Mapping, Sequence

import numpy as np

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._design import Assessment, Design, claims_table

Values = Mapping[str, Mapping[str, np.ndarray]]
HEALTH = ("recall@1", "recall@10", "mean reciprocal rank", "same-theme precision@5")
CHECKS = ("accuracy with rubrics", "accuracy with examples", "share of demands in the rubric")


def text(design: Design, assessments: Mapping[str, Assessment], results: Values, held_out: int) -> str:
    """Return the report in Markdown."""
    parts = [
        "# Retrieval for judges: facet vectors against mean pooling and words",
        _introduction(held_out),
        _design(design),
        "## Claims",
        claims_table(assessments),
        "![Effects with intervals](effects.png)",
        "## HealthBench: the rubric of a prompt, and prompts of its theme",
        _chance(assessments["training_helps"], held_out),
        _arms(results, HEALTH),
        "## World of checks: a simulated judge with what was retrieved",
        _arms(results, CHECKS),
        _limits(),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(held_out: int) -> str:
    return (
        "After UniFAR (Dou et al. 2026, arXiv:2602.23766), of which only the abstract was at hand: the equations are "
        "ours. All encoders have one layer of width 64 and start from random weights; tokenizer and weights learn from "
        "the training split of a seed alone, jointly on prompt -> rubric pairs and on pairs of prompts of one theme. "
        "`mean pooling` has as many numbers per text as the four facet vectors together, and the same pairs, steps and "
        "batches; `no aggregation` attends over the whole text only. Encoders read the first 128 tokens of a text (96 "
        "in the world of checks), TF-IDF and BM25 read all of it.\n\n"
        f"HealthBench: 482 prompts that have criteria of their own; {held_out} of them are held out at each seed, and "
        "their rubrics are the candidates. Criteria that all prompts of a theme share are in no rubric. The theme of a "
        "prompt is in the tags of its criteria (`cluster:THEME_...`); 116 of the 482 have none, and are not asked for "
        "neighbours.\n\n"
        "World of checks: a prompt makes two to four demands, each in one of two phrasings; the worse response of a "
        "pair fails one of them. The collection has 400 training prompts with the rubric of their demands, and a "
        "labelled pair for each. The simulated judge goes by the rubric of the nearest prompt; or it is shown eight "
        "labelled pairs, and goes by the checks that separate the better from the worse answers in at least two pairs "
        "more than the reverse, which is our assumption about how a judge learns from examples. `random` draws from "
        "the same collection; `oracle` is the prompt's own rubric, or eight pairs whose worse answer fails the same "
        "check as the case's, which no retriever can know."
    )


def _design(design: Design) -> str:
    decided = sorted({claim.decided.isoformat() for claim in design.claims})
    number = len(design.seeds)
    short = [f"`{claim.name}` ({design.needed(claim)})" for claim in design.claims if design.needed(claim) > number]
    by_pilot = f"By the pilot's standard deviations, which {len(design.pilot_seeds)} seeds estimate very roughly, " + (
        f"80 % power would need more seeds for {', '.join(short)}." if short else "these seeds have 80 % power."
    )
    return (
        f"## Design\n\nClaims decided before the counted runs, on {', '.join(decided)}, after both pilot seeds had "
        f"been used to choose the encoder's settings. {number} seeds are counted, each with its own split, tokenizer, "
        f"weights and pairs; seeds {', '.join(map(str, design.pilot_seeds))} are the pilot's and are not. {by_pilot}"
    )


def _chance(trained: Assessment, held_out: int) -> str:
    """Return what a guess would find, and what the positive control says of the comparisons."""
    guess = (
        f"A guess finds the rubric first with probability {1 / held_out:g}, among the first ten with {10 / held_out:g}."
    )
    if trained.significant and trained.effect.value > 0:
        return guess
    return (
        f"{guess} The positive control fails: training is not shown to raise recall above that of random weights, so "
        "these encoders have learned next to nothing that carries over to held-out prompts, and their comparison says "
        "little about facets."
    )


def _arms(results: Values, metrics: Sequence[str]) -> str:
    names = [*results[metrics[0]]]
    lines = [[arm, *(t_interval(results[metric][arm]).formatted(".3f") for metric in metrics)] for arm in names]
    return f"{table(['arm', *metrics], lines, right={*metrics})}\n\nBrackets are Student's 95 % intervals over seeds."


def _limits() -> str:
    return (
        "## What this cannot say\n\n"
        "- No pretrained weights exist here. An encoder from random weights knows a word only if the 382 training "
        "prompts or their rubrics have it, while words match by themselves in TF-IDF and BM25. What facets are worth "
        "on a pretrained backbone, where the paper measures them, is not measured.\n"
        "- All encoders are trained for few steps on little text; a difference between poolings that needs more "
        "training would not show.\n"
        "- The judge is simulated, and how it learns from examples is assumed. In this world every demand is a phrase "
        "of the prompt, which suits retrieval by words.\n"
        "- Prompts of HealthBench share phrases with their own criteria because authors wrote these for the prompt; "
        "rubrics from elsewhere may share fewer."
    )
