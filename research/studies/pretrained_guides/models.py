"""Jobs of the study: guides on SmolLM2, their completions, and raters that have seen neither."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ....policy.decoding.engines import open_engine
from ....policy.decoding.guided import decode
from ....policy.decoding.requests import Request
from ....rm.data.scored_rows import Judged
from ....rm.load import load_reward_model
from ....rm.registry import kind_of
from ....rm.types import Example, Messages, PreferencePair
from .._runs.job_cache import Arrays, Job
from .._runs.saved_models import SavedModel, model_folder
from .texts import LONGEST_RATED, OBJECTIVES, load_texts

ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights of `harmless`; that of `helpful` is the rest."""
MAX_LENGTH = 384
DTYPE = "bfloat16"
"""Of the language model's weights; those of the adapters are float32."""
LENGTH = ("longer", "shorter")
"""Objectives of the positive control: rules that every pair with completions of two lengths answers."""
INSTRUCTIONS = {
    "helpful": "Answer as helpfully as you can, whatever the question is.",
    "harmless": "Answer so that nobody can come to harm; decline where you have to.",
}
"""System messages of steering by the prompt, as a user would try first."""


@dataclass(frozen=True)
class Guide(SavedModel):
    """A guide on a language model for some objectives, and its controls.

    `control`: `shuffled` gives each pair the label of an objective at random, so that the preference means nothing;
    `blind` exchanges the prompts of the pairs, so that only the completions can be learned from; `length` replaces the
    labels by the objectives `LENGTH`, which can be learned for sure.
    """

    method: str
    objectives: tuple[str, ...]
    pairs: int
    rate: float = 5e-4
    control: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of training other than this study's."""

    def __str__(self) -> str:
        name = f"{self.method} ({', '.join(self.settings)})" if self.settings else self.method
        return f"{name} for {' and '.join(self.objectives)}, {self.pairs} pairs {self.control}".rstrip()

    def work(self, cache: Path) -> Arrays:
        """Train the guide; return Δ [P, K] of the test pairs at every objective's vertex."""
        settings = {"model": self.source(), "objectives": [*self.objectives], "adapter": self.method}
        settings |= {"max_length": MAX_LENGTH, "monitor_steps": 0, "dtype": DTYPE}
        settings |= self.settings
        pairs = self.training_pairs(cache)
        facts = self.train(cache, "autoregressive", settings, Judged(pairs, []), len(pairs))
        model: Any = load_reward_model(str(self.folder(cache)), check=False)
        tested = [pair for name in OBJECTIVES for pair in load_texts(cache, self.texts).short("test", name)]
        rewards = model.rate([example for pair in tested for example in pair.examples])
        return facts | {"gaps": rewards[::2] - rewards[1::2]}

    def training_pairs(self, cache: Path) -> list[PreferencePair]:
        """Return as many pairs of each objective, chosen by the seed, with the labels of the control."""
        texts, draw = load_texts(cache, self.texts), np.random.default_rng(self.seed)
        share = self.pairs // len(self.objectives)
        parts = [texts.short("guides", name) for name in (OBJECTIVES if self.control == "length" else self.objectives)]
        chosen = [part[index] for part in parts for index in draw.permutation(len(part))[:share]]
        if self.control == "shuffled":
            names = draw.choice(self.objectives, len(chosen))
            chosen = [replace(pair, wins={str(name): 1.0}) for pair, name in zip(chosen, names, strict=True)]
        if self.control == "blind":
            order = draw.permutation(len(chosen))
            chosen = [replace(pair, prompt=chosen[other].prompt) for pair, other in zip(chosen, order, strict=True)]
        if self.control == "length":
            unequal = [pair for pair in chosen if len(pair.chosen) != len(pair.rejected)]
            chosen = [replace(pair, wins=wins_by_length(pair, index % 2)) for index, pair in enumerate(unequal)]
        return chosen

    @property
    def learning_rate(self) -> float:
        """Peak learning rate of the adapter."""
        return self.rate


def wins_by_length(pair: PreferencePair, objective: int) -> dict[str, float]:
    """Return P(chosen better) by one of the objectives `LENGTH`: 1 or 0, by the number of characters."""
    is_longer = len(pair.chosen) > len(pair.rejected)
    return {LENGTH[objective]: float(is_longer == (objective == 0))}


@dataclass(frozen=True)
class Rater(SavedModel):
    """A reward model of one objective, trained on prompts of which guides and tests have none."""

    objective: str
    kind: str = "scalar"

    def __str__(self) -> str:
        return f"rater {self.kind}, {self.objective}"

    def work(self, cache: Path) -> Arrays:
        """Train it; return the gaps of the test pairs of its objective."""
        texts = load_texts(cache, self.texts)
        settings: dict[str, Any] = {"objectives": [self.objective]}
        if self.kind == "scalar":
            settings |= {"model": self.source(), "max_length": MAX_LENGTH, "chat_template": "plain"}
        training = texts.short("raters", self.objective, LONGEST_RATED)
        facts = self.train(cache, self.kind, settings, Judged(training, []), len(training))
        pairs = texts.short("test", self.objective, LONGEST_RATED)
        model = load_reward_model(str(self.folder(cache)), check=False)
        rewards = model.rate([example for pair in pairs for example in pair.examples])[:, 0]
        return facts | {"gaps": rewards[::2] - rewards[1::2]}

    @property
    def epochs(self) -> float:
        """Passes over the pairs; chosen by the study of pretrained models."""
        return 2.0


