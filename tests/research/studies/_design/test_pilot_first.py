from dataclasses import dataclass

import numpy as np
import pytest
from rewardlab.research.studies._design import named_values, run_pilot_first
from rewardlab.research.studies._runs.job_cache import Job
from rewardlab.research.studies.process import METRICS

ARMS = {"process": 0.2, "outcome, same labels": 0.0, "outcome, same solutions": 0.1, "shuffled labels": -0.1}
PILOT = (1000, 1001, 1002)


@dataclass(frozen=True)
class Noise(Job):
    seed: int

    def work(self, cache):
        return {"noise": np.array(0.05 * (-1) ** self.seed)}


@dataclass(frozen=True)
class Plan:
    """Arms that differ by constants and a deviation of 0.05 in alternating directions."""

    seeds: tuple[int, ...]
    completions: int = 4096

    def stages(self, seed):
        return [[Noise(seed)]]

    def results(self, cache):
        noise = np.array([float(Noise(seed).result(cache)["noise"]) for seed in self.seeds])
        return {name: {arm: mean + noise * (arm == "process") for arm, mean in ARMS.items()} for name in METRICS}


def study(cache, **options):
    log: list[str] = []
    settings = {"pilot_seeds": PILOT, "seconds_per_seed": 100.0, "at_least": 5, "most": 5, **options}
    return run_pilot_first("process", Plan, named_values(METRICS), cache, 1, log.append, **settings), log


def test_the_pilot_plans_the_seeds_of_which_the_first_are_run(tmp_path):
    outcome, log = study(tmp_path, first_seed=7)
    assert [line for line in log if line in ("pilot", "counted seeds", "dry run")] == ["pilot", "counted seeds"]
    needed = max(outcome.design.needed(claim) for claim in outcome.design.claims)
    assert outcome.design.planned_seeds == needed > 5
    assert outcome.design.seeds == outcome.plan.seeds == (7, 8, 9, 10, 11)
    assert {pilot.seeds for pilot in outcome.design.pilot.values()} == {3}
    effect = outcome.assessments["first_errors_same_labels"].effect.value
    assert effect == pytest.approx(0.2 + 0.05 * np.mean([(-1) ** seed for seed in outcome.plan.seeds]))
    assert outcome.values.keys() == {*METRICS.values()} == outcome.facts()["values"].keys()


def test_a_dry_run_runs_its_own_plan_alone(tmp_path):
    short = Plan((0, 1), completions=16)
    outcome, log = study(tmp_path, dry_run=short)
    assert log[0] == "dry run" and outcome.plan is short and outcome.pilot is outcome.results
    assert outcome.design.completions == 16 and not outcome.design.pilot
