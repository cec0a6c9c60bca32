"""Linear reward model on the completion's words and length. It ignores the prompt and trains in seconds."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer

from ...contract.scoring_contract import ScoringContract, load_contract
from ...errors import UNREADABLE, DataError, UsageError
from ...io.checked_files import from_json
from ...types import OVERALL, Example, PreferencePair, WordTerms
from .._pairwise_logistic import pairwise_logistic

VOCABULARY, WEIGHTS = "vocabulary.json", "linear.safetensors"
GRAMS, LEAST_DOCUMENTS = (1, 2), 2
WORD = re.compile(CountVectorizer().token_pattern)
BLOCK = 2048  # completions, or pairs, whose features are computed at once


class LinearRewardModel:
    """r(x, y) = w · tfidf(y) + v · log(1 + |y|), |y| in characters: a baseline for comparisons of reward models."""

    def __init__(self, vectorizer: TfidfVectorizer, weights: np.ndarray | None = None):
        self.contract = ScoringContract(kind="linear", dtype="float64")
        self.vectorizer = vectorizer
        self.weights = weights

    def fit(self, pairs: Sequence[PreferencePair], *, C: float = 0.3, objective: str = OVERALL) -> "LinearRewardModel":
        """Fit vocabulary, word weights and length weight; C as in scikit-learn (larger: less regularisation)."""
        try:
            self.vectorizer.fit([text for pair in pairs for text in pair.texts])
        except ValueError as error:
            raise _no_words_error(len(pairs)) from error
        chosen, rejected = ([pair.texts[side] for pair in pairs] for side in range(2))
        wins = np.array([pair.chance(objective) for pair in pairs])
        self.weights = pairwise_logistic(self._features(chosen) - self._features(rejected), wins, C=C)
        return self

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return rewards [N, 1]."""
        weights = self._fitted_weights()
        if not examples:
            return np.zeros((0, 1))
        return (self._features([example.text for example in examples]) @ weights)[:, None]

    def terms(self, example: Example) -> WordTerms:
        """Return w_i tfidf_i(y) of every word and word pair i of the vocabulary, and v log(1 + |y|)."""
        row = self._features([example.text]).multiply(self._fitted_weights()).tocoo()
        words, terms = (
            [*self.vectorizer.get_feature_names_out(), ""],
            dict(zip(row.col, row.data.tolist(), strict=True)),
        )
        length = terms.pop(len(words) - 1, 0.0)
        spans = [match.span() for match in WORD.finditer(example.text)]
        return WordTerms({words[column]: term for column, term in terms.items()}, length, spans)

    def _fitted_weights(self) -> np.ndarray:
        if self.weights is None:
            raise UsageError("the linear reward model has not been fitted; call fit(pairs) or load a saved folder")
        return self.weights

    def _features(self, completions: Sequence[str]) -> sparse.csr_matrix:
        return _with_length(self.vectorizer.transform(completions), _log_lengths(completions))

    def save(self, folder: Path) -> None:
        """Save the vocabulary as JSON, the weights as safetensors, and the contract."""
        folder.mkdir(parents=True, exist_ok=True)
        words = sorted(self.vectorizer.vocabulary_, key=self.vectorizer.vocabulary_.__getitem__)
        (folder / VOCABULARY).write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")
        save_file({"idf": self.vectorizer.idf_, "weights": np.asarray(self.weights)}, folder / WEIGHTS)
        self.contract.save(folder)