@dataclass(frozen=True)
class Completions(Job):
    """Completions of the test prompts [A, P] by a language model under guides, at `ALPHAS` if they follow them."""

    texts: str
    model: str
    guides: tuple[Guide, ...] = ()
    temperature: float = 0.0
    weight: float = 1.0
    prompts: int = 60
    longest: int = 64
    instructed: bool = False
    """Whether the preference is stated in a system message instead."""
    seed: int = 0
    libraries: ClassVar = ("torch", "transformers", "peft")

    def __str__(self) -> str:
        how = "instructions" if self.instructed else " and ".join(map(str, self.guides)) or "no guide"
        return f"completions under {how}, temperature {self.temperature:g}"

    def work(self, cache: Path) -> Arrays:
        """Return texts, numbers of tokens and seconds."""
        source = model_folder(self.model)
        arms = [str(guide.folder(cache)) for guide in self.guides]
        if len(arms) > 1:
            names = [guide.objectives[0] for guide in self.guides]
            arms = [f"{name}={folder}" for name, folder in zip(names, arms, strict=True)]
        engine, objectives = open_engine(source, arms, dtype=DTYPE)
        first, second = self.guides[0].objectives if len(self.guides) == 1 else OBJECTIVES
        started, prompts = time.time(), load_texts(cache, self.texts).prompts(self.prompts)
        requests = {
            (alpha, index): Request(
                self._prompt(prompt, alpha),
                {first: 1 - alpha, second: alpha} if objectives else None,
                weight=self.weight if arms else 0.0,
                temperature=self.temperature,
                seed=self.seed * 100_000 + index,
                max_new_tokens=self.longest,
            )
            for alpha in ALPHAS
            for index, prompt in enumerate(prompts)
        }
        different = {repr(request): request for request in requests.values()}  # the base model's have no preference
        results = dict(
            zip(different, decode(engine, [*different.values()], batch_size=30, progress=False), strict=True)
        )
        rows = [results[repr(request)] for request in requests.values()]
        shape = len(ALPHAS), len(prompts)
        return {
            "texts": np.array([row.text for row in rows]).reshape(shape),
            "lengths": np.array([len(row.tokens) for row in rows]).reshape(shape),
            "seconds": np.array(time.time() - started),
        }

    def _prompt(self, prompt: Messages, alpha: float) -> Messages:
        """Return the prompt, with the objective of the larger weight as a system message if it is instructed."""
        if not self.instructed:
            return prompt
        stated = [
            INSTRUCTIONS[name] for name, share in zip(OBJECTIVES, (1 - alpha, alpha), strict=True) if share >= 0.5
        ]
        return ({"role": "system", "content": " ".join(stated)}, *prompt)


@dataclass(frozen=True)
class Ratings(Job):
    """Rewards [A, P] of completions by a rater."""

    rater: Rater
    completions: Completions

    def __str__(self) -> str:
        return f"{self.rater} of {self.completions}"

    def work(self, cache: Path) -> Arrays:
        """Return the rewards, each of the test prompt with its completion."""
        model = load_reward_model(str(self.rater.folder(cache)), check=False)
        return {"rewards": rate_texts(model, self.completions, cache)}


@dataclass(frozen=True)
class Fluency(Job):
    """Mean log-probability of a token of each completion [A, P] under the unguided language model, in nats."""

    completions: Completions

    def __str__(self) -> str:
        return f"fluency of {self.completions}"

    def work(self, cache: Path) -> Arrays:
        """Return the mean over the completion's tokens, its end of turn included."""
        source = model_folder(self.completions.model)
        model = kind_of("autoregressive").load(source, dtype=DTYPE)
        examples = conversations(self.completions, cache)
        values = np.array([tokens.mean() for tokens in model.logprobs(examples)])
        return {"logprobs": values.reshape(self.completions.result(cache)["texts"].shape)}


def conversations(completions: Completions, cache: Path) -> list[Example]:
    """Return the test prompts with their completions, whatever steered them, at one preference after the other."""
    prompts = load_texts(cache, completions.texts).prompts(completions.prompts)
    texts = completions.result(cache)["texts"]
    return [Example(prompt, str(text)) for row in texts for prompt, text in zip(prompts, row, strict=True)]


def rate_texts(model: Any, completions: Completions, cache: Path) -> np.ndarray:
    """Return the rewards of completions [A, P]."""
    rewards = model.rate(conversations(completions, cache))[:, 0]
    return rewards.reshape(completions.result(cache)["texts"].shape)
