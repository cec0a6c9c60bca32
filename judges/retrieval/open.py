"""Construction of the sources of retrieved examples and rubrics from the settings."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...rm.types import content_hash, prompt_text
from ..case_rows import unique_ids
from ..rubrics.files import read_collection
from ..types import Case
from .index import TextIndex
from .selection import Collection, Selection
from .settings import LEXICAL, ORACLE, RETRIEVED, SELECTIONS, RetrievalConfig
from .sources import RetrievedExamples, RetrievedRubrics, collection_of


def open_examples(retrieval: RetrievalConfig, examples: Sequence[Case], seed: int) -> RetrievedExamples:
    """Return the source of examples for `--examples`: labelled cases without repetitions."""
    distinct = distinct_cases(examples)
    selection = _selection(retrieval, retrieval.examples, collection_of(distinct), retrieval.shots, seed)
    return RetrievedExamples(selection, distinct)


def distinct_cases(cases: Sequence[Case]) -> list[Case]:
    """Return the cases without repetitions, such as the same cases in several runs. Repeated ids are numbered."""
    distinct = {content_hash([prompt_text(case.prompt), list(case.texts)]): case for case in cases}
    ids = unique_ids(case.id for case in distinct.values())
    return [replace(case, id=name) for case, name in zip(distinct.values(), ids, strict=True)]


def open_rubrics(retrieval: RetrievalConfig, how: str, seed: int) -> RetrievedRubrics:
    """Return the source of rubrics for `--rubric retrieved`, `random` or `oracle`."""
    entries = read_collection(Path(retrieval.rubrics_from))
    collection = Collection([entry.id for entry in entries], [entry.prompt for entry in entries])
    return RetrievedRubrics(_selection(retrieval, how, collection, 1, seed), [entry.rubric for entry in entries])


def _selection(retrieval: RetrievalConfig, how: str, collection: Collection, k: int, seed: int) -> Selection:
    folder = Path(retrieval.retriever_index) if retrieval.retriever_index else None
    texts = collection.ids, collection.prompts
    index = open_index(retrieval.retriever, *texts, folder) if how == RETRIEVED else None
    return Selection(collection, how, k, index=index, seed=seed)


def open_index(retriever: str, ids: Sequence[str], texts: Sequence[str], folder: Path | None = None) -> TextIndex:
    """Return a TF-IDF, BM25 or vector index of a collection. Vectors are stored in `folder` if given."""
    from .lexical import Bm25Index, TfidfIndex

    if retriever in LEXICAL:
        return (TfidfIndex if retriever == "tfidf" else Bm25Index)(ids, texts)
    from .encoder import load_encoder
    from .index import load_or_build_index

    return load_or_build_index(folder, load_encoder(retriever), ids, texts)


def retrieval_notes(retrieval: RetrievalConfig, rubric: str | None) -> list[str]:
    """Return notes for the report on the judge's retrieved rubrics and examples."""
    method = {RETRIEVED: f" by {Path(retrieval.retriever).name}", ORACLE: " (these are of the case's own prompt)"}
    notes = []
    if retrieval.examples:
        sources, by = ", ".join(retrieval.examples_from), method.get(retrieval.examples, "")
        notes.append(
            f"Up to {retrieval.shots} {retrieval.examples} examples{by} from {sources} are shown with each case."
        )
    if rubric in SELECTIONS:
        notes.append(f"Rubrics are {rubric}{method.get(str(rubric), '')} from {retrieval.rubrics_from}.")
    return notes
