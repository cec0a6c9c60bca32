"""R2M study in the garden world: whether a reward model that reads the policy's states over-optimises less."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....benchmarks.types import Log, Study
from ...statistics.overoptimisation import Record, figure, percent_range
from ...worlds.guides import Base
from ...worlds.policies import LONGEST
from .._runs.job_cache import Job, run_jobs
from .._runs.policies import HELD_OUT, OWN_SAMPLES, Loop, Proxy
from .report import Claim, claims, claims_table, design_note, facts, facts_table, gold_table
from .runs import EPOCHS, JUDGE, MEMBERS, PESSIMISM, SAMPLES, Arm, R2MRun

AHEAD = 5
R2M = Arm()
START_STD = (2 / (2 * Base(0).hidden)) ** 0.5  # of a Xavier-initialised square matrix
LABELLED = {"alpha": 0.0, "zero_out": True}
MAIN_ARMS: dict[str, dict[str, Any]] = {
    "frozen": {"control": "frozen"},
    "iterative head": {"control": "iterative_head"},
    "R2M": {},
    "stale states": {"control": "stale"},
    "shuffled states": {"control": "shuffled"},
    "head, gold 1/12": LABELLED | {"control": "iterative_head", "labels": "gold", "share": 1 / 12},
    "R2M, gold 1/12": LABELLED | {"labels": "gold", "share": 1 / 12},
    "head, gold 1/4": LABELLED | {"control": "iterative_head", "labels": "gold", "share": 1 / 4},
    "R2M, gold 1/4": LABELLED | {"labels": "gold", "share": 1 / 4},
    "head, gold": LABELLED | {"control": "iterative_head", "labels": "gold"},
    "R2M, gold": LABELLED | {"labels": "gold"},
    "R2M, random labels": LABELLED | {"labels": "random"},
}
OTHER_ARMS: dict[str, dict[str, Any]] = {
    "noise for states": {"control": "noise"},
    "fixed vector": {"control": "fixed"},
    "not trained": {"control": "not_trained"},
    "pairs alone (α = 0)": {"alpha": 0.0},
    "entropy alone (α = 1)": {"alpha": 1.0},
    "entropy, std held": {"spread": "stopgrad"},
    "W_o from 0": {"zero_out": True},
    "whole model learns": {"control": "full_update", "learning_rate": 1e-4},
    "R2M, judge 1/4": LABELLED | {"labels": "judge", "share": 1 / 4},
    "stale states, gold 1/4": LABELLED | {"control": "stale", "labels": "gold", "share": 1 / 4},
    "taught before": {"control": "frozen", "body": "pretrained"},
    "ensemble": {"control": "frozen", "body": "ensemble"},
    "baseline by states": {"control": "frozen"},
}
LOOPS: dict[str, dict[str, Any]] = {
    "baseline by states": {"advantage": "gae", "settings": (("lam", 1.0),), "critic": True},
}
"""Settings of the arms whose loop differs."""
FIGURES = {
    "self": ["frozen", "iterative head", "R2M", "stale states", "shuffled states"],
    "labels": ["frozen", "head, gold 1/4", "R2M, gold 1/4", "R2M, gold", "R2M, random labels"],
}


@dataclass(frozen=True)
class Plan:
    """Numbers of seeds, cycles and samples, and the loop's settings."""

    seed: int = 0
    seeds: int = 10
    other_seeds: int = 5
    cycles: int = 60
    every: int = 5
    """Cycles between measurements."""
    asked: int = 192
    groups: int = 24
    group: int = 4
    passes: int = 2
    beta: float = 0.02
    learning_rate: float = 2e-4
    share: float = 1.0
    """Fraction of the training data of start policies and proxies."""

    @classmethod
    def short(cls, seed: int, rows: int) -> "Plan":
        """Return a plan for a dry run: every job runs, with too little data and too few steps to learn."""
        return cls(seed, seeds=1, other_seeds=1, cycles=2, every=1, asked=rows, groups=3, group=3, share=0.02)

    def runs(self) -> dict[str, list[R2MRun]]:
        """Return the runs of every arm at every seed."""
        seeds_of_arms = [(MAIN_ARMS, self.seeds), (OTHER_ARMS, self.other_seeds)]
        return {
            name: [R2MRun(self.loop(name, seed), Arm(**arm)) for seed in range(self.seed, self.seed + seeds)]
            for arms, seeds in seeds_of_arms
            for name, arm in arms.items()
        }

    def loop(self, arm: str, seed: int) -> Loop:
        """Return an arm's loop: RLOO with whitened advantages, so that a reward's scale does not matter."""
        full = Base(seed)
        base = replace(full, steps=int(self.share * full.steps), texts=int(self.share * full.texts))
        return Loop(
            base,
            Proxy(base, "weak", self.share),
            **({"advantage": "rloo", "white": True} | LOOPS.get(arm, {})),
            beta=self.beta,
            passes=self.passes,
            steps=self.cycles * self.passes,
            every=self.every * self.passes,
            learning_rate=self.learning_rate,
            rows=self.groups * self.group,
            group=self.group,
            asked=self.asked,
        )


