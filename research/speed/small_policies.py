"""Speed of the worlds' small policies, compared with the general path: `rewardlab bench small_policies`.

    fast    worlds/small_policies: `sample_completions` and `train_policy`
    today   policy/decoding for samples (worlds/policies.answered), PolicyTrainer on TRL for training (studies' `Loop`)

Both alternate in one process and are measured in tokens per CPU-second, which the load of other processes affects less
than wall time; tokens are the words of the completions. Training is GRPO on a weak proxy with a KL penalty in the loss.
A study is training with the samples of unseen prompts before and after it: gold, proxy reward and KL to the start.
The paths draw other random numbers, so equal results are a matter of distributions: gold and KL after training, paired
by seed, and Kolmogorov-Smirnov tests of lengths and log-probabilities of the start policy's completions.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import ks_2samp
from transformers import PreTrainedModel, TrainerCallback

from ...benchmarks import garden
from ...benchmarks.garden.gold_reward import features
from ...benchmarks.statistics.cluster_bootstrap import t_interval
from ...policy.advantages.grpo import grpo
from ...policy.aggregations.token_mean import token_mean
from ...policy.composition.algorithm import Algorithm, Penalty
from ...policy.losses.ppo import ppo
from ...rm.models.scalar import ScalarRewardModel
from ...rm.types import Example
from ..studies._runs.policies import Loop, Proxy, rate, split_prompts, unseen_prompts
from ..worlds.guides import Base
from ..worlds.policies import answered
from ..worlds.small_policies import Completions, PolicyLoop, proxy_rewards, sample_completions, train_policy
from ..worlds.small_policies.trunk import completion_logprobs
from ._scripts import argument_parser, machine, write
from .policy import ratio

BETA, GROUP = 0.05, 8


@dataclass(frozen=True)
class Size:
    """Amounts of work; every comparison is repeated with other random numbers."""

    samples: tuple[int, ...] = (1024, 4096)
    rows: tuple[int, ...] = (64, 256)
    """Completions of a training cycle."""
    cycles: int = 8
    """Timed cycles of a repeat, after one that is not."""
    repeats: int = 5
    study_cycles: int = 20
    asked: int = 4096
    """Completions of a study's evaluation."""
    seeds: int = 6


class Setting(NamedTuple):
    """Start policy, which is also the reference of the KL, and reward."""

    start: PreTrainedModel
    reward: ScalarRewardModel


def n_words(examples: Sequence[Example]) -> int:
    """Return the number of words of completions."""
    return sum(len(example.completion.split()) for example in examples)


def rates_of(repeats: int, fast: Callable[[int], float], today: Callable[[int], float]) -> dict[str, Any]:
    """Alternate both paths and return their tokens per CPU-second, and the mean ratio with its interval."""
    rounds = [(fast(repeat), today(repeat)) for repeat in range(repeats)]
    rates = {name: list(column) for name, column in zip(("fast", "today"), zip(*rounds, strict=True), strict=True)}
    return rates | {"ratio": ratio(rates["fast"], rates["today"])}


# ---- samples ----


def sampling(setting: Setting, number: int, repeats: int) -> dict[str, Any]:
    """Measure sampling, and compare the distributions of the first repeat's completions."""
    prompts, drawn = unseen_prompts(number), {"fast": [], "today": []}

    def fast(repeat: int) -> float:
        began = time.process_time()
        completions = sample_completions(setting.start, prompts, seed=repeat)
        seconds = time.process_time() - began
        drawn["fast"].append((completions.rows.response.sum(1).numpy(), completions.logprob.sum(1).numpy()))
        return n_words(completions.examples) / seconds

    def today(repeat: int) -> float:
        began = time.process_time()
        completions = answered(setting.start, prompts, seed=repeat)
        seconds = time.process_time() - began
        facts = [(len(completion.tokens), float(completion.base.sum())) for completion in completions]
        drawn["today"].append(tuple(np.array(facts).T))
        return sum(len(completion.text.split()) for completion in completions) / seconds

    rates = rates_of(repeats, fast, today)
    samples = {name: [np.concatenate(column) for column in zip(*of, strict=True)] for name, of in drawn.items()}
    tests = {
        name: float(tuple(ks_2samp(samples["fast"][index], samples["today"][index]))[1])
        for index, name in enumerate(("length", "log-probability"))
    }
    return rates | {"Kolmogorov-Smirnov p": tests, "completions": number * repeats}


