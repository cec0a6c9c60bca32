"""Fronts of guided decoding: completions at every preference of a grid, with their gold rewards."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....benchmarks import garden
from ....benchmarks.garden.models import tokenizer
from ....policy.decoding.engines import DecodingModel, Engine, SeparateModels, SharedBackbone, decoding_model
from ....policy.decoding.guided import decode
from ....policy.decoding.requests import DecodedCompletion, Request
from ....rm.data.preference_vectors import simplex_grid
from ....rm.types import prompt_text
from ...studies._runs.job_cache import Arrays, Job
from ..policies import BATCH_SIZE, LONGEST
from . import REWARDS, Base, Guide


@dataclass(frozen=True)
class Front(Job):
    """Completions of a base model under guides, at every preference of a grid, scored by a world's gold rewards.

    Noise depends on the seed, the prompt and the token only: it is the same for all methods and preferences. Results
    are rewards [A, P, K], and the length of each completion in tokens [A, P].
    """

    base: Base
    guides: tuple[Guide, ...]
    objectives: tuple[str, ...]
    steps: int = 10
    prompts: int = 100
    seed: int = 0
    world: str = "garden"

    def __str__(self) -> str:
        return f"front of {self.base} under {len(self.guides)} {self.guides[0].recipe.kind}"

    @property
    def preferences(self) -> np.ndarray:
        """Preferences α [A, K]."""
        return simplex_grid(len(self.objectives), self.steps)

    def work(self, cache: Path) -> Arrays:
        """Return rewards and lengths; see the class."""
        requests = [
            Request(
                prompt,
                preference=dict(zip(self.objectives, alpha.tolist(), strict=True)),
                seed=self.seed * 100_000 + index,
                max_new_tokens=LONGEST,
            )
            for alpha in self.preferences
            for index, prompt in enumerate(garden.prompts(self.prompts, self.seed))
        ]
        completions = decode(self._engine(cache), requests, batch_size=BATCH_SIZE, progress=False)
        shape = len(self.preferences), self.prompts
        return {
            "rewards": self._gold(requests, completions).reshape(*shape, -1),
            "length": np.array([len(completion.tokens) for completion in completions]).reshape(shape),
        }

    def _engine(self, cache: Path) -> Engine:
        """Return a shared backbone for one guide, and separate models for one guide an objective."""
        guides = [guide.load(cache) for guide in self.guides]
        if len(guides) == 1:
            return SharedBackbone(guides[0])
        base = decoding_model(self.base.load(cache), tokenizer())
        named: dict[str, DecodingModel] = dict(zip(self.objectives, guides, strict=True))
        return SeparateModels(base, named)

    def _gold(self, requests: Sequence[Request], completions: Sequence[DecodedCompletion]) -> np.ndarray:
        """Return the gold rewards of all completions [N, K]."""
        reward, both = REWARDS[self.world], zip(requests, completions, strict=True)
        golds = [reward(prompt_text(request.prompt), completion.text) for request, completion in both]
        return np.array([[gold[name] for name in self.objectives] for gold in golds])
