"""Over-optimisation study: policies trained on accurate and inaccurate reward models, with a known true reward."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....benchmarks.report import table
from ....benchmarks.statistics.cluster_bootstrap import t_interval
from ....benchmarks.types import Criterion, Log, Study
from ...statistics.overoptimisation import (
    BEST_OF_N,
    MEASURED,
    SPREADS,
    Record,
    curves,
    figure,
    gain,
    hump,
    hump_table,
    matched_table,
    percent_range,
)
from ...worlds.guides import Base
from .._runs.job_cache import Arrays, Job, run_jobs
from .._runs.policies import HELD_OUT, OWN_SAMPLES, BestOfN, Loop, Proxy

GAIN, MOST_KL, EXPLAINED = 0.3, 10.0, 0.3
ACCURACY = (0.62, 0.70)
GRID = np.array([1.0, 2.0, 5.0, 10.0])
TOKENS = {"advantage": "gae", "place": "token", "critic": True, "white": True}
GOOD_ARMS: dict[str, dict[str, Any]] = {
    "GRPO": {"advantage": "grpo", "beta": 0.1},
    "RLOO": {"advantage": "rloo", "beta": 0.1},
    "PPO, β = 0.2": TOKENS | {"beta": 0.2},
    "PPO, β = 0.1": TOKENS | {"beta": 0.1},
}
WEAK_ARMS: dict[str, dict[str, Any]] = {
    "GRPO, weak proxy, no KL": {"advantage": "grpo"},
    "GRPO, weak proxy": {"advantage": "grpo", "beta": 0.1},
}
CRITIC_ARMS: dict[str, dict[str, Any]] = {
    "critic": TOKENS | {"beta": 0.1},
    "batch mean": {"advantage": "reinforce_pp", "place": "token", "beta": 0.1},
}


@dataclass(frozen=True)
class Plan:
    """Numbers of seeds, steps and samples."""

    seed: int = 0
    seeds: int = 5
    steps: int = 60
    long_steps: int = 150
    every: int = 5
    asked: int = 256
    share: float = 1.0
    """Fraction of the training data of start policies and proxies."""

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        return cls(seed, seeds=2, steps=2, long_steps=2, every=1, asked=rows, share=0.02)

    def bases(self) -> list[Base]:
        """Return the start policy of every seed."""
        full = Base(0)
        steps, texts = int(self.share * full.steps), int(self.share * full.texts)
        return [Base(seed, steps=steps, texts=texts) for seed in range(self.seed, self.seed + self.seeds)]

    def proxies(self, quality: str) -> list[Proxy]:
        """Return a proxy for every start policy."""
        return [Proxy(base, quality, self.share) for base in self.bases()]

    def loops(self, arms: Mapping[str, Mapping[str, Any]], steps: int, quality: str = "") -> dict[str, list[Loop]]:
        """Return every arm at every seed; the reward is gold if `quality` is empty."""
        shared = {"steps": steps, "every": self.every, "asked": self.asked}
        rewards = self.proxies(quality) if quality else [None] * self.seeds
        return {
            name: [Loop(base, reward, **shared, **arm) for base, reward in zip(self.bases(), rewards, strict=True)]
            for name, arm in arms.items()
        }

    def best(self, quality: str) -> list[BestOfN]:
        """Return best-of-n jobs, on four times as many completions as a loop is evaluated on."""
        return [BestOfN(proxy, 4 * self.asked) for proxy in self.proxies(quality)]


class Results(NamedTuple):
    """All results that the report shows."""

    plan: Plan
    good: list[Record]
    weak: list[Record]
    critic: dict[str, list[Arrays]]
    accuracies: dict[str, dict[str, list[float]]]


def overoptimisation(
    cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print
) -> Study:
    """Train policies by GRPO, RLOO and PPO in the garden world and measure the true reward during training.

    No data are read. Trained models are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    plan = Plan(seed) if rows is None else Plan.short(seed, rows)
    loops = {
        "good": plan.loops(GOOD_ARMS, plan.steps, "good"),
        "weak": plan.loops(WEAK_ARMS, plan.long_steps, "weak"),
        "critic": plan.loops(CRITIC_ARMS, plan.steps),
    }
    proxies = {quality: plan.proxies(quality) for quality in ("good", "weak")}
    stages: list[tuple[str, Sequence[Job]]] = [
        ("start policies", plan.bases()),
        ("proxies", [proxy for of_quality in proxies.values() for proxy in of_quality]),
        *((name, [run for arm in arms.values() for run in arm]) for name, arms in loops.items()),
        ("best of n", [*plan.best("good"), *plan.best("weak")]),
    ]
    for name, jobs in stages:
        log(name)
        run_jobs(jobs, cache, workers, log)
    records = {name: _records(loops[name], plan.best(name), cache) for name in ("good", "weak")}
    critic = {name: [run.result(cache) for run in arm] for name, arm in loops["critic"].items()}
    results = Results(plan, records["good"], records["weak"], critic, _accuracies(proxies, cache))
    facts = {
        "plan": asdict(plan),
        "must_hold": [criterion._asdict() for criterion in criteria(results)],
        "records": [*results.good, *results.weak],
        "accuracies": results.accuracies,
    }
    return Study(text(results), [], {"good": figure(results.good), "weak": figure(results.weak)}, {}, facts)