class Results(NamedTuple):
    """All results that the report shows."""

    plan: Plan
    records: list[Record]
    calls: dict[str, float]
    """Mean number of labels that a run of the arm requested."""
    accuracies: dict[str, list[float]]
    """Accuracies of the proxies."""


def r2m(cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print) -> Study:
    """Train policies on R2M and its controls in the garden, and compare gold at equal KL from the start policy.

    No data are read. Trained models are stored in `cache`. `rows` shortens everything, for a dry run.
    """
    plan = Plan(seed) if rows is None else Plan.short(seed, rows)
    runs = plan.runs()
    for stage in stages(runs):
        run_jobs(stage, cache, workers, log)
    return build_study(results(plan, runs, cache))


def stages(runs: Mapping[str, Sequence[R2MRun]]) -> list[Sequence[Job]]:
    """Return the jobs in order of dependency; runs by seed, the main arms `AHEAD` seeds ahead of the others."""
    every = [run for arm in runs.values() for run in arm]
    turn = {run: run.loop.base.seed + AHEAD * (arm in OTHER_ARMS) for arm, arm_runs in runs.items() for run in arm_runs}
    proxies = [proxy for run in every for proxy in run.arm.proxies(run.loop)]
    taught = [run.arm.taught(run.loop) for run in every if run.arm.body == "pretrained"]
    return [[proxy.base for proxy in proxies], [*proxies], [*taught], sorted(every, key=turn.__getitem__)]


def results(plan: Plan, runs: Mapping[str, Sequence[R2MRun]], cache: Path) -> Results:
    """Read the results of all runs from the cache."""
    by_seed = {arm: [(run.loop.base.seed, run.result(cache)) for run in arm_runs] for arm, arm_runs in runs.items()}
    records = [
        {"arm": arm, "seed": seed} | {name: values[index].item() for name, values in result.items() if values.ndim}
        for arm, arm_runs in by_seed.items()
        for seed, result in arm_runs
        for index in range(len(result["step"]))
    ]
    calls = {arm: float(np.mean([result["calls"] for _, result in arm_runs])) for arm, arm_runs in by_seed.items()}
    proxies = [run.arm.proxies(run.loop)[0].result(cache) for run in runs["frozen"]]
    accuracies = {name: [float(proxy[name]) for proxy in proxies] for name in (HELD_OUT, OWN_SAMPLES)}
    return Results(plan, records, calls, accuracies)


def build_study(results: Results) -> Study:
    """Build the study: report, figures and facts."""
    decided = claims(results.records)
    drawn = {name: [record for record in results.records if record["arm"] in arms] for name, arms in FIGURES.items()}
    figures = {name: figure(records) for name, records in drawn.items()}
    study_facts = {
        "plan": asdict(results.plan),
        "claims": [claim._asdict() | {"holds": claim.verdict} for claim in decided],
        "arms": {arm: facts(results.records, arm) for arm in results.calls},
        "calls": results.calls,
        "records": [_rounded(record) for record in results.records],
        "accuracies": results.accuracies,
    }
    return Study(text(results, decided), [], figures, {}, study_facts)


