"""Policies trained on reward models that know the truth more or less, where the truth is known."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...report import table
from ...statistics.cluster_bootstrap import Estimate, t_interval
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
)
from ...types import Say, Study
from ...worlds.guides import Base
from .._job_cache import Arrays, Job, run_jobs
from .._policy_runs import HELD_OUT, OWN, BestOfN, Loop, Proxy

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
    """How much of everything."""

    seed: int = 0
    seeds: int = 5
    steps: int = 60
    long_steps: int = 150
    every: int = 5
    asked: int = 256
    share: float = 1.0
    """Of what start policies and proxies learn from."""

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """A try-out in which everything is run and nothing is learnt."""
        return cls(seed, seeds=2, steps=2, long_steps=2, every=1, asked=rows, share=0.02)

    def bases(self) -> list[Base]:
        """The start policies."""
        whole = Base(0)
        steps, texts = int(self.share * whole.steps), int(self.share * whole.texts)
        return [Base(seed, steps=steps, texts=texts) for seed in range(self.seed, self.seed + self.seeds)]

    def proxies(self, quality: str) -> list[Proxy]:
        """One for every start policy."""
        return [Proxy(base, quality, self.share) for base in self.bases()]

    def loops(self, arms: Mapping[str, Mapping[str, Any]], steps: int, quality: str = "") -> dict[str, list[Loop]]:
        """Every arm at every seed; on gold where no proxy's quality is named."""
        shared = {"steps": steps, "every": self.every, "asked": self.asked}
        rewards = self.proxies(quality) if quality else [None] * self.seeds
        return {
            name: [Loop(base, reward, **shared, **arm) for base, reward in zip(self.bases(), rewards, strict=True)]
            for name, arm in arms.items()
        }

    def best(self, quality: str) -> list[BestOfN]:
        """On four times as many answers as a loop is measured by."""
        return [BestOfN(one, 4 * self.asked) for one in self.proxies(quality)]


class Results(NamedTuple):
    """Everything that the report tells of."""

    plan: Plan
    good: list[Record]
    weak: list[Record]
    critic: dict[str, list[Arrays]]
    accuracies: dict[str, dict[str, list[float]]]


def overoptimisation(
    cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, say: Say = print
) -> Study:
    """Train policies by GRPO, RLOO and PPO in the garden and see what becomes of the true reward.

    No data are read. What is trained is kept in `cache`. `rows` shortens everything, for a try-out.
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
        ("proxies", [one for of_quality in proxies.values() for one in of_quality]),
        *((name, [one for arm in arms.values() for one in arm]) for name, arms in loops.items()),
        ("best of n", [*plan.best("good"), *plan.best("weak")]),
    ]
    for name, jobs in stages:
        say(name)
        run_jobs(jobs, cache, workers, say)
    told = {name: _records(loops[name], plan.best(name), cache) for name in ("good", "weak")}
    critic = {name: [one.result(cache) for one in arm] for name, arm in loops["critic"].items()}
    results = Results(plan, told["good"], told["weak"], critic, _accuracies(proxies, cache))
    facts = {
        "plan": asdict(plan),
        "must_hold": [one._asdict() for one in criteria(results)],
        "records": [*results.good, *results.weak],
        "accuracies": results.accuracies,
    }
    return Study(text(results), [], {"good": figure(results.good), "weak": figure(results.weak)}, {}, facts)


def _records(arms: Mapping[str, Sequence[Loop]], best: Sequence[BestOfN], cache: Path) -> list[Record]:
    """Of every run and step, and of best-of-n."""
    found = [_rows(run.result(cache), arm, run.base.seed) for arm, runs in arms.items() for run in runs]
    found += [_rows(one.result(cache), BEST_OF_N, one.proxy.base.seed) for one in best]
    return [record for rows in found for record in rows]


def _rows(result: Arrays, arm: str, seed: int) -> list[Record]:
    """A run's arrays [T] as records."""
    names = [name for name in ("step", *MEASURED, *SPREADS, "words", "flourish") if name in result]
    steps = range(len(result["step"]))
    return [{"arm": arm, "seed": seed} | {name: result[name][step].item() for name in names} for step in steps]


def _accuracies(proxies: Mapping[str, Sequence[Proxy]], cache: Path) -> dict[str, dict[str, list[float]]]:
    return {
        quality: {name: [float(one.result(cache)[name]) for one in of_quality] for name in (HELD_OUT, OWN)}
        for quality, of_quality in proxies.items()
    }


# ---- what was claimed ----