def _records(arms: Mapping[str, Sequence[Loop]], best: Sequence[BestOfN], cache: Path) -> list[Record]:
    """Return the records of every run and step, and of best-of-n."""
    by_run = [_rows(run.result(cache), arm, run.base.seed) for arm, runs in arms.items() for run in runs]
    by_run += [_rows(selection.result(cache), BEST_OF_N, selection.proxy.base.seed) for selection in best]
    return [record for rows in by_run for record in rows]


def _rows(result: Arrays, arm: str, seed: int) -> list[Record]:
    """Convert a run's arrays [T] to records."""
    names = [name for name in ("step", *MEASURED, *SPREADS, "words", "flourish") if name in result]
    steps = range(len(result["step"]))
    return [{"arm": arm, "seed": seed} | {name: result[name][step].item() for name in names} for step in steps]


def _accuracies(proxies: Mapping[str, Sequence[Proxy]], cache: Path) -> dict[str, dict[str, list[float]]]:
    return {
        quality: {name: [float(proxy.result(cache)[name]) for proxy in of_quality] for name in (HELD_OUT, OWN_SAMPLES)}
        for quality, of_quality in proxies.items()
    }


# ---- claims ----


def criteria(results: Results) -> list[Criterion]:
    """Check the claims about the three algorithms, over-optimisation and the critic."""
    checked, gains, runs = [], gain(results.good), curves(results.good)
    for arm in GOOD_ARMS:
        most = max(run.kl[-1] for run in runs[arm].values())
        claim = f"{arm}: gold + {GAIN} standard deviations at a KL below {MOST_KL:g}"
        holds = bool(gains[arm].value >= GAIN and gains[arm].low > 0 and most < MOST_KL)
        checked.append(Criterion(claim, f"{gains[arm].formatted()}, KL at most {most:.1f}", holds))
    accuracies = results.accuracies["weak"][HELD_OUT]
    within = all(ACCURACY[0] <= accuracy <= ACCURACY[1] for accuracy in accuracies)
    listed = ", ".join(f"{accuracy:.3f}" for accuracy in accuracies)
    checked.append(Criterion(f"the weak proxies' accuracy lies in {ACCURACY[0]} to {ACCURACY[1]:.2f}", listed, within))
    decline = hump(results.weak)["GRPO, weak proxy, no KL"]
    fall, rise = decline.fall.formatted(), decline.rise.formatted()
    changes = f"gold lost since its peak {fall}, proxy gained meanwhile {rise}"
    claim = "weak proxy, no KL: gold falls while the proxy rises"
    checked.append(Criterion(claim, changes, bool(decline.over_optimised)))
    return [*checked, *_critic_criteria(results.critic["critic"])]


def _critic_criteria(runs: Sequence[Arrays]) -> list[Criterion]:
    by_critic, others = (_explained(runs, name) for name in ("first", "of_others"))
    difference = t_interval(by_critic - others)
    return [
        Criterion(
            f"critic: explained variance at an answer's first token on unseen prompts above {EXPLAINED}",
            t_interval(by_critic).formatted(),
            bool(t_interval(by_critic).low > EXPLAINED),
        ),
        Criterion(
            "critic: above the mean of the other answers to the prompt",
            f"difference {difference.formatted()}",
            bool(difference.low > 0),
        ),
    ]


