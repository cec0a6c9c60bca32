"""Report of the study: rewards of the best completions beside those of random ones, and texts."""

from collections.abc import Mapping, Sequence

import numpy as np

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._runs.job_cache import Arrays
from .._runs.sampled import best_of_all, selection_gains
from ..pretrained_guides.texts import OBJECTIVES
from ..pretrained_policies.report import table_cell

SCORER, HELD_OUT, LENGTHS = "scorer", "held_out", "length"


def text(plan: str, best: Arrays, gaps: Mapping[str, np.ndarray], prompts: Sequence[str]) -> str:
    """Return the report in Markdown; `gaps` are those of the reward models on held-out pairs."""
    accuracies = [
        [name, t_interval((gap > 0).astype(float)).formatted(".3f"), str(len(gap))] for name, gap in gaps.items()
    ]
    number, n = best[SCORER].shape
    parts = [
        "# Best of 8 on SmolLM2-135M-Instruct",
        plan,
        table(["reward model", "accuracy on held-out pairs", "pairs"], accuracies),
        "## The best beside a random completion",
        _selected(best),
        f"Differences between the best by the scorer and a random completion of the same prompt, {number} prompts with "
        f"{n} completions each: rewards in standard deviations within a prompt, and characters; means over prompts "
        "with Student's 95 % interval.",
        "## Expected gains in the held-out reward",
        _expected(best),
        f"Expected gain of the best of {n} over the mean completion, in the same unit.",
        f"Mean length of all completions: {best['tokens'].mean():.1f} tokens; correlation of the rewards within a "
        f"prompt: {_correlation(best, SCORER, HELD_OUT):+.2f} (scorer and held-out), "
        f"{_correlation(best, SCORER, LENGTHS):+.2f} (scorer and length), "
        f"{_correlation(best, HELD_OUT, LENGTHS):+.2f} (held-out and length).",
        "## Texts",
        _side_by_side(best, prompts),
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _scale(best: Arrays, name: str) -> float:
    """Return the standard deviation of a reward within a prompt, over all prompts; 1 for characters."""
    return 1.0 if name == LENGTHS else float(np.sqrt(best[name].var(axis=1, ddof=1).mean())) or 1.0


def _selected(best: Arrays) -> str:
    rows, kinds = [], best["selected"] % len(OBJECTIVES)  # prompts of both objectives in turn
    parts = {"all": kinds >= 0, **{f"of {name} pairs": kinds == index for index, name in enumerate(OBJECTIVES)}}
    for part, of_part in parts.items():
        gains = {name: selection_gains(best, name)[of_part] / _scale(best, name) for name in (SCORER, HELD_OUT)}
        characters = t_interval(selection_gains(best, LENGTHS)[of_part]).formatted("+.1f")
        rows.append([part, str(of_part.sum()), *(t_interval(v).formatted() for v in gains.values()), characters])
    return table(["prompts", "number", "scorer", "held-out", "characters"], rows)


def _expected(best: Arrays) -> str:
    rows = [
        [name, best_of_all(best, name, HELD_OUT).formatted(scale=1 / _scale(best, HELD_OUT))]
        for name in (SCORER, LENGTHS, HELD_OUT)
    ]
    return table(["best by", "held-out"], rows)


def _correlation(best: Arrays, first: str, second: str) -> float:
    both = [(best[name] - best[name].mean(axis=1, keepdims=True)).ravel() for name in (first, second)]
    return float(np.corrcoef(both)[0, 1])


def _side_by_side(best: Arrays, prompts: Sequence[str], number: int = 6) -> str:
    rows = [
        [table_cell(prompts[row]), *(table_cell(best["texts"][row, best[key][index]]) for key in ("best", "random"))]
        for index, row in enumerate(best["selected"][:number])
    ]
    return table(["prompt", "best by the scorer", "random"], rows)


LIMITS = """## Limits

- One language model of 135 million parameters with 4-bit weights; completions are cut at 48 tokens.
- Both reward models are MiniLM on pairs of the same sources: the held-out one shares what those sources have in common.
- The held-out reward model agrees with held-out labels as the table says: a gain is what it counts, not what people
  prefer."""
