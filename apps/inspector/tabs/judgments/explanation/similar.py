"""Similar cases: cases of the same run with the most similar prompts, and the chosen scorer's judgments."""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ......judges.retrieval.index import TextIndex, search
from .....runs.tables import ITEMS
from ....html import number, pill, text_html
from ....run_list import stamp
from ...metrics import cases_query, link_html, table_html
from ..index import ITEM_TABLE
from ..index import index as tables_of
from ..queries import Filter, Line, Run, lines

MOST = 8
"""Number of similar cases that are shown."""


class Similar(NamedTuple):
    """A similar case, and the similarity of its prompt to the prompt of the displayed case."""

    line: Line
    similarity: float


def similar_cases(run: Run, scorer: str, case: str, retriever: str) -> list[Similar]:
    """Return the other cases of the run with the most similar prompts, the most similar first."""
    prompts, prompt_index = _prompt_index(run.folder, stamp(run.folder, (ITEMS,)), retriever)
    others = np.array([[name != case for name in prompt_index.ids]])
    (hits,) = search(prompt_index, [prompts[case]], MOST, others)
    judged = lines(run, Filter(scorer, among=[hit.id for hit in hits]), 0, MOST)
    by_case = {line.case: line for line in judged}
    return [Similar(by_case[hit.id], hit.score) for hit in hits if hit.id in by_case]


@lru_cache(maxsize=2)
def _prompt_index(folder: Path, _stamp: Any, retriever: str) -> tuple[dict[str, str], TextIndex]:
    """Return the prompts of a run by case, and their index."""
    from ......judges.retrieval.open import open_index

    prompts = dict(tables_of(folder).query(f'SELECT "case"::VARCHAR, prompt::VARCHAR FROM {ITEM_TABLE}'))
    return prompts, open_index(retriever, [*prompts], [*prompts.values()])


def similar_html(run: str, scorer: str, similar: list[Similar]) -> str:
    """Return similar cases as an HTML table with links to the cases."""
    if not similar:
        return '<p class="faint">This run has no other case that this scorer judged.</p>'
    heads = ["Similarity", "Case", "Subset", "Outcome", "Margin", "Prompt"]
    rows = (
        [
            f"{similarity:.2f}",
            link_html(cases_query(run, scorer, item=line.case), text_html(line.case, 100)),
            *(text_html(line.subset, 100), pill(line.outcome), number(line.margin), text_html(line.prompt)),
        ]
        for line, similarity in similar
    )
    return table_html(heads, rows, words={1, 2, 3, 5})