def _explained(runs: Sequence[Arrays], name: str) -> np.ndarray:
    return np.array([float(run[f"explained_variance_{name}"]) for run in runs])


# ---- report ----


def text(results: Results) -> str:
    """Return the report in Markdown."""
    parts = (_head, _good, _weak, _critic, _limits)
    return "\n".join(line for part in parts for line in [*part(results), ""])


def _head(results: Results) -> list[str]:
    plan, checked = results.plan, criteria(results)
    lines = [[criterion.claim, criterion.measured, "yes" if criterion.holds else "**no**"] for criterion in checked]
    return [
        "# Over-optimisation of reward models by GRPO, RLOO and PPO",
        "",
        f"In the garden, whose true (gold) reward is a function of the text. {plan.seeds} seeds: of the start policy "
        f"(100,000 weights), of the proxy and of training. Every {plan.every} steps {plan.asked} answers to "
        "prompts that training does not see are rated; a step is 64 answers, 8 to a prompt. Gains are in standard "
        "deviations of the start policy's answers; brackets are Student's 95 % intervals over seeds.",
        "",
        table(["claim", "measured", "holds"], lines),
    ]


def _good(results: Results) -> list[str]:
    accuracies = results.accuracies["good"]
    return [
        "## A proxy that knows gold well",
        "",
        f"Reward models that order {percent_range(accuracies[HELD_OUT])} of held-out pairs as gold does, and "
        f"{percent_range(accuracies[OWN_SAMPLES])} of pairs that the start policy writes. GRPO and RLOO have the KL "
        "in the loss (β = 0.1), PPO in the tokens' rewards.",
        "",
        hump_table(results.good),
        "",
        matched_table(results.good, GRID),
        "",
        "![Gold and proxy at matched KL](good.png)",
    ]


def _weak(results: Results) -> list[str]:
    accuracies = results.accuracies["weak"]
    return [
        "## A proxy that knows it badly",
        "",
        f"{percent_range(accuracies[HELD_OUT])} of held-out pairs, {percent_range(accuracies[OWN_SAMPLES])} of the "
        "start policy's own.",
        "",
        hump_table(results.weak),
        "",
        matched_table(results.weak, GRID),
        "",
        "![Gold and proxy at matched KL](weak.png)",
    ]


def _critic(results: Results) -> list[str]:
    with_critic, without = (np.array([run["gold"][-1] for run in results.critic[name]]) for name in CRITIC_ARMS)
    spread = np.array([run["gold_std"][0] for run in results.critic["critic"]])
    runs, paired = results.critic["critic"], t_interval((with_critic - without) / spread)
    lines = [
        ["critic", t_interval(_explained(runs, "first")).formatted()],
        ["mean of the prompt's 7 other answers", t_interval(_explained(runs, "of_others")).formatted()],
    ]
    return [
        "## What the critic is worth",
        "",
        "The reward is gold minus a bar that depends on the prompt, so that much of it is known before the answer "
        "begins. Explained variance of an answer's reward on unseen prompts, after training:",
        "",
        table(["prediction", "explained variance"], lines),
        "",
        f"Gold at the end with the critic (GAE, λ = 0.95) minus that with the batch's mean (REINFORCE++), same seeds "
        f"and steps: {paired.formatted()} standard deviations.",
    ]


def _limits(results: Results) -> list[str]:
    return [
        "## Limits",
        "",
        "- A toy: word-level text of at most 32 words, models of 100,000 weights that train a step in half a second. "
        "It tests the loop and shows the phenomenon; its sizes say nothing about large models.",
        "- β, learning rates, steps and critic were chosen by hand on seeds 100 and 101, which are in no table. That "
        "PPO's β was to be 0.2 and its critic to have a hidden layer was chosen when its advantages added the critic's "
        "value behind the last token to the reward of a truncated completion. With that defect β = 0.1 had ended at a "
        "KL of 13 with gold at -0.84 [-2.80, +1.13], and β = 0.2 at a KL of 1.9 with +0.96 [+0.80, +1.11].",
        f"- {results.plan.seeds} seeds; intervals of Student's t assume that they are alike.",
        "- The KL of best-of-n is an upper bound, so its curve lies too far right if anything.",
    ]
