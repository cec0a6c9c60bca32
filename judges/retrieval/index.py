"""Exact search over a collection of texts: a common interface, and an index of vectors on disk."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from ...rm.errors import UNREADABLE, DataError
from ...rm.io.checked_files import from_json, from_json_lines
from ...rm.types import content_hash

if TYPE_CHECKING:
    from .encoder import FacetEncoder

VECTORS, TEXTS, FACTS = "vectors.safetensors", "texts.jsonl", "index.json"
DIGITS = 5
"""Digits to which similarities are rounded, so that rounding errors of the encoder do not change the ranking."""
BLOCK = 1024


class TextIndex(Protocol):
    """A collection of N texts with ids, and the similarity of each query to each text."""

    ids: Sequence[str]
    contract: str
    """Hash of the search method, its settings and the collection."""

    def scores(self, queries: Sequence[str]) -> Float[np.ndarray, "Q N"]:
        """Return the similarity of each query to each text. Higher is more similar."""
        ...


class Hit(NamedTuple):
    """A search result: a text and its similarity to the query."""

    id: str
    score: float


def search(
    index: TextIndex, queries: Sequence[str], k: int, allowed: Bool[np.ndarray, "Q N"] | None = None
) -> list[list[Hit]]:
    """Return the k most similar texts of each query, best first.

    Texts of equal similarity (5 digits) keep their order. Fewer than k are returned if fewer are allowed.
    """
    hits = []
    for start in range(0, len(queries), BLOCK):
        scores = np.round(index.scores(queries[start : start + BLOCK]), DIGITS)
        for row, values in enumerate(scores, start):
            permitted = np.arange(len(values)) if allowed is None else np.flatnonzero(allowed[row])
            order = permitted[np.argsort(-values[permitted], kind="stable")[:k]]
            hits.append([Hit(index.ids[position], float(values[position])) for position in order])
    return hits


def collection_hash(ids: Sequence[str], texts: Sequence[str]) -> str:
    """Return the hash of a collection. Raise `DataError` if it is empty or repeats an id."""
    if not ids:
        raise DataError("the collection has no text to retrieve")
    if len({*ids}) < len(ids):
        repeated = next(name for name in ids if list(ids).count(name) > 1)
        raise DataError(f"the id '{repeated}' occurs twice in the collection; give each text a unique id")
    return content_hash([[*ids], [*texts]])


class VectorIndex:
    """Index of texts by the facet vectors of an encoder. Scores are `pooling.similarity`, computed for all texts."""

    def __init__(
        self, encoder: "FacetEncoder", ids: Sequence[str], texts: Sequence[str], vectors: np.ndarray | None = None
    ):
        self.ids: Sequence[str] = list(ids)
        self.encoder, self.texts = encoder, list(texts)
        self.collection = collection_hash(ids, texts)
        self.vectors = encoder.embed(texts) if vectors is None else vectors
        self.contract = content_hash(["encoder", encoder.contract, self.collection])

    def scores(self, queries: Sequence[str]) -> Float[np.ndarray, "Q N"]:
        """See `TextIndex`."""
        return similarities(self.encoder.embed(queries), self.vectors, self.encoder.settings.similarity)

    def save(self, folder: Path) -> None:
        """Save vectors, texts and hashes, without the encoder."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"vectors": self.vectors}, folder / VECTORS)
        lines = [{"id": name, "text": text} for name, text in zip(self.ids, self.texts, strict=True)]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / TEXTS).write_text(text, encoding="utf-8")
        facts = {"encoder": self.encoder.contract, "collection": self.collection, "texts": len(self.ids)}
        (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def similarities(
    queries: Float[np.ndarray, "Q F W"], vectors: Float[np.ndarray, "N F W"], how: str
) -> Float[np.ndarray, "Q N"]:
    """Compute `pooling.similarity` of stored vectors. A mean over facets is one product of flattened vectors."""
    if how == "mean":
        return queries.reshape(len(queries), -1) @ vectors.reshape(len(vectors), -1).T / vectors.shape[1]
    by_facet = [queries[:, facet] @ vectors[:, facet].T for facet in range(vectors.shape[1])]
    return np.maximum.reduce(by_facet)


def load_index(folder: Path, encoder: "FacetEncoder") -> VectorIndex:
    """Load a saved index. Raise `DataError` for another encoder, or if vectors and texts do not match."""
    try:
        facts = from_json((folder / FACTS).read_text(encoding="utf-8"))
        rows = from_json_lines((folder / TEXTS).read_text(encoding="utf-8"))
        vectors = load_file(folder / VECTORS)["vectors"]
        ids, texts = [row["id"] for row in rows], [row["text"] for row in rows]
        made_by, collection = facts["encoder"], facts["collection"]
    except (*UNREADABLE, SafetensorError) as error:
        raise DataError(f"{folder}: no index of texts ({error}); delete the folder to rebuild it") from error
    if made_by != encoder.contract:
        raise DataError(
            f"{folder}: made by another encoder (contract {made_by}, this encoder has {encoder.contract}); name that "
            "encoder, or delete the folder"
        )
    facets = 1 if encoder.settings.pooling == "mean" else encoder.settings.facets
    if vectors.shape != (len(ids), facets, encoder.settings.width) or collection_hash(ids, texts) != collection:
        raise DataError(
            f"{folder}: vectors and texts have changed since they were saved; delete the folder to rebuild it"
        )
    return VectorIndex(encoder, ids, texts, vectors)


def load_or_build_index(
    folder: Path | None, encoder: "FacetEncoder", ids: Sequence[str], texts: Sequence[str]
) -> VectorIndex:
    """Load the index of a collection from the folder, or build it. A new index is saved if a folder is given."""
    if folder is None:
        return VectorIndex(encoder, ids, texts)
    if (folder / FACTS).exists():
        index = load_index(folder, encoder)
        if index.collection != collection_hash(ids, texts):
            raise DataError(f"{folder}: the index of another collection; name another folder, or delete this one")
        return index
    index = VectorIndex(encoder, ids, texts)
    index.save(folder)
    return index
