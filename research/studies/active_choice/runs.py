"""Jobs of the study: learning curves of all strategies from one random start."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from ....benchmarks import garden
from ....rm.data.active_choice import STRATEGIES, k_center, largest_spread, smallest_margin
from ....rm.data.conversation_split import first_turn
from ....rm.data.pairs import load_pairs
from ....rm.kinds._pairwise_logistic import pairwise_logistic
from ....rm.types import OVERALL, PreferencePair
from .._runs.job_cache import Arrays, Job
from ..human_preferences import SOURCES

MEMBERS, C, DIMENSIONS = 5, 0.3, 50


def source_files(data: Path) -> list[Path]:
    """Return the files of human preferences; empty if one of them is absent."""
    files = [data / file for names in SOURCES.values() for file in names]
    return files if all(file.exists() for file in files) else []


@dataclass(frozen=True)
class Curves(Job):
    """Held-out accuracy by number of labels, for every strategy. Without `data` the pairs are those of the garden."""

    data: str
    seed: int
    pool: int = 2000
    start: int = 50
    batch: int = 50
    rounds: int = 10

    libraries = ("scikit-learn", "numpy")

    def __str__(self) -> str:
        return f"{'real data' if self.data else 'garden'}, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the numbers of labels [T], and the accuracies [T] by strategy."""
        pool, test, truth = self._pairs()
        vectorizer = TfidfVectorizer(token_pattern=r"\S+", min_df=2, sublinear_tf=True, max_features=20_000)
        vectorizer.fit([text for pair in pool for text in self._texts(pair)])
        features = [self._differences(vectorizer, pairs) for pairs in (pool, test)]
        labels = self.start + self.batch * np.arange(self.rounds + 1)
        curves = {name: self._curve(name, *features, truth) for name in STRATEGIES}
        return {"labels": labels} | {name: np.array(curve) for name, curve in curves.items()}

    def _curve(self, name: str, pool: sparse.csr_matrix, test: sparse.csr_matrix, truth: np.ndarray) -> list[float]:
        rng = np.random.default_rng([self.seed, STRATEGIES.index(name)])
        first = np.random.default_rng(self.seed).permutation(np.shape(pool)[0])[: self.start]
        vectors = TruncatedSVD(DIMENSIONS, random_state=self.seed).fit_transform(abs(pool))
        chosen, curve = first.tolist(), []
        for _ in range(self.rounds + 1):
            weights = fitted(pool[chosen])
            curve.append(float(np.mean((test @ weights) * truth > 0)))
            left = np.setdiff1d(np.arange(np.shape(pool)[0]), chosen)
            if name == "random":
                picks = rng.permutation(len(left))[: self.batch]
            elif name == "diversity":
                picks = k_center(vectors[left], self.batch, covered=vectors[chosen])
            elif name == "margin":
                picks = smallest_margin(pool[left] @ weights, self.batch)
            else:
                samples = rng.choice(chosen, (MEMBERS, len(chosen)))
                picks = largest_spread(np.stack([pool[left] @ fitted(pool[rows]) for rows in samples]), self.batch)
            chosen += left[picks].tolist()
        return curve

    def _pairs(self) -> tuple[list[PreferencePair], list[PreferencePair], np.ndarray]:
        """Return the pool, held-out pairs, and the sign of the chosen response's advantage in each of these."""
        if not self.data:
            pool, test = garden.pairs(self.pool, self.seed), garden.pairs(self.pool, self.seed, "test")
            rewards = garden.gold().rate([example for pair in test for example in pair.examples])[:, 0]
            return pool, test, np.sign(rewards[::2] - rewards[1::2])
        loaded, _ = load_pairs([str(file) for file in source_files(Path(self.data))], on_bad_row="skip")
        pairs = [pair for pair in loaded if pair.chance(OVERALL) != 0.5]
        prompts = [*dict.fromkeys(first_turn(pair.prompt) for pair in pairs)]
        order = np.random.default_rng([self.seed, 9]).permutation(len(prompts))
        held_out = {prompts[index] for index in order[: len(prompts) // 4]}
        test = [pair for pair in pairs if first_turn(pair.prompt) in held_out]
        pool = [pair for pair in pairs if first_turn(pair.prompt) not in held_out]
        rows = np.random.default_rng([self.seed, 8]).permutation(len(pool))[: self.pool]
        return [pool[row] for row in rows], test, np.ones(len(test))

    def _differences(self, vectorizer: TfidfVectorizer, pairs: Sequence[PreferencePair]) -> sparse.csr_matrix:
        texts = [text for pair in pairs for text in self._texts(pair)]
        lengths = np.log1p([len(text) for pair in pairs for text in pair.texts])[:, None]
        features = sparse.csr_matrix(sparse.hstack([vectorizer.transform(texts), lengths]))
        return sparse.csr_matrix(features[::2] - features[1::2])

    def _texts(self, pair: PreferencePair) -> tuple[str, ...]:
        if self.data:
            return tuple(text.lower() for text in pair.texts)
        return tuple(" ".join(f"{word} {pair.subset}:{word}" for word in text.split()) for text in pair.texts)


def fitted(differences: sparse.csr_matrix) -> np.ndarray:
    """Return the weights of a linear Bradley-Terry model whose labels are certain."""
    return pairwise_logistic(differences, np.ones(np.shape(differences)[0]), C=C)