# ---- training ----


class _StepTimes(TrainerCallback):
    """CPU-seconds of every optimizer step, generation included."""

    def __init__(self):
        self.seconds: list[float] = []

    def on_step_begin(self, args, state, control, **kwargs):
        self._began = time.process_time()

    def on_step_end(self, args, state, control, **kwargs):
        self.seconds.append(time.process_time() - self._began)


def training(setting: Setting, rows: int, size: Size) -> dict[str, Any]:
    """Measure cycles of training."""

    def fast(repeat: int) -> float:
        counts, seconds = [], []

        def reward(completions: Completions) -> torch.Tensor:
            counts.append(n_words(completions.examples))
            return proxy_rewards(setting.reward, completions.rows)

        cycles = fast_training(deepcopy(setting.start), setting, reward, size.cycles + 1, rows, repeat)
        next(cycles)
        for _ in range(size.cycles + 1):
            began = time.process_time()
            next(cycles)
            seconds.append(time.process_time() - began)
        return sum(counts[1:]) / sum(seconds[1:])

    def today(repeat: int) -> float:
        counts: list[int] = []

        def reward(examples: list[Example]) -> np.ndarray:
            counts.append(n_words(examples))
            return rate(setting.reward, examples)

        loop = Loop(Base(repeat), beta=BETA, steps=size.cycles + 1, rows=rows, group=GROUP)
        with TemporaryDirectory() as folder:
            trainer, times = loop._trainer(deepcopy(setting.start), reward, folder), _StepTimes()
            trainer.add_callback(times)
            trainer.train()
        return sum(counts[1:]) / sum(times.seconds[1:])

    return rates_of(size.repeats, fast, today)


