"""A part of a benchmark's cases, in proportion to its subsets."""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from ..judges.types import Case
from .types import PART


def stratified(cases: Sequence[Case], limit: int | None) -> tuple[list[Case], list[str]]:
    """Return at most `limit` cases in their order, and a note that they are a part of the benchmark.

    Of each subset of n cases it takes ⌈n t⌉, with one t for all subsets, as far as the limit goes; those whose ids have
    the smallest hashes. So the cases depend on ids and subsets alone, and those of a smaller limit are among them.
    """
    if limit is None or limit >= len(cases):
        return list(cases), []
    sizes, ranks = Counter(case.subset for case in cases), Counter[str]()
    order = []
    for digest, index in sorted((sha256(case.id.encode()).hexdigest(), index) for index, case in enumerate(cases)):
        subset = cases[index].subset
        order.append((ranks[subset] / sizes[subset], digest, index))
        ranks[subset] += 1
    kept = sorted(index for *_, index in sorted(order)[:limit])
    note = f"{PART}: {limit} of {len(cases)} cases (--limit), in proportion to the subsets."
    return [cases[index] for index in kept], [note]
