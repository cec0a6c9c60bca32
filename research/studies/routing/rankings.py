"""Rankings of the cases by every routing rule, cross-fitted over folds of questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.stats import rankdata
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GroupKFold

from ....benchmarks.suites.judgebench import GROUPS
from ....judges.kinds.route.distilled import distil
from ....judges.kinds.route.features import METADATA, REWARDS, CaseFeatures, case_features, feature_numbers
from ....judges.kinds.route.probe import fit_logistic, fit_probe, open_embedder
from ....rm.backbones.loading import small_config, small_tokenizer
from ....rm.kinds.scalar.model import scalar_from_config
from ....rm.training.trainer import RewardArguments
from .._runs.job_cache import Arrays, Job
from ..real_text_guides.models import TextBase, words
from .judges import CHEAP, OTHER, REWARD_MODELS, Judged, Stored, judged

FOLDS = 5
RANDOM, ORACLE, CASCADE, GROUP = "random", "oracle", "cascade", "group of the question"
FITTED = (
    "metadata", "TF-IDF", "hidden states", "distilled", "metadata, margin, spread", "planted feature",
    "shuffled labels",
)  # fmt: skip
FLIPPED = 0.2
"""Share of the cases in which the planted feature is not the label."""


@dataclass(frozen=True)
class PromptStates(Job):
    """Mean hidden states [M, D] of the prompts in a small language model from scratch."""

    data: Stored
    base: TextBase
    max_length: int = 256

    def __str__(self) -> str:
        return "hidden states of the prompts"

    def work(self, cache: Path) -> Arrays:
        """Save the model as an encoder, and return the states that a probe reads there."""
        features = case_features(judged(self.data).cases)
        with TemporaryDirectory() as folder:
            self.base.load(cache).save_pretrained(folder)
            words(self.base.data).save_pretrained(folder)
            embedder = open_embedder(folder, max_length=self.max_length, cache=Path(folder) / "states.sqlite")
            return {"states": embedder([each.prompt for each in features])}


@dataclass(frozen=True)
class Classifier:
    """The distilled rule: a Qwen 3 from random weights."""

    hidden: int = 64
    layers: int = 2
    vocabulary: int = 4096
    max_length: int = 256
    epochs: int = 3
    learning_rate: float = 1e-3


class Fold(NamedTuple):
    """Indices of the cases that rules are fitted to and of those that they rank."""

    train: np.ndarray
    held_out: np.ndarray
    seed: int
    C: float | None = None
    """Inverse regularisation of the probes; None chooses it by cross-validation."""

    def probe(self, features: Sequence[CaseFeatures], needed: np.ndarray, inputs: Sequence[str]) -> np.ndarray:
        """Fit a probe on named features; return the probabilities of the held-out cases."""
        seen = [features[index] for index in self.train]
        fitted = fit_probe(seen, needed[self.train], inputs=inputs, C=self.C, seed=self.seed)
        return np.array([need.probability for need in fitted([features[index] for index in self.held_out])])

    def logistic(self, inputs: np.ndarray, needed: np.ndarray, prompts: Sequence[str]) -> np.ndarray:
        """Fit the same regression on inputs [M, F]; return the log-odds of the held-out cases without the bias."""
        groups = [prompts[index] for index in self.train]
        linear, _ = fit_logistic(inputs[self.train], needed[self.train], groups, C=self.C, seed=self.seed)
        return linear.terms(inputs[self.held_out]).sum(1)

    def tfidf(self, prompts: Sequence[str]) -> np.ndarray:
        """Return TF-IDF of all prompts, with the most frequent 1,000 words of those that are fitted to."""
        vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, max_features=1000)
        return vectorizer.fit([prompts[index] for index in self.train]).transform(prompts).toarray()


def question_folds(material: Judged, seed: int) -> list[Fold]:
    """Split the cases by question."""
    questions = [case.cluster for case in material.cases]
    splits = GroupKFold(FOLDS, shuffle=True, random_state=seed).split(questions, groups=questions)
    return [Fold(train, held_out, seed) for train, held_out in splits]


@dataclass(frozen=True)
class Rankings(Job):
    """Priorities of all cases by the fitted rules, for every cheap judge, at one seed of the folds.

    A case's priority comes from a rule that was fitted to the other folds, as its rank within its own fold, in [0, 1]:
    probabilities of different folds are not comparable, since a fold with many positive cases leaves fewer to fit to.
    """

    libraries: ClassVar = ("torch", "transformers", "scikit-learn")
    data: Stored
    states: PromptStates
    seed: int
    classifier: Classifier = Classifier()
    C: float | None = None

    def __str__(self) -> str:
        return f"rankings, folds of seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return rule -> priorities [cheap judges, M]."""
        material, states = judged(self.data), self.states.result(cache)["states"]
        ranked = {rule: np.full((len(CHEAP), len(material.cases)), np.nan) for rule in FITTED}
        for number, fold in enumerate(question_folds(material, self.seed)):
            draw = np.random.default_rng([self.seed, number])
            for rule, priorities in self._priorities(material, states, fold._replace(C=self.C), draw).items():
                ranked[rule][:, fold.held_out] = [rankdata(row) / len(row) for row in priorities]
        return ranked

    def _priorities(
        self, material: Judged, states: np.ndarray, fold: Fold, draw: np.random.Generator
    ) -> Mapping[str, Sequence[np.ndarray]]:
        """Return rule -> a row of the held-out cases' priorities for each cheap judge."""
        features = [case_features_of(material, cheap) for cheap in CHEAP]
        labels = [material.needed(cheap) for cheap in CHEAP]
        prompts, metadata = [each.prompt for each in features[0]], feature_numbers(features[0])
        planted = [np.column_stack([metadata, flipped(needed, draw)]) for needed in labels]
        shuffled = [_shuffled(needed, fold.train, draw) for needed in labels]
        per_judge = [*zip(features, labels, strict=True)]
        return {
            "metadata": [fold.probe(each, needed, METADATA) for each, needed in per_judge],
            "TF-IDF": [fold.logistic(fold.tfidf(prompts), needed, prompts) for needed in labels],
            "hidden states": [fold.logistic(states, needed, prompts) for needed in labels],
            "distilled": [*self._distilled(features[0], np.stack(labels, axis=1), fold)],
            "metadata, margin, spread": [fold.probe(each, needed, (*METADATA, *REWARDS)) for each, needed in per_judge],
            "planted feature": [
                fold.logistic(values, needed, prompts) for values, needed in zip(planted, labels, strict=True)
            ],
            "shuffled labels": [
                fold.probe(each, needed, METADATA) for each, needed in zip(features, shuffled, strict=True)
            ],
        }

    def _distilled(self, features: Sequence[CaseFeatures], labels: np.ndarray, fold: Fold) -> np.ndarray:
        """Train one classifier with an output for every cheap judge; it reads prompt and metadata."""
        how, shown = self.classifier, [each._replace(margin=np.nan, spread=np.nan) for each in features]
        tokenizer = small_tokenizer([shown[index].prompt for index in fold.train], how.vocabulary)
        config = small_config(tokenizer, hidden=how.hidden, layers=how.layers)
        model = scalar_from_config(config, tokenizer, objectives=CHEAP, max_length=how.max_length, seed=self.seed)
        with TemporaryDirectory() as folder:
            arguments = RewardArguments(
                output_dir=folder,
                num_train_epochs=how.epochs,
                learning_rate=how.learning_rate,
                per_device_train_batch_size=16,
                warmup_steps=10,
                save_strategy="no",
                seed=self.seed,
                use_cpu=True,
                disable_tqdm=True,
                logging_steps=1_000_000,
            )
            rule = distil(model, [shown[index] for index in fold.train], labels[fold.train].astype(float), arguments)
        return rule.outputs([shown[index] for index in fold.held_out]).T


