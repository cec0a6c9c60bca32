"""Report of the study: pass rates before and after, the curve of the training, and texts."""

import numpy as np
from matplotlib.figure import Figure

from ....benchmarks.report import table
from ...statistics.estimates import t_interval
from .._runs import checked_requests
from .._runs.checked_requests import pass_shares
from .._runs.job_cache import Arrays
from ..pretrained_policies.report import figure as curves_figure
from ..pretrained_policies.report import table_cell


def text(plan: str, before: np.ndarray, after: np.ndarray, curve: Arrays) -> str:
    """Return the report in Markdown; completions [P, S + 1] are greedy in the first column."""
    quarter = max(1, len(curve["reward"]) // 4)
    first, last = (part.mean() for part in (curve["reward"][:quarter], curve["reward"][-quarter:]))
    parts = [
        "# GRPO with a verifiable reward on SmolLM2-135M-Instruct",
        plan,
        _pass_rates(before, after),
        "Share of completions that do what the request says; means over requests with Student's 95 % interval. "
        "Changes are paired by request.",
        f"In training the pass rate was {first:.2f} in the first {quarter} steps and {last:.2f} in the last; the KL to "
        f"the start policy ended at {curve['watch/kl'][-quarter:].mean():.2f} nats a completion, the length at "
        f"{curve['completions/mean_length'][-quarter:].mean():.1f} tokens.",
        "![Curves](curves.png)",
        "## Texts",
        _examples(before, after),
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _pass_rates(before: np.ndarray, after: np.ndarray) -> str:
    """Return the pass rates of greedy and sampled completions, and of all by kind of request."""
    rows, passed = _requests(before), (pass_shares(before), pass_shares(after))
    kinds = np.array([row["kind"] for row in rows])
    parts = {"all, greedy": [shares[:, 0] for shares in passed], "all, sampled": [s[:, 1:].mean(1) for s in passed]}
    parts |= {kind: [shares[kinds == kind].mean(1) for shares in passed] for kind in dict.fromkeys(kinds.tolist())}
    cells = [
        [name, *(t_interval(part).formatted(".3f") for part in both), t_interval(both[1] - both[0]).formatted("+.3f")]
        for name, both in parts.items()
    ]
    return table(["requests", "before", "after", "change"], cells)


def _examples(before: np.ndarray, after: np.ndarray, number: int = 4) -> str:
    """Return the first requests of each kind with their greedy completions before and after."""
    rows, cells = _requests(before), []
    for kind in checked_requests.CHECKS:
        for index in [index for index, row in enumerate(rows) if row["kind"] == kind][:number]:
            cells.append([table_cell(text) for text in (rows[index]["prompt"], before[index, 0], after[index, 0])])
    return table(["request", "before", "after"], cells)


def _requests(texts: np.ndarray) -> list[dict[str, str]]:
    return checked_requests.requests(held_out=True)[: len(texts)]


def figure(curve: Arrays) -> Figure:
    """Plot pass rate, KL and length over the steps."""
    return curves_figure({"GRPO": curve})


LIMITS = """## Limits

- One language model of 135 million parameters with 4-bit weights, one seed; 40 steps of 16 completions are little.
- Held-out requests are of five kinds that training has too; only their topics are new."""
