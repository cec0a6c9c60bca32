"""UniARM-guided decoding by a proxy: a guide that is trained on pairs labelled by the proxy."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ....benchmarks import garden
from ....benchmarks.garden.models import tokenizer
from ....policy.decoding.engines import DecodingModel, SharedBackbone, decoding_model
from ....policy.decoding.guided import decode
from ....policy.decoding.requests import Request
from ....rm.kinds.autoregressive.preference_task import encode_preferences
from ....rm.types import Example
from ...statistics.overoptimisation import MEASURED
from ...worlds.guides import Recipe, copy_weights, train
from ...worlds.policies import BATCH_SIZE, LONGEST, unseen_prompts
from ...worlds.small_policies.sampling import policy_encoder
from .._runs.job_cache import Arrays, Job
from .._runs.proxies import Proxy

UNIARM = "UniARM-guided decoding"
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)
OBJECTIVE = "proxy"


@dataclass(frozen=True)
class AtlasGuide(Job):
    """A UniARM guide of one objective; the proxy says which response of each pair is better."""

    proxy: Proxy
    pairs: int = 3000
    recipe: Recipe = field(default_factory=lambda: Recipe(steps=200))

    def __str__(self) -> str:
        return f"guide by the {self.proxy}"

    def work(self, cache: Path) -> Arrays:
        """Return the adapter's weights."""
        guide, seed = self._untrained(cache), self.proxy.base.seed
        assert guide.adapter is not None
        pairs = garden.pairs(self.pairs, seed)
        first, second = zip(*(pair.examples for pair in pairs), strict=True)
        gaps = np.subtract(*(self.proxy.load(cache).rate(examples)[:, 0] for examples in (first, second)))
        labelled = [
            replace(pair, wins={OBJECTIVE: garden.sign_label(gap)}) for pair, gap in zip(pairs, gaps, strict=True)
        ]
        rows = encode_preferences(policy_encoder(), labelled, (OBJECTIVE,)).rows
        train(guide.adapter, self.recipe.task(guide.adapter, seed), rows, self.recipe, seed)
        return {name: weight.numpy() for name, weight in guide.adapter.state().items()}

    def load(self, cache: Path) -> DecodingModel:
        """Load the trained guide."""
        guide = self._untrained(cache)
        assert guide.adapter is not None
        copy_weights(guide.adapter.state(), self.result(cache))
        return guide

    def _untrained(self, cache: Path) -> DecodingModel:
        model = self.proxy.base.load(cache)
        adapter = self.recipe.adapt(model, (OBJECTIVE,), self.proxy.base.seed)
        return decoding_model(model, tokenizer(), adapter)


@dataclass(frozen=True)
class AtlasGuided(Job):
    """Guided decoding of the start policy at every guidance weight."""

    guide: AtlasGuide
    asked: int = 1024
    """Completions at each weight."""
    weights: tuple[float, ...] = WEIGHTS

    def __str__(self) -> str:
        return f"decoding under the {self.guide}"

    def work(self, cache: Path) -> Arrays:
        """Return KL, gold and proxy [T] by weight; the KL is the sum of the exact KL at every sampled token."""
        proxy = self.guide.proxy
        judge, engine = proxy.load(cache), SharedBackbone(self.guide.load(cache))
        asked = unseen_prompts(self.asked)
        rows = []
        for weight in self.weights:
            requests = [
                Request(
                    prompt,
                    preference={OBJECTIVE: 1.0},
                    weight=weight,
                    max_new_tokens=LONGEST,
                    seed=proxy.base.seed * 1_000_000 + index,
                )
                for index, prompt in enumerate(asked)
            ]
            decoded = decode(engine, requests, batch_size=BATCH_SIZE, progress=False)
            examples = [Example(prompt, completion.text) for prompt, completion in zip(asked, decoded, strict=True)]
            kl = np.array([completion.kl.sum() for completion in decoded])
            values = (kl, garden.gold().rate(examples), judge.rate(examples))
            rows.append({name: value.mean() for name, value in zip(MEASURED, values, strict=True)})
        return {"step": np.arange(1, len(rows) + 1)} | {
            name: np.array([row[name] for row in rows]) for name in MEASURED
        }
