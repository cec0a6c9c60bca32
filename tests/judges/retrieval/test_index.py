import json
import math

import numpy as np
import pytest
import torch
from rewardlab.judges.retrieval.encoder import new_encoder
from rewardlab.judges.retrieval.index import Hit, VectorIndex, load_index, load_or_build_index, search, similarities
from rewardlab.judges.retrieval.lexical import Bm25Index, TfidfIndex
from rewardlab.judges.retrieval.pooling import similarity
from rewardlab.judges.retrieval.settings import EncoderSettings
from rewardlab.rm.errors import DataError
from sklearn.metrics.pairwise import cosine_similarity

TEXTS = ["the bees like roses", "bees bees winter", "mulch in winter", "the pond"]
IDS = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def encoder():
    settings = EncoderSettings(facets=2, width=8, max_length=32)
    return new_encoder(settings, None, TEXTS * 9, hidden=16, layers=1, vocabulary=300)


class Given:
    """An index whose scores are given."""

    contract = "given"

    def __init__(self, ids, scores):
        self.ids, self.given = ids, np.array(scores)

    def scores(self, queries):
        return self.given[: len(queries)]


def test_hits_are_the_best_first_of_those_allowed_and_ties_keep_their_order():
    index = Given(IDS, [[0.1, 0.5, 0.5, 0.9], [0.2, 0.2000001, 0.1, 0.2]])
    first, second = search(index, ["x", "y"], 3)
    assert [hit.id for hit in first] == ["d", "b", "c"] and first[0] == Hit("d", 0.9)
    assert [hit.id for hit in second] == ["a", "b", "d"]  # equal after rounding
    index = Given(IDS, [[0.1, 0.5, 0.5, 0.9]])
    allowed = np.array([[True, False, True, False]])
    assert [hit.id for hit in search(index, ["x"], 3, allowed)[0]] == ["c", "a"]
    assert search(index, ["x"], 3, np.zeros((1, 4), bool)) == [[]]


def test_bm25_and_tfidf_by_hand():
    """4 texts of 4, 3, 3 and 2 words, 3 in the mean; 'bees' is in two of them, once and twice."""
    found = Bm25Index(IDS, TEXTS, k1=1.2, b=0.75).scores(["bees", "Bees pond bees", "none"])
    idf = {"bees": math.log(1 + 2.5 / 2.5), "pond": math.log(1 + 3.5 / 1.5)}
    a = idf["bees"] * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 4 / 3))
    b = idf["bees"] * 2 * 2.2 / (2 + 1.2)
    d = idf["pond"] * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / 3))
    np.testing.assert_allclose(found, [[a, b, 0, 0], [2 * a, 2 * b, 0, d], [0, 0, 0, 0]])
    texts = ["x y", "x x"]
    found = TfidfIndex(["1", "2"], texts).scores(["y x"])
    y = math.log(3 / 2) + 1  # smooth idf; that of x is 1
    row, double = np.array([[1.0, y]]), np.array([[1.0 + math.log(2), 0.0]])
    np.testing.assert_allclose(found[0], [1.0, cosine_similarity(row, double)[0, 0]])


def test_the_contract_of_a_collection_changes_with_its_texts_and_one_without_words_has_no_scores():
    for kind in [TfidfIndex, Bm25Index]:
        contracts = {kind(IDS, TEXTS).contract, kind(IDS, TEXTS[::-1]).contract, kind(IDS[::-1], TEXTS).contract}
        assert len(contracts) == 3 and kind(IDS, TEXTS).contract in contracts
    for kind in [TfidfIndex, Bm25Index]:
        assert kind(["1", "2"], ["?", "!!"]).scores(["bees", "?"]).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(DataError, match="no text to retrieve"):
        TfidfIndex([], [])
    with pytest.raises(DataError, match="the id 'a' occurs twice"):
        Bm25Index(["a", "a"], ["x", "y"])


def test_scores_are_the_similarity_of_the_encoder(encoder):
    vectors = encoder.embed(TEXTS)
    for how in ["mean", "max"]:
        expected = similarity(torch.from_numpy(vectors[:2]), torch.from_numpy(vectors), how).numpy()
        np.testing.assert_allclose(similarities(vectors[:2], vectors, how), expected, atol=1e-6)
    hits = search(VectorIndex(encoder, IDS, TEXTS), TEXTS, 1)
    assert [hit[0].id for hit in hits] == IDS, "a text is most similar to itself"
    assert all(hit[0].score == pytest.approx(1, abs=1e-4) for hit in hits)


def test_a_saved_index_gives_the_same_scores_without_encoding_again(encoder, tmp_path, monkeypatch):
    index = load_or_build_index(tmp_path, encoder, IDS, TEXTS)
    expected = index.scores(["bees"])
    queries = encoder.embed(["bees"])
    embedded = []
    monkeypatch.setattr(encoder, "embed", lambda texts, **_: embedded.append(list(texts)) or queries)
    again = load_or_build_index(tmp_path, encoder, IDS, TEXTS)
    np.testing.assert_array_equal(again.scores(["bees"]), expected)
    assert embedded == [["bees"]] and again.contract == index.contract and again.texts == TEXTS


def test_a_text_may_hold_any_line_separator(encoder, tmp_path):
    texts = ["roses\u2028and tulips", "NEL\x85here", "\r\n\x0b\x0c\x1c", "\u2029"]
    load_or_build_index(tmp_path, encoder, IDS, texts)
    assert load_index(tmp_path, encoder).texts == texts


def test_an_index_that_is_damaged_or_of_another_encoder_or_collection_is_refused(encoder, tmp_path):
    load_or_build_index(tmp_path, encoder, IDS, TEXTS)
    other = new_encoder(encoder.settings, None, TEXTS * 9, seed=1, hidden=16, layers=1, vocabulary=300)
    with pytest.raises(DataError, match="made by another encoder"):
        load_index(tmp_path, other)
    with pytest.raises(DataError, match="the index of another collection"):
        load_or_build_index(tmp_path, encoder, IDS, TEXTS[::-1])
    rows = (tmp_path / "texts.jsonl").read_text().splitlines()
    texts = {"changed": [json.dumps({"id": "a", "text": "other words"}), *rows[1:]], "cut": rows[:-1]}
    damages = {f"{name}/texts.jsonl": "\n".join(lines) + "\n" for name, lines in texts.items()}
    for place, content in {**damages, "torn/vectors.safetensors": "torn", "facts/index.json": "{}"}.items():
        folder = tmp_path / place.partition("/")[0]
        load_or_build_index(folder, encoder, IDS, TEXTS)
        (tmp_path / place).write_text(content)
        with pytest.raises(DataError, match="have changed since they were saved|no index of texts"):
            load_index(folder, encoder)