def case_features_of(material: Judged, cheap: str) -> list[CaseFeatures]:
    """Return the features of the cases, with the margin of the other reward model and the spread over all three."""
    margins, spread = np.abs(material.margins[OTHER[cheap]]), spreads(material)
    return [
        each._replace(margin=float(margin), spread=float(deviation))
        for each, margin, deviation in zip(case_features(material.cases), margins, spread, strict=True)
    ]


def spreads(material: Judged) -> np.ndarray:
    """Return the standard deviation [M] of the reward models' margins, each in its own standard deviations."""
    return np.std([material.margins[name] for name in REWARD_MODELS], axis=0)


def _shuffled(labels: np.ndarray, train: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return the labels with those that are fitted to in random order."""
    labels = labels.copy()
    labels[train] = draw.permutation(labels[train])
    return labels


def flipped(labels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return the labels with a share `FLIPPED` exchanged."""
    return np.where(draw.random(len(labels)) < FLIPPED, 1 - labels, labels)


def fixed_rankings(material: Judged) -> dict[str, np.ndarray]:
    """Return the priorities [cheap judges, M] of the rules without a fit; random is one rank for all."""
    return {
        RANDOM: np.zeros((len(CHEAP), len(material.cases))),
        ORACLE: np.stack([material.strong - material.cheap[cheap] for cheap in CHEAP]),
        CASCADE: np.stack([-np.abs(material.margins[cheap]) for cheap in CHEAP]),
        "margin of another model": np.stack([-np.abs(material.margins[OTHER[cheap]]) for cheap in CHEAP]),
        "spread": np.stack([spreads(material)] * len(CHEAP)),
    }


def group_rankings(material: Judged, seeds: Sequence[int]) -> np.ndarray:
    """Rank by the share of needed cases in JudgeBench's group in the other folds [seeds, cheap judges, M]."""
    group = np.array([next(p for p in GROUPS.values() if case.subset.startswith(p)) for case in material.cases])
    ranked = np.zeros((len(seeds), len(CHEAP), len(group)))
    for number, seed in enumerate(seeds):
        for fold in question_folds(material, seed):
            for k, cheap in enumerate(CHEAP):
                needed, seen = material.needed(cheap)[fold.train], group[fold.train]
                shares = {name: needed[seen == name].mean() for name in {*seen}}
                row = [shares.get(name, needed.mean()) for name in group[fold.held_out]]
                ranked[number, k, fold.held_out] = rankdata(row) / len(row)
    return ranked