def _rounded(record: Record) -> dict[str, Any]:
    """Round a record's floats to six significant digits."""
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in record.items()}


# ---- report ----


def text(results: Results, decided: Sequence[Claim]) -> str:
    """Return the report in Markdown."""
    return "\n".join([*_head(results, decided), "", *_arms(results), "", *_limits(results)])


def _head(results: Results, decided: Sequence[Claim]) -> list[str]:
    plan, held, own_samples = results.plan, *(results.accuracies[name] for name in (HELD_OUT, OWN_SAMPLES))
    return [
        "# R2M: a reward model that reads the policy's hidden states",
        "",
        "Huang et al. 2026, arXiv:2601.22664, in the garden, whose true (gold) reward is a function of the text. "
        f"RLOO with {plan.groups} prompts of {plan.group} answers a cycle, {plan.passes} passes, {plan.cycles} cycles, "
        f"β = {plan.beta:g}; ω falls to 0.6, α = 0.3. Every arm of a seed starts from the same policy and the same "
        f"proxy, which orders {percent_range(held)} of held-out pairs as gold does and {percent_range(own_samples)} of "
        "the start policy's.",
        "",
        f"Every {plan.every} cycles {plan.asked} answers to prompts that training does not see are rated. What a "
        f"reward model expects of them is put on gold's scale on {SAMPLES} answers of the start policy, which it rates "
        "anew each time; the gap is that expectation minus gold. Everything is compared at equal KL from the start "
        "policy and in standard deviations of its answers: where a run first comes to a KL, and, for runs whose reward "
        "model brings them back, as the late gain: gold in the last third of the run minus the frozen arm's where it "
        "first was at the same KL. Differences are paired by seed, with bootstrap intervals over seeds (95 %); other "
        "brackets are Student's.",
        "",
        claims_table(decided),
        "",
        design_note(results.records, plan.groups // R2M.batch_groups, R2M.learning_rate, plan.cycles, START_STD),
        "",
        "C4, the cost, is measured by `rewardlab bench r2m`.",
    ]


def _arms(results: Results) -> list[str]:
    return [
        "## Gold at equal KL",
        "",
        gold_table(results.records),
        "",
        "![The reward model's own labels](self.png)",
        "",
        "![Labels from outside](labels.png)",
        "",
        "## Gap, peak and labels",
        "",
        facts_table(results.records, results.calls),
    ]


def _limits(results: Results) -> list[str]:
    return [
        "## Arms and limits",
        "",
        "- Labels from outside say which of a group's best and worst answer, by the reward model itself, is better: "
        f"gold, a judge that is right in {100 * JUDGE:.0f} % of pairs, or nothing that has to do with the answers. The "
        "other groups are then left out, α = 0, and W_o starts at 0, as in the arm of that name.",
        f"- taught before: the proxy learns as many gold pairs of the start policy as 'gold 1/4' asks for, {EPOCHS} "
        f"epochs, and stays. ensemble: mean - {PESSIMISM:g} std of {MEMBERS} proxies on one start policy. baseline by "
        "states: the frozen proxy, and instead of the group's mean a critic that reads the policy's states; in an "
        "earlier run its advantages added the critic's value behind the last token to the reward of a truncated "
        "completion, with a gap area to KL 10 of +2.93 [-0.73, +6.59] and gold there at -0.20 [-0.70, +0.29].",
        "- entropy, std held: the entropy's standard deviation carries no gradient. whole model learns: the body too, "
        "at a tenth of the learning rate.",
        f"- A toy: word-level text of at most {LONGEST} words and models of 100,000 weights; policy and reward model "
        "are of one size. What carries over is the protocol and the controls.",
        "- Learning rates and β were chosen on seeds 100 and 101, which are in no table, and only by what the frozen "
        "model and the control on gold's labels did there.",
    ]
