"""Linear reward model on the completion's words and length. It ignores the prompt and trains in seconds."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from ..contract.scoring_contract import ScoringContract, load_contract
from ..errors import UNREADABLE, DataError, UsageError
from ..io.checked_files import from_json
from ..types import OVERALL, Example, PreferencePair
from ._pairwise_logistic import pairwise_logistic

VOCABULARY, WEIGHTS = "vocabulary.json", "linear.safetensors"
GRAMS = (1, 2)


class LinearRewardModel:
    """r(x, y) = w · tfidf(y) + v · log(1 + |y|), |y| in characters: a baseline for comparisons of reward models."""

    def __init__(self, vectorizer: TfidfVectorizer, weights: np.ndarray | None = None):
        self.contract = ScoringContract(kind="linear", dtype="float64")
        self.vectorizer = vectorizer
        self.weights = weights

    def fit(self, pairs: Sequence[PreferencePair], *, C: float = 0.3, objective: str = OVERALL) -> "LinearRewardModel":
        """Fit vocabulary, word weights and length weight; C as in scikit-learn (larger: less regularisation)."""
        try:
            self.vectorizer.fit([completion for pair in pairs for completion in (pair.chosen, pair.rejected)])
        except ValueError as error:
            raise DataError(
                f"the completions of {len(pairs)} pairs share no word of two letters or more, so there is nothing to "
                "learn from words; give more pairs, or train another kind"
            ) from error
        chosen, rejected = ([getattr(pair, side) for pair in pairs] for side in ("chosen", "rejected"))
        wins = np.array([pair.chance(objective) for pair in pairs])
        self.weights = pairwise_logistic(self._features(chosen) - self._features(rejected), wins, C=C)
        return self

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return rewards [N, 1]."""
        if self.weights is None:
            raise UsageError("the linear reward model has not been fitted; call fit(pairs) or load a saved folder")
        return (self._features([example.completion for example in examples]) @ self.weights)[:, None]

    def _features(self, completions: Sequence[str]) -> sparse.csr_matrix:
        length = np.log1p([len(completion) for completion in completions])[:, None]
        return sparse.csr_matrix(sparse.hstack([self.vectorizer.transform(completions), length]))

    def save(self, folder: Path) -> None:
        """Save the vocabulary as JSON, the weights as safetensors, and the contract."""
        folder.mkdir(parents=True, exist_ok=True)
        words = sorted(self.vectorizer.vocabulary_, key=self.vectorizer.vocabulary_.__getitem__)
        (folder / VOCABULARY).write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")
        save_file({"idf": self.vectorizer.idf_, "weights": np.asarray(self.weights)}, folder / WEIGHTS)
        self.contract.save(folder)


def linear(source: str | None = None) -> LinearRewardModel:
    """Create an unfitted linear reward model, or load the one in a folder."""
    if source is None:
        return LinearRewardModel(TfidfVectorizer(ngram_range=GRAMS, min_df=2, sublinear_tf=True))
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
