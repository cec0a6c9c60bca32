"""Jobs of the study: rounds of sampling and DPO, and GRPO with as many generated tokens."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from ....benchmarks import garden
from ....benchmarks.garden.models import tokenizer
from ....policy.decoding.engines import decoding_model
from ....policy.decoding.selection import random_pairs, select_pairs, usable_completions
from ....policy.step.algorithm import Penalty
from ....policy.training.arguments import DpoArguments
from ....policy.training.fine_tuning import encode_preferences, fine_tuning_trainer, training_encoder
from ....rm.types import PreferencePair
from ...worlds.guides import Base
from ...worlds.policies import split_prompts
from ...worlds.small_policies import Completions, PolicyLoop, clipped, sample_completions, train_policy
from .._runs.job_cache import Arrays, Job
from ..replay.runs import measure


@dataclass(frozen=True)
class Rounds(Job):
    """Rounds of sampling, pairs by gold or at random, and DPO; gold, KL and tokens after each."""

    base: Base
    at_random: bool = False
    rounds: int = 3
    prompts: int = 64
    n: int = 8
    steps: int = 12
    batch: int = 32
    learning_rate: float = 5e-4
    beta: float = 0.1
    measured: int = 512

    libraries = ("torch", "transformers", "peft", "trl")

    def __str__(self) -> str:
        pairs = "random pairs" if self.at_random else "pairs by gold"
        return f"DPO at {self.learning_rate:g}, {pairs}, seed {self.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return gold and KL [T] before and after each round, generated tokens until then, and CPU-seconds."""
        start, policy, seed = self.base.load(cache), self.base.load(cache), self.base.seed
        rows, tokens, seconds = [measure(policy, start, self.measured, seed) | {"tokens": 0, "cpu": 0.0}], 0, 0.0
        for index in range(self.rounds):
            begun = time.process_time()
            completions, rewards = self._sample(policy, index)
            tokens += int(completions.rows.response.sum())
            trained = self._train(policy, self._pairs(completions, rewards, index), index)
            policy = self.base.load(cache)  # TRL has replaced the forward pass of the trained one
            policy.load_state_dict(trained.state_dict())
            seconds += time.process_time() - begun
            rows.append(measure(policy, start, self.measured, seed + 100 * (index + 1)))
            rows[-1] |= {"tokens": tokens, "cpu": seconds}
        return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}

    def _sample(self, policy: PreTrainedModel, index: int) -> tuple[Completions, np.ndarray]:
        order = np.random.default_rng([self.base.seed, index]).permutation(len(split_prompts()[0]))
        prompts = [split_prompts()[0][row] for row in order[: self.prompts]]
        seed = 1000 * (self.base.seed + 1) + index
        completions = sample_completions(policy, [prompt for prompt in prompts for _ in range(self.n)], seed=seed)
        return completions, garden.gold().rate(completions.examples)[:, 0].reshape(-1, self.n)

    def _pairs(self, completions: Completions, rewards: np.ndarray, index: int) -> list[PreferencePair]:
        rng = np.random.default_rng([self.base.seed, index, 1])
        texts = [example.text for example in completions.examples]
        usable, _ = usable_completions([texts[at : at + self.n] for at in range(0, len(texts), self.n)], rewards)
        picks, _ = select_pairs(rewards, usable, rng)
        if self.at_random:
            picks = random_pairs(picks, usable, rng)
        rows = [(pick.prompt * self.n + pick.chosen, pick.prompt * self.n + pick.rejected) for pick in picks]
        prompt = [example.prompt for example in completions.examples]
        return [PreferencePair(str(a), prompt[a], texts[a], texts[b]) for a, b in rows]

    def _train(self, policy: PreTrainedModel, pairs: Sequence[PreferencePair], index: int) -> Any:
        decoder = decoding_model(policy, tokenizer())
        with TemporaryDirectory() as folder:
            arguments = DpoArguments(
                folder,
                max_steps=self.steps,
                per_device_train_batch_size=self.batch,
                learning_rate=self.learning_rate,
                beta=self.beta,
                seed=1000 * self.base.seed + index,
                lr_scheduler_type="constant",
                gradient_checkpointing=False,
                save_strategy="no",
                logging_strategy="no",
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
            )
            rows = encode_preferences(training_encoder(decoder, None), pairs, "truncate").rows
            trainer = fine_tuning_trainer(decoder, arguments, rows, None)
            trainer.train()
        return trainer.model


@dataclass(frozen=True)
class Grpo(Job):
    """GRPO on gold until it has generated as many tokens as all rounds of `rounds`."""

    rounds: Rounds
    learning_rate: float = 5e-4
    beta: float = 0.1
    """Coefficient of the KL to the start policy, in the loss."""
    group: int = 8
    prompts: int = 8

    def __str__(self) -> str:
        return f"GRPO, seed {self.rounds.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return gold and KL [T] where as many tokens were generated as before each round, tokens and CPU-seconds."""
        base, budgets = self.rounds.base, self.rounds.result(cache)["tokens"]
        start, policy, counts = base.load(cache), base.load(cache), [0]

        def reward(completions: Completions) -> np.ndarray:
            counts.append(int(completions.rows.response.sum()))
            return garden.gold().rate(completions.examples)[:, 0]

        algorithm = clipped(penalty=Penalty(self.beta, "loss", "k3", corrected=True))
        loop = PolicyLoop(10_000, self.prompts, self.group, learning_rate=self.learning_rate)
        reports = train_policy(policy, reward, algorithm, loop, split_prompts()[0], seed=base.seed, reference=start)
        rows, seconds, begun = [], 0.0, time.process_time()
        for _ in reports:
            seconds += time.process_time() - begun
            if sum(counts) >= budgets[len(rows)]:
                seed = base.seed + 100 * len(rows)
                rows.append(
                    measure(policy, start, self.rounds.measured, seed) | {"tokens": sum(counts), "cpu": seconds}
                )
            if len(rows) == len(budgets):
                break
            begun = time.process_time()
        return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}
