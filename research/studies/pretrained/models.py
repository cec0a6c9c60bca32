"""Jobs of the study: a model is trained on a part of the texts and rates others; each result is stored by itself."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import transformers

from ....examples.fetch_models import fetched
from ....rm.types import OVERALL, PreferencePair
from .._runs.job_cache import Arrays, Job
from .texts import MIXES, SUITES, Texts, load_texts

FINAL = ("validation", "held-out", *SUITES)
"""What a final model rates; a model that chooses the recipe rates the validation pairs alone."""
MAX_LENGTH, BATCH = 512, 16
TEMPLATES = {"minilm": "plain"}
HEAD_C = (1e-3, 1e-2, 1e-1)
"""Regularisation of a head on frozen features; the validation pairs choose."""


class Recipe(NamedTuple):
    """What the validation pairs choose."""

    mix: str
    learning_rate: float
    epochs: int


@dataclass(frozen=True)
class Trained(Job):
    """A scalar reward model that starts from a pretrained backbone."""

    texts: str
    recipe: Recipe
    pairs: int
    seed: int
    backbone: str = "minilm"
    loss: str = "bradley_terry"
    parts: tuple[str, ...] = FINAL
    libraries: ClassVar = ()

    def __str__(self) -> str:
        more = f", {self.loss}" * (self.loss != "bradley_terry")
        return f"{self.backbone}, {self.pairs} pairs, {tuple(self.recipe)}, seed {self.seed}{more}"

    def work(self, cache: Path) -> Arrays:
        """Train it and return its rewards by part, with the counts of pairs."""
        started, texts = time.time(), load_texts(cache, self.texts)
        pairs = texts.training(self.recipe.mix, self.pairs, self.seed)
        model, cut = self._fitted(pairs)
        facts = {"pairs": len(pairs), "cut": cut, "trained": time.time() - started}
        return rewards_of(model, texts, self.parts) | as_arrays(facts | {"seconds": time.time() - started})

    def _fitted(self, pairs: Sequence[PreferencePair]) -> tuple[Any, int]:
        """Return the trained model and the number of pairs that were cut."""
        from peft import LoraConfig

        from ....rm.kinds.scalar.model import load_scalar
        from ....rm.kinds.scalar.training import ScalarTask, encode_pairs
        from ....rm.registry import load
        from ....rm.training.trainer import RewardArguments, RewardTrainer

        lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear") if self.backbone == "smollm2" else None
        template = TEMPLATES.get(self.backbone)
        source = fetched(self.backbone)
        model = load_scalar(
            source, fresh=True, max_length=MAX_LENGTH, chat_template=template, lora=lora, seed=self.seed
        )
        encoding = encode_pairs(model.encoder, pairs, OVERALL)
        task = ScalarTask(load("rm.losses", self.loss)())
        task.check(encoding.rows)
        with TemporaryDirectory() as folder:
            arguments = RewardArguments(
                output_dir=folder,
                num_train_epochs=self.recipe.epochs,
                learning_rate=self.recipe.learning_rate,
                per_device_train_batch_size=BATCH,
                warmup_steps=len(encoding.rows) * self.recipe.epochs // (10 * BATCH),
                save_strategy="no",
                seed=self.seed,
                tf32=torch.cuda.is_available() or None,
                disable_tqdm=True,
                logging_steps=1_000_000,
            )
            RewardTrainer(model, arguments, task, encoding.rows).train()
        return model, encoding.over_length


@dataclass(frozen=True)
class Features(Job):
    """Frozen MiniLM, mean-pooled, with a linear head for each number of training pairs and seed."""

    texts: str
    mix: str
    numbers: tuple[int, ...]
    seeds: tuple[int, ...]
    libraries: ClassVar = ()

    def __str__(self) -> str:
        return f"frozen features, {self.mix}"

    def work(self, cache: Path) -> Arrays:
        """Embed every text once, then fit all heads; rewards are named by number of pairs, seed and part."""
        from ....rm.kinds.embedding.model import new_embedding

        texts, results, started = load_texts(cache, self.texts), {}, time.time()
        with TemporaryDirectory() as folder:
            model = new_embedding(fetched("minilm"), max_length=MAX_LENGTH, cache=Path(folder) / "embeddings.sqlite")
            if torch.cuda.is_available():
                model.embedder.model.cuda()
            for number in self.numbers:
                for seed in self.seeds:
                    pairs = texts.training(self.mix, number, seed)
                    accuracies = {C: accuracy(rewards_of(model.fit(pairs, C=C), texts, ["validation"])) for C in HEAD_C}
                    model.fit(pairs, C=max(HEAD_C, key=accuracies.__getitem__))
                    rewards = rewards_of(model, texts, FINAL)
                    results |= {f"{number}/{seed}/{part}": values for part, values in rewards.items()}
                    results[f"{number}/{seed}/pairs"] = np.array(len(pairs))
        return results | as_arrays({"seconds": time.time() - started})


@dataclass(frozen=True)
class Words(Job):
    """TF-IDF of the response and its length, fitted on the same pairs as a trained model."""

    texts: str
    mix: str
    pairs: int
    seed: int
    libraries: ClassVar = ("scikit-learn",)

    def __str__(self) -> str:
        return f"TF-IDF, {self.pairs} pairs, {self.mix}, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Fit it and return its rewards by part."""
        from ....rm.kinds.linear.model import new_linear

        started, texts = time.time(), load_texts(cache, self.texts)
        model = new_linear().fit(texts.training(self.mix, self.pairs, self.seed))
        return rewards_of(model, texts, FINAL) | as_arrays({"seconds": time.time() - started})


def rewards_of(model: Any, texts: Texts, parts: Sequence[str]) -> Arrays:
    """Return the rewards of all responses of each part, in their order."""
    return {part: model.rate(texts.rated(part))[:, 0].astype(np.float32) for part in parts}


def accuracy(rewards: Arrays, part: str = "validation") -> float:
    """Return the share of a part's pairs whose chosen response has the higher reward; equal ones count half."""
    gaps = rewards[part][::2] - rewards[part][1::2]
    return float(np.mean((gaps > 0) + 0.5 * (gaps == 0)))


def as_arrays(facts: dict[str, Any]) -> Arrays:
    """Return numbers and the machine that they are from."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return {name: np.array(value) for name, value in (facts | {"machine": f"{device}, {versions}"}).items()}


__all__ = ["FINAL", "MIXES", "Features", "Recipe", "Trained", "Words", "accuracy"]
