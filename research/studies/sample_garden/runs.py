"""Jobs of the study: selections by `rewardlab sample`, and simulations of the interval of the expected gain."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from ....benchmarks import garden
from ....benchmarks.garden.models import tokenizer
from ....policy.decoding.best_of_n import expected_gains
from ...worlds.policies import BATCH_SIZE, LONGEST, split_prompts
from .._runs.job_cache import Arrays, Job
from .._runs.proxies import Proxy
from .._runs.sampled import LENGTH, sample_best

MODEL, GOLD, LENGTHS = "model", "gold", "length"
SELECTORS: Mapping[str, str] = {MODEL: "reward model", GOLD: "gold", LENGTHS: "length"}
"""Rewards that select the best completion, and their names in the report."""


@dataclass(frozen=True)
class Selection(Job):
    """The best of n completions of each unseen prompt by one reward, and a random one, by `rewardlab sample`."""

    proxy: Proxy
    selector: str
    prompts: int
    n: int

    def __str__(self) -> str:
        return f"best of {self.n} by {SELECTORS[self.selector]}, seed {self.proxy.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return what `sample_best` does; the completions are the same for every selector."""
        with TemporaryDirectory() as scratch:
            policy, model = Path(scratch) / "policy", Path(scratch) / "model"
            for part in (self.proxy.base.load(cache), tokenizer()):
                part.save_pretrained(policy)
            self.proxy.load(cache).save(model)
            sources = {MODEL: str(model), GOLD: f"{garden.__name__}:gold", LENGTHS: LENGTH}
            return sample_best(
                Path(scratch) / "sample",
                split_prompts()[1][: self.prompts],
                {self.selector: sources[self.selector]} | sources,
                base=str(policy),
                n=self.n,
                max_new_tokens=LONGEST,
                batch_size=BATCH_SIZE,
                seed=self.proxy.base.seed,
            )


@dataclass(frozen=True)
class Coverage(Job):
    """Whether the interval of the expected gain contains the truth, in simulations from a large pool of completions."""

    proxy: Proxy
    simulations: int
    prompts: int
    n: int

    def __str__(self) -> str:
        return f"intervals over {self.prompts} prompts, seed {self.proxy.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return for the reward and for gold the truth [S], and value, low and high [simulations, S, 3] for each n."""
        pools = {MODEL: self.proxy.result(cache)["rewards"], GOLD: self.proxy.samples.result(cache)["gold"]}
        reward, draw = pools[MODEL], np.random.default_rng([self.proxy.base.seed, self.prompts])
        ns = [2**power for power in range(1, self.n.bit_length()) if 2**power <= min(self.n, reward.shape[1])]
        arrays: Arrays = {"n": np.array(ns)}
        for name, values in pools.items():
            arrays[f"{name} truth"] = _gains(reward, values, ns)[:, 0]
        estimates: dict[str, list[np.ndarray]] = {name: [] for name in pools}
        for _ in range(self.simulations):
            rows = draw.integers(len(reward), size=(self.prompts, 1))
            columns = draw.permuted(np.tile(np.arange(reward.shape[1]), (self.prompts, 1)), axis=1)[:, : self.n]
            for name, values in pools.items():
                estimates[name].append(_gains(reward[rows, columns], values[rows, columns], ns))
        return arrays | {name: np.array(parts) for name, parts in estimates.items()}


def _gains(rewards: np.ndarray, values: np.ndarray, ns: list[int]) -> np.ndarray:
    """Return value, low and high [S, 3] of the expected gain in values of the best of each n by reward."""
    return np.array([gain[1:4] for gain in expected_gains(torch.from_numpy(rewards), torch.from_numpy(values), ns)])