class Criterion(NamedTuple):
    """Something that has to hold, and whether it does."""

    claim: str
    found: str
    holds: bool


def criteria(results: Results) -> list[Criterion]:
    """Of the three algorithms, of the hump and of the critic."""
    found, gains, runs = [], gain(results.good), curves(results.good)
    for arm in GOOD_ARMS:
        most = max(run.kl[-1] for run in runs[arm].values())
        claim = f"{arm}: gold + {GAIN} standard deviations at a KL below {MOST_KL:g}"
        holds = bool(gains[arm].value >= GAIN and gains[arm].low > 0 and most < MOST_KL)
        found.append(Criterion(claim, f"{_told(gains[arm])}, KL at most {most:.1f}", holds))
    accuracies = results.accuracies["weak"][HELD_OUT]
    within = all(ACCURACY[0] <= accuracy <= ACCURACY[1] for accuracy in accuracies)
    told = ", ".join(f"{accuracy:.3f}" for accuracy in accuracies)
    found.append(Criterion(f"the weak proxies' accuracy lies in {ACCURACY[0]} to {ACCURACY[1]:.2f}", told, within))
    one = hump(results.weak)["GRPO, weak proxy, no KL"]
    told = f"gold lost since its peak {_told(one.fall)}, proxy gained meanwhile {_told(one.rise)}"
    found.append(Criterion("weak proxy, no KL: gold falls while the proxy rises", told, bool(one.over_optimised)))
    return [*found, *_critic_criteria(results.critic["critic"])]


def _critic_criteria(runs: Sequence[Arrays]) -> list[Criterion]:
    own, others = (_explained(runs, name) for name in ("first", "of_others"))
    difference = t_interval(own - others)
    return [
        Criterion(
            f"critic: explained variance at an answer's first token on unseen prompts above {EXPLAINED}",
            _told(t_interval(own)),
            bool(t_interval(own).low > EXPLAINED),
        ),
        Criterion(
            "critic: above the mean of the other answers to the prompt",
            f"difference {_told(difference)}",
            bool(difference.low > 0),
        ),
    ]


def _explained(runs: Sequence[Arrays], name: str) -> np.ndarray:
    return np.array([float(run[f"explained_variance_{name}"]) for run in runs])


def _told(one: Estimate) -> str:
    return f"{one.value:+.2f} [{one.low:+.2f}, {one.high:+.2f}]"


# ---- the report ----


def text(results: Results) -> str:
    """Markdown."""
    parts = (_head, _good, _weak, _critic, _limits)
    return "\n".join(line for part in parts for line in [*part(results), ""])


def _head(results: Results) -> list[str]:
    plan, lines = results.plan, [[one.claim, one.found, "yes" if one.holds else "**no**"] for one in criteria(results)]
    return [
        "# Over-optimisation of reward models by GRPO, RLOO and PPO",
        "",
        f"In the garden, whose true (gold) reward is a function of the text. {plan.seeds} seeds: of the start policy "
        f"(100,000 weights), of the proxy and of training. Every {plan.every} steps {plan.asked} answers to "
        "prompts that training does not see are rated; a step is 64 answers, 8 to a prompt. Gains are in standard "
        "deviations of the start policy's answers; brackets are Student's 95 % intervals over seeds.",
        "",
        table(["claim", "found", "holds"], lines),
    ]


def _good(results: Results) -> list[str]:
    told = results.accuracies["good"]
    return [
        "## A proxy that knows gold well",
        "",
        f"Reward models that order {_range(told[HELD_OUT])} of held-out pairs as gold does, and {_range(told[OWN])} of "
        "pairs that the start policy writes. GRPO and RLOO have the KL in the loss (β = 0.1), PPO in the "
        "tokens' rewards.",
        "",
        hump_table(results.good),
        "",
        matched_table(results.good, GRID),
        "",
        "![Gold and proxy at matched KL](good.png)",
    ]


def _weak(results: Results) -> list[str]:
    told = results.accuracies["weak"]
    return [
        "## A proxy that knows it badly",
        "",
        f"{_range(told[HELD_OUT])} of held-out pairs, {_range(told[OWN])} of the start policy's own.",
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
        ["critic", _told(t_interval(_explained(runs, "first")))],
        ["mean of the prompt's 7 other answers", _told(t_interval(_explained(runs, "of_others")))],
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
        f"and steps: {_told(paired)} standard deviations.",
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


def _range(values: Sequence[float]) -> str:
    return f"{100 * min(values):.0f} to {100 * max(values):.0f} %"
