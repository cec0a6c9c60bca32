"""Definitions of the metrics that the tabs show, and links from a number to the cases behind it."""

from collections.abc import Collection, Iterable, Sequence
from html import escape
from urllib.parse import urlencode

from ....rm.types import OVERALL

METRICS = {
    "overall": "Accuracy over the benchmark as its authors aggregate it: the share of cases in which the model scores "
    "the right response highest.",
    "gain": "Overall accuracy minus that of the best baseline on the same cases, in points, with its 95 % interval. "
    "Faint: not significant.",
    "rank": "Models of one rank do not differ significantly from the rank's first on their common cases (5 %, "
    "adjusted by Holm's method). Baselines and references have no rank here; `rewardlab board` ranks them too.",
    "gap": "Accuracy minus that of the best baseline in this section, on the same cases, with its 95 % interval. The "
    "link lists cases that the scorer gets wrong and a baseline gets right.",
    "section": "Accuracy over one section of the benchmark, aggregated as its authors do.",
    "accuracy": "Share of cases in which the right response has the highest score, with its 95 % interval.",
    "cases": "Number of cases in this section or subset.",
    "role": "model: evaluated; reference: a model for comparison, such as a gold reward; baseline: never reads the "
    "prompt.",
    "scored": "Cases for which the scorer gave scores.",
    "ties": "Cases in which two responses have the same score. A tie is not right.",
    "unscored": "Abstentions: cases for which the scorer gave no score. The accuracy does not count them.",
    "difference": "Accuracy of the second scorer minus that of the first on the same cases, in points, with its "
    "interval from paired bootstrap samples of whole prompts. Bold: significant.",
    "p": "Two-sided p-value of the difference, from the spread of paired bootstrap samples of whole prompts. "
    "The p-values of subsets are adjusted by Holm's method.",
    "margin": "Lowest score of a right response minus highest score of a wrong response: above 0 is right, 0 a tie.",
    "change": "Margin of the second scorer minus margin of the first.",
    "calibration error": "Mean distance between the probability of being right according to margins, σ(|margin|), and "
    "the share of right judgments, over ten bins of the probability. 0 is best.",
    "score against length": "Mean score of responses of similar length over all prompts, with its standard error. A "
    "larger point stands for more responses.",
    "context sensitivity": "How much the next-token probabilities vary with the context, summed over the vocabulary. "
    "If this is far below the value of the base model, the guide nearly ignores its context.",
    "entropy": "Mean entropy of the next token, in nats. High: undecided; near 0: always the same text.",
    "length correlation": "Correlation of the difference in reward with the difference in length in tokens. Near 1 or "
    "-1, the reward measures little but length.",
    "accuracy without length": "Accuracy after removing the part of the reward that length explains.",
    "pairs": "Pairs with a preference for the objective.",
    "reward": "Mean over completions of the weighted sum of rewards that the policy is trained on.",
    "components": "Mean over completions of each reward before weighting. Dashed: only watched, not trained on.",
    "proxy and gold": "The training reward beside rewards that are only watched, each in standard deviations from "
    "its mean over the run. Where they diverge, the training reward is over-optimised.",
    "training loss": "Mean loss of the batches since the previous log entry, or of the held-out pairs.",
    "training accuracy": "Share of pairs whose chosen response has the higher reward: of those trained on since the "
    "previous log entry, or of the held-out pairs.",
    "training margin": "Mean reward of the chosen minus that of the rejected response: of the pairs trained on since "
    "the previous log entry, or of the held-out pairs.",
    "KL": "Divergence of the policy from the reference policy, in nats per completion. Shaded: plus and minus one "
    "standard error.",
    "length": "Mean number of tokens of a completion.",
    "change over the run": "Mean over the last tenth of the steps (1 to 20 steps) minus mean over the first tenth, "
    "with the standard error of the difference, as if steps were independent.",
}
"""Metric -> definition, which the page shows when the name is hovered over, focused or touched."""
SECTION = "section:"
"""Prefix of values of the filter `subset` in the judgments tab that select all subsets of a section."""


def metric_html(name: str, label: str = "") -> str:
    """Return a metric's name as a button that shows the definition."""
    return f'<button type="button" class="metric" {definition(name)}>{escape(label or name)}</button>'


def definition(name: str) -> str:
    """Return the attribute that holds the definition of a metric."""
    return f'data-definition="{escape(METRICS[name])}"'


def header_row(names: Sequence[str], words: Collection[int] = ()) -> str:
    """Return the header row of a table. `names` are HTML, and `words` are the indices of text columns.

    >>> header_row(["case", "p"], words={0})
    '<tr><th scope="col" class="words">case</th><th scope="col">p</th></tr>'
    """
    marks = (' class="words"' if index in words else "" for index in range(len(names)))
    cells = (f'<th scope="col"{mark}>{name}</th>' for mark, name in zip(marks, names, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def row_html(cells: Sequence[str], words: Collection[int] = (), kind: str = "") -> str:
    """Return a row whose first cell is its name. Cells are HTML; a complete `<td>` element is kept unchanged.

    >>> row_html(["case", "1", "<td>2</td>"], words={1})
    '<tr><th scope="row">case</th><td class="words">1</td><td>2</td></tr>'
    """
    marks = (' class="words"' if index in words else "" for index in range(1, len(cells)))
    columns = (
        cell if cell[:3] == "<td" else f"<td{mark}>{cell}</td>" for cell, mark in zip(cells[1:], marks, strict=True)
    )
    named = f' class="{kind}"' if kind else ""
    return f'<tr{named}><th scope="row">{cells[0]}</th>{"".join(columns)}</tr>'


def table_html(
    heads: Sequence[str], rows: Iterable[str | Sequence[str]], words: Collection[int] = (), name: str = ""
) -> str:
    """Return an HTML table from header names and rows. A row is HTML or a sequence of cells.

    `words` are indices of text columns, `name` is the id.
    """
    lines = (row if isinstance(row, str) else row_html(row, words) for row in rows)
    named = f' id="{name}"' if name else ""
    return f"<table{named}><thead>{header_row(heads, words)}</thead><tbody>{''.join(lines)}</tbody></table>"


def cases_query(run: str, scorer: str, **filters: str) -> str:
    """Return the URL query for a run's cases in the judgments tab with these filters.

    >>> cases_query("a/b", "rm", subset="x & y")
    '?tab=judgments&run=a%2Fb&scorer=rm&subset=x+%26+y'
    """
    return "?" + urlencode({"tab": "judgments", "run": run, "scorer": scorer, **filters})


def section_filter(area: str) -> dict[str, str]:
    """Return the filter of the judgments tab that selects the cases of a section, or all cases for `overall`."""
    return {} if area == OVERALL else {"subset": f"{SECTION}{area}"}


def results_query(run: str, scorer: str = "") -> str:
    """Return the URL query for a run in the benchmarks tab.

    >>> results_query("eval", "rm")
    '?tab=benchmarks&run=eval&scorer=rm'
    """
    return "?" + urlencode({"tab": "benchmarks", "run": run} | ({"scorer": scorer} if scorer else {}))


def link_html(address: str, content: str, title: str = "") -> str:
    """Return HTML as a link, with a tooltip."""
    tooltip = f' title="{escape(title)}"' if title else ""
    return f'<a href="{escape(address)}"{tooltip}>{content}</a>'
