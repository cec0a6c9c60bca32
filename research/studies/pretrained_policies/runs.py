"""Jobs of the study: proxies, trained policies, their completions of held-out prompts, and rewards of these."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....apps.api import decode, reinforce
from ....rm.data.scored_rows import Judged
from ....rm.errors import CheckFailed
from ....rm.load import load_reward_model
from ....rm.types import Example
from .._runs import checked_requests
from .._runs.job_cache import Arrays, Job
from .._runs.saved_models import SavedModel, model_folder
from ..pretrained_guides.models import DTYPE, MAX_LENGTH, Rater
from ..pretrained_guides.texts import LONGEST_RATED, load_texts

HELPFUL = "helpful"
VERIFIABLE, GRPO, PPO, R2M, STALE = "verifiable reward", "GRPO", "PPO", "R2M", "R2M, stale states"
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    VERIFIABLE: {},
    GRPO: {},
    PPO: {
        "advantage": "gae",
        "critic": True,
        "advantage_transform": ["whiten"],
        "kl": 0.05,
        "kl_place": "token",
    },
    R2M: {},
    STALE: {},
}
"""Settings of each arm beside `COMMON`; GRPO's others are defaults."""
COMMON: Mapping[str, Any] = {
    "lora": True,
    "lora_r": 16,
    "learning_rate": 1e-4,
    "lr_scheduler_type": "constant",
    "num_generations": 8,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "save_strategy": "no",
    "disable_tqdm": True,
    "use_cpu": True,
    "dtype": DTYPE,
}
METRICS = ("reward", "watch/kl", "completions/mean_length")


@dataclass(frozen=True)
class Proxy(SavedModel):
    """MiniLM trained on the helpful pairs of the part `guides`, the reward that policies are trained on."""

    def work(self, cache: Path) -> Arrays:
        """Train it; return the gaps of the helpful test pairs."""
        texts = load_texts(cache, self.texts)
        training = texts.short("guides", HELPFUL, LONGEST_RATED)
        settings = {"objectives": [HELPFUL], "model": self.source(), "max_length": MAX_LENGTH, "chat_template": "plain"}
        facts = self.train(cache, "scalar", settings, Judged(training, []), len(training))
        model = load_reward_model(str(self.folder(cache)), check=False)
        examples = [example for pair in texts.short("test", HELPFUL, LONGEST_RATED) for example in pair.examples]
        rewards = model.rate(examples)[:, 0]
        return facts | {"gaps": rewards[::2] - rewards[1::2]}

    @property
    def epochs(self) -> float:
        """Passes over the pairs, as the raters'."""
        return 2.0


@dataclass(frozen=True)
class Policy(Job):
    """SmolLM2 trained with LoRA by one arm's algorithm and reward; its folder is beside the result."""

    model: str
    arm: str
    seed: int
    steps: int
    longest: int
    proxy: Proxy | None = None
    """The reward model; without one the reward is that of requests that can be checked."""
    gold: Rater | None = None
    """Logged at every step, and never trained on."""

    def __str__(self) -> str:
        return f"{self.arm}, seed {self.seed}"

    def folder(self, cache: Path) -> Path:
        """Return the run folder."""
        return self.file(cache).with_suffix("")

    def work(self, cache: Path) -> Arrays:
        """Train it; return the metrics of every step, with gold's mean where the prompts are the reward model's."""
        started, (data, sources) = time.time(), self.prompts_and_rewards(cache)
        with suppress(CheckFailed):  # a policy that learned nothing is a result, and its folder is complete
            reinforce(
                model_folder(self.model),
                data,
                output=str(self.folder(cache)),
                max_steps=self.steps,
                max_completion_length=self.longest,
                seed=self.seed,
                overwrite=True,
                **sources,
                **COMMON,
                **SETTINGS[self.arm],
            )
        lines = (self.folder(cache) / "steps.jsonl").read_text(encoding="utf-8").splitlines()
        steps = [row for row in map(json.loads, lines) if "reward" in row]
        names = [*METRICS, *(["rewards/gold/mean"] if self.gold else [])]
        metrics = {name: np.array([row.get(name, np.nan) for row in steps], float) for name in names}
        return metrics | {"seconds": np.array(time.time() - started)}

    def prompts_and_rewards(self, cache: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the rows of training, and the settings of its rewards."""
        if self.proxy is None or self.gold is None:
            return checked_requests.requests(held_out=False), {
                "reward": {"fulfilled": f"{checked_requests.__name__}:fulfilled"}
            }
        proxy = str(self.proxy.folder(cache))
        control = ", control=stale" if self.arm == STALE else ""
        source = f"r2m(model={proxy}{control})" if self.arm in (R2M, STALE) else proxy
        rows = [{"prompt": list(pair.prompt)} for pair in load_texts(cache, self.proxy.texts).short("guides", HELPFUL)]
        return rows, {"reward": {"rm": source}, "watch": [f"gold={self.gold.folder(cache)}"]}


@dataclass(frozen=True)
class Samples(Job):
    """Completions [P, S + 1] of held-out prompts by a policy or by the model it started from; the first is greedy."""

    model: str
    policy: Policy | None
    texts: str
    """Name of the texts of the prompts; without one they are requests that can be checked."""
    prompts: int
    samples: int
    longest: int

    def __str__(self) -> str:
        return f"completions by {self.policy or 'the start policy'}"

    def work(self, cache: Path) -> Arrays:
        """Decode the prompts greedily, and `samples` times at a temperature of 1."""
        source = str(self.policy.folder(cache) / "policy") if self.policy else model_folder(self.model)
        prompts = self.requests(cache)
        columns = []
        for sample in range(self.samples + 1):
            done = decode(
                prompts=prompts,
                base=source,
                max_new_tokens=self.longest,
                temperature=1.0 if sample else 0.0,
                seed=sample,
                batch_size=30,
                dtype=DTYPE,
            )
            columns.append([row["completion"] for row in done.rows])
        return {"texts": np.array(columns).T}

    def requests(self, cache: Path) -> list[Any]:
        """Return the held-out prompts."""
        if not self.texts:
            return [row["prompt"] for row in checked_requests.requests(held_out=True)[: self.prompts]]
        return [list(prompt) for prompt in load_texts(cache, self.texts).prompts(2 * self.prompts)[::2]]


@dataclass(frozen=True)
class Rewards(Job):
    """Rewards [P, S + 1] of completions by a reward model."""

    rated_by: Proxy | Rater
    samples: Samples

    def __str__(self) -> str:
        return f"rewards of {self.samples}"

    def work(self, cache: Path) -> Arrays:
        """Return the rewards."""
        texts, prompts = self.samples.result(cache)["texts"], self.samples.requests(cache)
        examples = [
            Example(tuple(prompt), str(text)) for prompt, row in zip(prompts, texts, strict=True) for text in row
        ]
        model = load_reward_model(str(self.rated_by.folder(cache)), check=False)
        return {"rewards": model.rate(examples)[:, 0].reshape(texts.shape)}
