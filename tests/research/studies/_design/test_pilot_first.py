"""research/studies/_design/pilot_first.py"""

from typing import NamedTuple

import numpy as np
import pytest
from rewardlab.research.studies._design import run_pilot_first
from rewardlab.research.studies.process import METRICS

ARMS = {"process": 0.2, "outcome, same labels": 0.0, "outcome, same solutions": 0.1, "shuffled labels": -0.1}
PILOT = (1000, 1001, 1002)


class Plan(NamedTuple):
    seeds: tuple[int, ...]
    completions: int = 4096


@pytest.fixture
def run():
    """A study whose arms differ by constants and a deviation of 0.05 in alternating directions; the plans it ran."""
    ran: list[Plan] = []

    def measure(plan):
        ran.append(plan)
        noise = np.array([0.05 * (-1) ** seed for seed in plan.seeds])
        return {name: {arm: mean + noise * (arm == "process") for arm, mean in ARMS.items()} for name in METRICS}

    def study(**options):
        how = {"pilot_seeds": PILOT, "seconds_per_seed": 100.0, "seeds": 5, **options}
        return run_pilot_first("process", Plan, measure, METRICS, **how), ran

    return study


def test_the_pilot_plans_the_seeds_of_which_the_first_are_run(run):
    outcome, ran = run(first_seed=7)
    assert ran == [Plan(PILOT), outcome.plan]
    needed = max(outcome.design.needed(claim) for claim in outcome.design.claims)
    assert outcome.design.planned_seeds == needed > 5
    assert outcome.design.seeds == outcome.plan.seeds == (7, 8, 9, 10, 11)
    assert {pilot.seeds for pilot in outcome.design.pilot.values()} == {3}
    effect = outcome.assessments["first_errors_same_labels"].effect.value
    assert effect == pytest.approx(0.2 + 0.05 * np.mean([(-1) ** seed for seed in outcome.plan.seeds]))
    assert outcome.metrics.keys() == {*METRICS.values()}


def test_a_dry_run_runs_its_own_plan_alone(run):
    short = Plan((0, 1), completions=16)
    outcome, ran = run(dry_run=short)
    assert ran == [short] and outcome.plan is short
    assert outcome.design.completions == 16 and not outcome.design.pilot
