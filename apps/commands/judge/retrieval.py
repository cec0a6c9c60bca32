"""Settings of the examples and rubrics that a judge retrieves, and the sources made from them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....judges.case_rows import unique_ids
from ....judges.retrieval.index import Index
from ....judges.retrieval.selection import ORACLE, RETRIEVED, SELECTIONS, Collection, Selection
from ....judges.retrieval.sources import RetrievedExamples, RetrievedRubrics, collection_of
from ....judges.types import Case
from ....rm.errors import UsageError
from ....rm.registry.settings import AT_LEAST_1, Rule, Settings, given, setting
from ....rm.types import content_hash, prompt_text
from ...runs.tables import ITEMS, read_items
from ..rubrics.files import read_collection
from .records import CaseFile
from .settings import JudgeConfig

LEXICAL = ("tfidf", "bm25")


@dataclass
class RetrievalConfig(Settings):
    """Settings of what a judge retrieves: labelled examples, and rubrics of similar prompts."""

    rules = (Rule(lambda given: given.examples and not given.examples_from, "--examples_from is missing"),)
    examples: str = setting(
        "",
        "Labelled cases to show with each case; oracle shows its own.",
        group="Retrieved examples and rubrics",
        choices=SELECTIONS,
    )
    examples_from: list[str] = setting(
        [], "Files as for --data, or run folders; only oracle shows near-duplicates of the case.", requires="examples"
    )
    shots: int = setting(3, "Number of examples for each case.", range=AT_LEAST_1)
    rubrics_from: str = setting("", "For --rubric retrieved, random or oracle: a .jsonl of rubrics with prompts.")
    retriever: str = setting("tfidf", "tfidf, bm25, or the folder of an encoder of rewardlab retriever.")
    retriever_index: str = setting(
        "",
        "Folder in which the vectors of the collection are stored, for an encoder and one collection; by default they "
        "are computed in each run.",
        advanced=True,
    )

    def validate(self, rubric: str | None = None) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another; `rubric` is the judge's."""
        super().validate()
        if rubric in SELECTIONS:
            given("rubrics_from", self.rubrics_from)
        elif self.rubrics_from:
            raise UsageError("--rubrics_from is read for --rubric retrieved, random or oracle; give one of them")
        self._check_retriever(RETRIEVED in (self.examples, rubric), self.examples == rubric == RETRIEVED)

    def _check_retriever(self, used: bool, two: bool) -> None:
        lexical = self.retriever in LEXICAL
        if used:
            check_retriever(self.retriever)
        if self.retriever_index and (lexical or not used):
            raise UsageError("--retriever_index stores the vectors of a --retriever that is an encoder; leave it out")
        if self.retriever_index and two:
            raise UsageError("--retriever_index is for one collection, and examples and rubrics are two; leave it out")

    @property
    def files(self) -> list[str]:
        """Return the files that the judgments depend on."""
        tables = [str(Path(path) / ITEMS) if Path(path).is_dir() else path for path in self.examples_from]
        return [*tables, *filter(None, [self.rubrics_from])]

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the result, where anything is retrieved."""
        used = self.examples or self.rubrics_from
        return {name: value for name, value in vars(self).items() if name != "retriever_index"} if used else {}


def check_retriever(retriever: str) -> None:
    """Raise a `UsageError` for what `open_index` cannot open."""
    if retriever not in LEXICAL and not Path(retriever).is_dir():
        raise UsageError(f"--retriever is {', '.join(LEXICAL)} or a folder with an encoder, got '{retriever}'")


def open_examples(retrieval: RetrievalConfig, config: JudgeConfig) -> RetrievedExamples | None:
    """Return the source of examples; None without `--examples`."""
    if not retrieval.examples:
        return None
    labelled = _unique([case for path in retrieval.examples_from for case in _labelled(path, config)])
    chosen = _selection(retrieval, retrieval.examples, collection_of(labelled), retrieval.shots, config.seed)
    return RetrievedExamples(chosen, labelled)


def _labelled(path: str, config: JudgeConfig) -> list[Case]:
    if Path(path).is_dir():
        return read_items(Path(path))
    return CaseFile(config.objective, config.on_bad_row).cases([path])[0]


def _unique(cases: Sequence[Case]) -> list[Case]:
    """Return the cases without repetitions, as in several runs on the same data; a repeated id gets a number."""
    distinct = {content_hash([prompt_text(case.prompt), list(case.answers)]): case for case in cases}
    ids = unique_ids(case.id for case in distinct.values())
    return [replace(case, id=name) for case, name in zip(distinct.values(), ids, strict=True)]


def open_retrieved_rubrics(retrieval: RetrievalConfig, config: JudgeConfig) -> RetrievedRubrics:
    """Return the source of rubrics for `--rubric retrieved`, `random` or `oracle`."""
    entries = read_collection(Path(retrieval.rubrics_from))
    collection = Collection([entry.id for entry in entries], [entry.prompt for entry in entries])
    chosen = _selection(retrieval, str(config.rubric), collection, 1, config.seed)
    return RetrievedRubrics(chosen, [entry.rubric for entry in entries])


def _selection(retrieval: RetrievalConfig, how: str, collection: Collection, k: int, seed: int) -> Selection:
    folder = Path(retrieval.retriever_index) if retrieval.retriever_index else None
    named = collection.ids, collection.prompts
    index = open_index(retrieval.retriever, *named, folder) if how == RETRIEVED else None
    return Selection(collection, how, k, index=index, seed=seed)


def open_index(retriever: str, ids: Sequence[str], texts: Sequence[str], folder: Path | None = None) -> Index:
    """Return the index of a collection: TF-IDF, BM25, or the vectors of an encoder's folder, stored in `folder`."""
    from ....judges.retrieval.lexical import Bm25Index, TfidfIndex

    if retriever in LEXICAL:
        return (TfidfIndex if retriever == "tfidf" else Bm25Index)(ids, texts)
    from ....judges.retrieval.encoder import load_encoder
    from ....judges.retrieval.index import indexed

    return indexed(folder, load_encoder(retriever), ids, texts)


def retrieval_notes(retrieval: RetrievalConfig, rubric: str | None) -> list[str]:
    """Return what a reader of the report must know."""
    way = {RETRIEVED: f" by {Path(retrieval.retriever).name}", ORACLE: " (these are of the case's own prompt)"}
    notes = []
    if retrieval.examples:
        source = ", ".join(retrieval.examples_from)
        notes.append(
            f"Up to {retrieval.shots} {retrieval.examples} examples{way.get(retrieval.examples, '')} from {source} are "
            "shown with each case."
        )
    if rubric in SELECTIONS:
        notes.append(f"Rubrics are {rubric}{way.get(str(rubric), '')} from {retrieval.rubrics_from}.")
    return notes
