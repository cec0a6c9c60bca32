import datetime
import json
from dataclasses import replace

import numpy as np
import pytest
from rewardlab.research.studies._design import Claim, design_markdown, plan_seeds
from rewardlab.rm.errors import UsageError


def claim(name: str, smallest: float, family: str = "primary") -> Claim:
    day = datetime.date(2025, 5, 2)
    return Claim(name, "A sentence.", "gold", name, "plain", "higher", smallest, family, day)


SPREAD = np.array([-1.0, 1.0, 0.0]) + 0.4  # standard deviation 1, whatever the mean
PILOT = {"pilot_seeds": (100, 101, 102), "seconds_per_seed": 100.0}


def test_a_design_has_the_seeds_for_its_hardest_claim():
    design = plan_seeds([claim("a", 0.8), claim("b", 0.5, "other")], {"a": SPREAD, "b": SPREAD}, **PILOT)
    assert [design.needed(each) for each in design.claims] == [15, 34]  # as in Cohen's tables
    assert design.seeds == tuple(range(34))
    assert design.detectable(design.claims[1]) <= 0.5
    assert json.loads(json.dumps(design.facts()))["claims"] == ["a", "b"]


def test_a_claim_without_a_pilot_has_no_say_and_a_minimum_has():
    claims = [claim("a", 0.8), claim("b", 0.001)]
    design = plan_seeds(claims, {"a": SPREAD}, first_seed=7, at_least=20, **PILOT)
    assert design.seeds == tuple(range(7, 27))
    assert len(plan_seeds(claims, {}, at_least=5, **PILOT).seeds) == 5
    assert design_markdown(design).splitlines()[-1].endswith("| gold | higher | 0.001 | – | – | 20 | – |")


def test_the_report_of_a_design_that_the_budget_cuts_says_what_its_seeds_show():
    design = plan_seeds([claim("a", 0.5)], {"a": SPREAD}, budget=2000, **PILOT)
    assert len(design.seeds) == 20
    text = design_markdown(design)
    # 20 seeds show 0.66 standard deviations (statsmodels); √(2 / 0.4463) = 2.117 is the upper limit of the deviation
    assert "| `a`: A sentence. | gold | higher | 0.5 | 1 (2.12) | 34 (143) | 20 | 0.66 |" in text
    assert "- `a`: 80 % power would need 34 seeds; 20 were run, which show an effect of 0.66." in text
    assert "on 2025-05-02. Pilot: 3 seeds, which are not counted. Each of 20 seeds" in text
    assert "takes 100 CPU-seconds by the pilot: 0.56 of the budget's 0.56 CPU-hours" in text
    assert "Looks" not in text and "dry run" not in text


def test_the_report_states_looks_and_dry_runs_and_has_no_shortfall_with_enough_seeds():
    design = plan_seeds([claim("a", 0.5)], {"a": SPREAD}, looks=(0.5, 1), **PILOT)
    text = design_markdown(design)
    assert "after 18 seeds at 0.56 %, after 35 seeds at 4.4 % (O'Brien-Fleming spending, 5 % in all)" in text
    assert "would need" not in text
    assert "**A dry run: fewer than 4,096 completions.**" in design_markdown(replace(design, completions=64))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"pilot_seeds": (3, 100)}, r"seeds \[3\] are seeds of the pilot"),
        ({"completions": 256}, "256 completions; evaluate each arm on at least 4,096"),
        ({"budget": 150}, "pays 1 seeds of 100"),
        ({"looks": (0.5,)}, "increasing fractions"),
    ],
)
def test_a_design_that_cannot_be_trusted_is_refused(settings, reason):
    with pytest.raises(UsageError, match=reason):
        plan_seeds([claim("a", 0.5)], {"a": SPREAD}, **PILOT | settings)


def test_a_pilot_of_no_claim_and_a_repeated_seed_are_refused():
    with pytest.raises(UsageError, match="'gain', which is no claim; did you mean 'gains'"):
        plan_seeds([claim("gains", 0.5)], {"gain": SPREAD}, **PILOT)
    design = plan_seeds([claim("a", 0.5)], {"a": SPREAD}, **PILOT)
    with pytest.raises(UsageError, match="repeat"):
        replace(design, seeds=(1, 1))


def test_only_the_family_that_is_named_counts_and_a_part_of_the_seeds_is_reported():
    claims, differences = [claim("a", 0.8), claim("b", 0.5, "other")], {"a": SPREAD, "b": SPREAD}
    whole = plan_seeds(claims, differences, family="primary", **PILOT)
    assert whole == plan_seeds(claims, {"a": SPREAD}, **PILOT)
    assert len(whole.seeds) < len(plan_seeds(claims, differences, **PILOT).seeds)
    part = whole.first(2)
    assert part.seeds == whole.seeds[:2] and part.level(claims[0]) == whole.level(claims[0])
    assert f"**A part of the study: 2 of {len(whole.seeds)} planned seeds were run.**" in design_markdown(part)
    assert "A part of" not in design_markdown(whole.first(None))