class CountedCompletions:
    """Word counts of completions, computed once for several linear reward models fitted on subsets of pairs."""

    def __init__(self, completions: Sequence[str], pairs: np.ndarray):
        """Count words; `pairs` [B, 2] are all pairs of indices (chosen, rejected) that may be fitted."""
        unique = {completion: row for row, completion in enumerate(dict.fromkeys(completions))}
        self._row = np.array([unique[completion] for completion in completions])
        self._lengths = _log_lengths(list(unique))
        self._counts = gram_counts(list(unique), self._uses(pairs), LEAST_DOCUMENTS)

    def fit_and_rate(self, pairs: np.ndarray, rated: np.ndarray, *, C: float = 0.3) -> np.ndarray:
        """Fit on some pairs and return the rewards [N] of `rated`, as `linear().fit(pairs, C=C).rate(rated)` does."""
        columns, idf = self._vocabulary(self._uses(pairs))
        weights = pairwise_logistic(self._differences(pairs, columns, idf), np.ones(len(pairs)), C=C)
        parts = [self._row[rated[part]] for part in _blocks(len(rated))]
        return np.concatenate([self._features(rows, columns, idf) @ weights for rows in parts])

    def _uses(self, pairs: np.ndarray) -> np.ndarray:
        """Return how often each distinct completion is in the pairs."""
        return np.bincount(self._row[pairs].ravel(), minlength=len(self._lengths))

    def _vocabulary(self, uses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the vocabulary's columns and inverse document frequencies; each completion counts `uses` times."""
        documents = sum((self._counts[part] > 0).T @ uses[part] for part in _blocks(len(uses)))
        columns = np.flatnonzero(documents >= LEAST_DOCUMENTS)
        if not len(columns):
            raise _no_words_error(int(uses.sum()) // 2)
        return columns, np.log((1 + uses.sum()) / (1 + documents[columns])) + 1

    def _differences(self, pairs: np.ndarray, columns: np.ndarray, idf: np.ndarray) -> sparse.csr_matrix:
        def difference(rows: np.ndarray) -> sparse.csr_matrix:
            return self._features(rows[:, 0], columns, idf) - self._features(rows[:, 1], columns, idf)

        return sparse.csr_matrix(sparse.vstack([difference(self._row[pairs[part]]) for part in _blocks(len(pairs))]))

    def _features(self, rows: np.ndarray, columns: np.ndarray, idf: np.ndarray) -> sparse.csr_matrix:
        transformer = TfidfTransformer(sublinear_tf=True)
        transformer.idf_ = idf
        return _with_length(transformer.transform(self._counts[rows][:, columns], copy=False), self._lengths[rows])


def _blocks(count: int) -> list[slice]:
    """Return slices of at most `BLOCK` rows that cover `count` rows."""
    return [slice(start, start + BLOCK) for start in range(0, count, BLOCK)]


def _log_lengths(completions: Sequence[str]) -> np.ndarray:
    return np.log1p([len(completion) for completion in completions])


def _with_length(words: sparse.csr_matrix, log_lengths: np.ndarray) -> sparse.csr_matrix:
    """Return the word features with the logarithm of the length as a further column."""
    return sparse.csr_matrix(sparse.hstack([words, log_lengths[:, None]]))


def _no_words_error(pairs: int) -> DataError:
    return DataError(
        f"the completions of {pairs} pairs share no word of two letters or more, so there is nothing to "
        "learn from words; give more pairs, or train another kind"
    )


def new_linear() -> LinearRewardModel:
    """Create an unfitted linear reward model."""
    return LinearRewardModel(TfidfVectorizer(ngram_range=GRAMS, min_df=LEAST_DOCUMENTS, sublinear_tf=True))


def load_linear(source: str, *, trust_remote_code: bool = False) -> LinearRewardModel:
    """Load the linear reward model in a folder; `trust_remote_code` has no effect."""
    folder = Path(source)
    load_contract(folder)
    try:
        words = from_json((folder / VOCABULARY).read_text(encoding="utf-8"))
        numbers = load_file(folder / WEIGHTS)
        texts = isinstance(words, list) and all(isinstance(word, str) for word in words)
        if not texts or len({*words}) < len(words):
            raise ValueError(f"{VOCABULARY} is not a list of distinct words")
        sizes = {name: numbers[name].shape for name in ("idf", "weights")}
    except (*UNREADABLE, SafetensorError) as error:
        raise DataError(f"{folder}: not a complete linear reward model ({error}); train it again") from error
    if sizes != {"idf": (len(words),), "weights": (len(words) + 1,)}:
        raise DataError(f"{folder}: {len(words)} words but {sizes['weights']} weights; train it again")
    vectorizer = TfidfVectorizer(ngram_range=GRAMS, sublinear_tf=True, vocabulary=words)
    vectorizer.idf_ = numbers["idf"]
    return LinearRewardModel(vectorizer, numbers["weights"])


# ---- word counts, as integers: a suite's responses hold millions of distinct word pairs ----

PART = 2**18  # words whose grams are counted at once


def gram_counts(texts: Sequence[str], uses: np.ndarray, least: int) -> sparse.csr_matrix:
    """Count words and pairs of neighbouring words in every text: [N, G], grams in alphabetical order.

    Only grams that occur in at least `least` documents are counted; text n stands for `uses[n]` documents. The columns
    are those of scikit-learn's `CountVectorizer(ngram_range=(1, 2))`, which holds every gram as a string.
    """
    words, lengths = _word_ranks(texts)
    text = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
    parts = [_count_grams(words, text, first, last, uses, least) for first, last in pairwise(_ranges(words))]
    counts, rows, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
    del parts
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return sparse.csr_matrix(sparse.csc_matrix((counts, rows, ends), shape=(len(texts), len(sizes))))


def _word_ranks(texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    """Return the alphabetical rank of every word [T] of the concatenated texts, and the length of each text."""
    ids: dict[str, int] = {}
    rows = [np.array([ids.setdefault(w, len(ids)) for w in WORD.findall(text.lower())], np.int32) for text in texts]
    rank = np.empty(len(ids), np.int32)
    rank[[ids[word] for word in sorted(ids)]] = np.arange(len(ids))
    return rank[np.concatenate([np.empty(0, np.int32), *rows])], [*map(len, rows)]


def _ranges(words: np.ndarray) -> np.ndarray:
    """Split word ranks into ranges with about `PART` words of the texts each, to bound memory; return the bounds."""
    begun = np.cumsum(np.bincount(words, minlength=1))
    inner = np.searchsorted(begun, np.arange(PART, begun[-1], PART))
    return np.unique([0, *inner, len(begun)])


def _count_grams(
    words: np.ndarray, text: np.ndarray, first: int, last: int, uses: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count grams with first word in [first, last), sorted by code: a (V + 1) for "a", a (V + 1) + b + 1 for "a b"."""
    at = np.flatnonzero((words >= first) & (words < last))
    followed = at[at < len(words) - 1]
    followed = followed[text[followed] == text[followed + 1]]
    size = np.int64(words.max(initial=0) + 2)
    grams = np.concatenate([words[at] * size, words[followed] * size + words[followed + 1] + 1])
    order = np.argsort(grams, kind="stable")  # the texts of a gram stay in order
    grams, rows = grams[order], text[np.concatenate([at, followed])][order]
    gram_starts = _differs_from_previous(grams)
    starts = np.flatnonzero(gram_starts | _differs_from_previous(rows))
    counts, rows = np.diff(starts, append=len(grams)).astype(np.int32), rows[starts]
    gram = np.cumsum(gram_starts[starts]) - 1
    frequent = np.bincount(gram, weights=uses[rows]) >= least
    return counts[frequent[gram]], rows[frequent[gram]], np.bincount(gram)[frequent]


def _differs_from_previous(values: np.ndarray) -> np.ndarray:
    """Return True at every value that differs from the previous value, and at the first value."""
    return np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]