def fast_training(policy: PreTrainedModel, setting: Setting, reward: Any, cycles: int, rows: int, seed: int) -> Any:
    """Train as `Loop` does."""
    algorithm = Algorithm(grpo(), ppo(), token_mean(), penalty=Penalty(BETA, corrected=False))
    loop = PolicyLoop(cycles, prompts=rows // GROUP, group=GROUP)
    return train_policy(policy, reward, algorithm, loop, split_prompts()[0], seed=seed, reference=setting.start)


# ---- whole studies ----


def study(setting: Setting, size: Size) -> dict[str, Any]:
    """Measure studies, and the paired differences of their gold and KL after training."""
    prompts, curves = unseen_prompts(size.asked), {"fast": [], "today": []}

    def evaluate(policy: PreTrainedModel, seed: int) -> dict[str, float]:
        completions = sample_completions(policy, prompts, seed=seed)
        with torch.no_grad():
            of_start = completion_logprobs(setting.start, completions.rows)
        examples = completions.examples
        return {
            "kl": (completions.logprob - of_start).sum(1).mean().item(),
            "gold": garden.gold().rate(examples)[:, 0].mean().item(),
            "proxy": proxy_rewards(setting.reward, completions.rows).mean().item(),
            "words": n_words(examples) / len(examples),
            "flourish": float(
                np.mean([features(row.prompt[-1]["content"], row.completion).flourish for row in examples])
            ),
        }

    def proxy(completions: Completions) -> torch.Tensor:
        return proxy_rewards(setting.reward, completions.rows)

    def fast(repeat: int) -> float:
        began, policy = time.process_time(), deepcopy(setting.start)
        rows = [evaluate(policy, 2 * repeat)]
        for _ in fast_training(policy, setting, proxy, size.study_cycles, 64, repeat):
            pass
        rows.append(evaluate(policy, 2 * repeat + 1))
        curves["fast"].append(rows[-1])
        return _words_of(rows, size) / (time.process_time() - began)

    def today(repeat: int) -> float:
        loop = Loop(Base(repeat), beta=BETA, steps=size.study_cycles, every=size.study_cycles, asked=size.asked)
        began = time.process_time()
        curve = loop.train(setting.start, setting.reward, lambda _, answers, gold: _proxy_of(setting, answers))
        rows = [{name: float(values[index]) for name, values in curve.items()} for index in (0, -1)]
        curves["today"].append(rows[-1])
        return _words_of(rows, size) / (time.process_time() - began)

    rates = rates_of(size.seeds, fast, today)
    differences = {
        name: np.array([one[name] - other[name] for one, other in zip(curves["fast"], curves["today"], strict=True)])
        for name in ("gold", "kl", "proxy", "words")
    }
    table = {
        name: dict(zip(("mean", "low", "high"), map(float, t_interval(values)), strict=True))
        for name, values in differences.items()
    }
    return rates | {"after training": curves, "fast - today": table}


def _proxy_of(setting: Setting, answers: list[Example]) -> dict[str, float]:
    rewards = rate(setting.reward, answers)
    return {"proxy": rewards.mean(), "proxy_std": rewards.std(ddof=1)}


def _words_of(rows: Sequence[dict[str, float]], size: Size) -> float:
    """Return the words that a study sampled; those of training are estimated from the evaluations around it."""
    return sum(row["words"] for row in rows) * (size.asked + 32 * size.study_cycles)


# ---- report ----


def measure(setting: Setting, size: Size) -> dict[str, Any]:
    """Measure all parts."""
    environment = machine("cpu") | {"dtype": "float32"}
    return {
        "size": asdict(size),
        "machine": environment,
        "sampling": {str(number): sampling(setting, number, size.repeats) for number in size.samples},
        "training": {str(rows): training(setting, rows, size) for rows in size.rows},
        "study": {str(size.asked): study(setting, size)},
        "load at the end": machine("cpu")["load"],
    }


def markdown(measurements: dict[str, Any]) -> str:
    """Format the table as Markdown."""
    lines = ["| | completions | fast, tokens per CPU-s | today | ratio |", "|---|---|---|---|---|"]
    for part in ("sampling", "training", "study"):
        for number, of in measurements[part].items():
            mean, low, high = (f"{of['ratio'][name]:.2f}" for name in ("mean", "low", "high"))
            rates = " | ".join(f"{np.median(of[name]):,.0f}" for name in ("fast", "today"))
            lines.append(f"| {part} | {number} | {rates} | {mean} [{low}, {high}] |")
    lines += ["", "After training, fast - today:"]
    for of in measurements["study"].values():
        lines += [
            f"- {name}: {row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
            for name, row in of["fast - today"].items()
        ]
    lines += [
        f"- {number} completions, Kolmogorov-Smirnov p of {name}: {p:.2f}"
        for number, of in measurements["sampling"].items()
        for name, p in of["Kolmogorov-Smirnov p"].items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, setting: Setting | None = None, size: Size | None = None) -> None:
    """Measure and print."""
    parser = argument_parser(__doc__)
    parser.add_argument("--cache", type=Path, help="a folder for the start policy and its proxy, which are kept")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    with TemporaryDirectory() as folder:
        setting = setting or _trained(options.cache or Path(folder))
        measurements = measure(setting, size or Size())
    write(measurements, options.output)
    print(markdown(measurements))


def _trained(cache: Path) -> Setting:
    base = Base(1000)  # a pilot seed: no study counts it
    start, reward = base.load(cache), Proxy(base, "weak").load(cache)
    reward.model.eval()
    return Setting(start, reward)


if __name__ == "__main__":
    main()
