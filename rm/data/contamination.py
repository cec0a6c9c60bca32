"""Contamination: training prompts that also occur in a benchmark, exactly or as near-duplicates."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from ..types import Messages
from .conversation_split import normal_prompt
from .text_style import WORDS, shingles, word_count

FEWEST = 6
"""Minimum number of shingles of a near-duplicate. Shorter texts are similar by chance."""
SHORTEST = FEWEST + WORDS - 1
"""Minimum number of words of a near-duplicate, which corresponds to the minimum number of shingles."""
COMMON, TEMPLATED = 0.5, 10
"""A shingle in more than this share, and more than this number, of a benchmark's prompts belongs to its template."""
BLOCK = 2_000


class Overlap(NamedTuple):
    """A user turn of a prompt that also occurs in a benchmark."""

    row: int
    benchmark: str
    text: str
    """The benchmark's prompt."""
    likeness: float
    """1 if the words and their order are the same, else the similarity that `overlaps` defines."""
    turn: int
    """Index of the user turn within the prompt, from 0."""


def overlaps(
    prompts: Sequence[Messages], benchmarks: Mapping[str, Iterable[str]], near: float = 0.7
) -> Iterator[Overlap]:
    """Yield the prompts with a user turn that also occurs in a benchmark: at most one turn per
    row and benchmark, namely the most similar turn (the first of several that are equally similar).

    Exact: equal without case, punctuation and repeated blanks (`rm.data.conversation_split.normal_prompt`), and not
    blank. Near-duplicate: for the sets of 3-word shingles A (a user turn) and B (a benchmark's prompt), the larger of

        |A ∩ B| / |A ∪ B|   and, where B is a part of a longer turn,   |A ∩ B| / |B|      (resemblance, containment:
        Broder 1997, "On the resemblance and containment of documents")

    is at least `near`, in (0, 1]; both sets need at least 6 shingles (`rm.data.text_style`). Shingles that most prompts
    of a benchmark share belong to its template and are not counted.
    """
    if not 0 < near <= 1:
        raise ValueError(f"near must be in (0, 1], got {near}")
    if not benchmarks:
        return
    users = ([turn["content"] for turn in prompt if turn["role"] == "user"] for prompt in prompts)
    turns = [(row, n, normal_prompt(text)) for row, texts in enumerate(users) for n, text in enumerate(texts)]
    turn_texts = [text for _, _, text in turns]
    shingled = _shingles(turn_texts)
    for name, texts in benchmarks.items():
        benchmark_texts = {normal_prompt(text): text for text in texts}
        overlaps_by_row: dict[int, Overlap] = {}
        others = _shingles(list(benchmark_texts))
        template = _template_columns(others, len(benchmark_texts))
        parts = _drop_columns(shingled, template), list(benchmark_texts), _drop_columns(others, template)
        for turn_index, other, likeness in _similar_texts(turn_texts, *parts, near):
            row, turn, _ = turns[turn_index]
            if row not in overlaps_by_row or likeness > overlaps_by_row[row].likeness:
                overlaps_by_row[row] = Overlap(row, name, benchmark_texts[other], likeness, turn)
        yield from (overlaps_by_row[row] for row in sorted(overlaps_by_row))


def near_duplicates(texts: Sequence[str], references: Sequence[str], near: float = 0.7) -> Iterator[tuple[int, int]]:
    """Yield indices (text, reference) of all equal texts and near-duplicates, as defined by `overlaps`.

    A reference that is a part of a longer text is a near-duplicate; a text that is a part of a longer reference is not.
    """
    normal = [normal_prompt(text) for text in texts]
    indices: dict[str, list[int]] = defaultdict(list)
    for index, text in enumerate(references):
        indices[normal_prompt(text)].append(index)
    for index, other, _ in _similar_texts(normal, _shingles(normal), list(indices), _shingles(list(indices)), near):
        yield from ((index, known_index) for known_index in indices[other])


class Shared(NamedTuple):
    """Contamination counts of one benchmark."""

    benchmark: str
    rows: int
    """Number of rows with a user turn that equals a prompt of the benchmark."""
    prompts: int
    """Number of distinct benchmark prompts in these rows."""
    beginning: int
    """Number of distinct benchmark prompts that equal a row's first user turn, for comparison with published counts."""
    near: int
    """Number of further rows, with a user turn that is a near-duplicate of a benchmark prompt."""


def count_overlaps(overlaps: Iterable[Overlap], benchmarks: Iterable[str]) -> list[Shared]:
    """Count the overlaps per benchmark. Prompts with equal `normal_prompt` count once."""
    of_all, counts = list(overlaps), []
    for name in benchmarks:
        similar = [overlap for overlap in of_all if overlap.benchmark == name]
        same = [overlap for overlap in similar if overlap.likeness == 1]
        prompts = {normal_prompt(overlap.text) for overlap in same}
        beginning = {normal_prompt(overlap.text) for overlap in same if overlap.turn == 0}
        counts.append(Shared(name, len(same), len(prompts), len(beginning), len(similar) - len(same)))
    return counts


def _similar_texts(
    texts: Sequence[str], shingled: sparse.csr_matrix, references: Sequence[str], others: sparse.csr_matrix, near: float
) -> Iterator[tuple[int, str, float]]:
    """Yield (index of the text, reference, similarity) of all equal texts and near-duplicates."""
    same = {*references} - {""}
    yield from ((index, text, 1.0) for index, text in enumerate(texts) if text in same)
    sizes, other_sizes = (np.asarray(matrix.sum(1)).ravel() for matrix in (shingled, others))
    for start in range(0, len(texts), BLOCK):
        shared = (shingled[start : start + BLOCK] @ others.T).tocoo()
        rows = shared.row + start
        both, a, b = shared.data, sizes[rows], other_sizes[shared.col]
        likeness = np.maximum(both / (a + b - both), both / b)
        for column in np.flatnonzero((likeness >= near) & (a >= FEWEST) & (b >= FEWEST)):
            text = references[int(shared.col[column])]
            if texts[rows[column]] != text:
                yield int(rows[column]), text, min(float(likeness[column]), 0.999)


def _template_columns(shingled: sparse.csr_matrix, texts: int) -> np.ndarray:
    """Return the columns of shingles that most texts have."""
    counts = np.asarray(shingled.sum(0)).ravel()
    return np.flatnonzero((counts > COMMON * texts) & (counts >= TEMPLATED))


def _drop_columns(shingled: sparse.csr_matrix, columns: np.ndarray) -> sparse.csr_matrix:
    if not len(columns):
        return shingled
    specific = shingled.copy()
    specific.data[np.isin(specific.indices, columns)] = 0
    specific.eliminate_zeros()
    return specific


def _shingles(texts: Sequence[str]) -> sparse.csr_matrix:
    """Return a binary matrix of shingles [N, 2^22]; a text that is too short to be compared has none."""
    if not texts:
        return sparse.csr_matrix((0, 2**22), dtype=np.float32)
    from sklearn.feature_extraction.text import HashingVectorizer  # its import takes a second, a check without it none

    options = {"n_features": 2**22, "binary": True, "norm": None, "alternate_sign": False, "dtype": np.float32}
    hashed = HashingVectorizer(analyzer=lambda text: shingles(text) if word_count(text) >= SHORTEST else [], **options)
    return sparse.csr_matrix(hashed.transform(texts))
