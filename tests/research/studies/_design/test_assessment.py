import datetime
import json

import numpy as np
import pytest
from rewardlab.research.studies import _design
from rewardlab.rm.errors import DataError

GAIN = np.array([0.1, 0.2, 0.3, 0.2])  # mean 0.2, t = 0.2 / (0.081650 / 2) = 4.8990, p = 0.016277
NOTHING = np.array([0.01, -0.01, 0.02, -0.02])


def claim(name: str, direction: str = "higher", family: str = "primary") -> _design.Claim:
    return _design.Claim(name, "A sentence.", "gold", name, "plain", direction, 0.05, family, datetime.date(2025, 5, 2))


def design(*claims: _design.Claim, seeds: int = 4, looks: tuple[float, ...] = (1.0,)) -> _design.Design:
    return _design.Design(claims, {}, (100,), tuple(range(seeds)), 4096, 10.0, looks=looks)


def test_a_single_claim_is_a_paired_t_test():
    made = _design.assess(design(claim("a")), {"a": GAIN})["a"]
    assert made.p == pytest.approx(0.016277, abs=1e-6)
    # t_{.975} with 3 degrees of freedom is 3.18245
    assert made.effect == pytest.approx((0.2, 0.2 - 3.18245 * 0.0408248, 0.2 + 3.18245 * 0.0408248), abs=1e-5)
    assert (made.level, made.seeds, made.verdict) == (pytest.approx(0.95), 4, "significantly better")


def test_holm_adjusts_within_a_family_and_the_intervals_agree():
    made = _design.assess(design(claim("a"), claim("b"), claim("c", family="controls")), {n: GAIN for n in "abc"})
    assert [made[name].p for name in "abc"] == pytest.approx([0.032554, 0.032554, 0.016277], abs=1e-6)
    assert [made[name].level for name in "abc"] == pytest.approx([0.975, 0.95, 0.95])
    lost = _design.assess(design(*(claim(name) for name in "abcd")), {n: GAIN for n in "abcd"})
    assert lost["a"].p == pytest.approx(4 * 0.016277, abs=1e-5)
    assert lost["a"].effect.low < 0 and lost["a"].verdict == "no significant difference: inconclusive"


def test_an_earlier_look_is_tested_at_its_level():
    looked = design(claim("a"), seeds=8, looks=(0.5, 1))
    made = _design.assess(looked, {"a": GAIN})["a"]
    assert made.p == pytest.approx(0.016277 * 0.05 / 0.005575, abs=1e-4)
    assert made.level == pytest.approx(1 - 0.005575, abs=1e-6)
    assert not made.significant and made.effect.low < 0
    last = _design.assess(looked, {"a": np.tile(GAIN, 2)})["a"]
    assert last.level == pytest.approx(1 - 0.044425, abs=1e-6) and last.significant
    with pytest.raises(DataError, match=r"5 seeds; the design looks after 4, 8\. .* NaN"):
        _design.assess(looked, {"a": GAIN.repeat(2)[:5]})


@pytest.mark.parametrize(
    ("direction", "differences", "verdict"),
    [
        ("higher", -GAIN, "significantly worse"),
        ("lower", -GAIN, "significantly better"),
        ("lower", GAIN, "significantly worse"),
        ("different", GAIN, "significantly higher"),
        ("different", -GAIN, "significantly lower"),
        ("higher", GAIN / 10, "significantly better, by less than the smallest effect"),
        ("higher", NOTHING, "no significant difference: equivalent within the smallest effect"),
        ("higher", 10 * NOTHING, "no significant difference: inconclusive"),
        ("higher", np.zeros(4), "no significant difference: equivalent within the smallest effect"),
        ("higher", np.full(4, 0.5), "significantly better"),
        ("higher", np.array([0.1, np.nan, np.nan, np.nan]), "not measured"),
    ],
)
def test_verdicts_follow_the_direction_and_the_smallest_effect(direction, differences, verdict):
    assert _design.assess(design(claim("a", direction)), {"a": differences})["a"].verdict == verdict


def test_missing_seeds_are_counted_and_claims_without_differences_still_count_in_their_family():
    made = _design.assess(design(claim("a"), claim("b"), seeds=5), {"a": np.append(GAIN, np.nan)})
    assert (made["a"].seeds, made["b"].seeds, made["b"].verdict) == (4, 0, "not measured")
    assert made["a"].p == pytest.approx(2 * 0.016277, abs=1e-5)
    assert "| 4 (1 without a value) |" in _design.claims_table(made)
    with pytest.raises(DataError, match="differences of z, which the design does not claim"):
        _design.assess(design(claim("a")), {"z": GAIN})


def test_the_table_the_figure_and_the_facts_show_every_claim():
    made = _design.assess(design(claim("a"), claim("b", family="other")), {"a": GAIN, "b": NOTHING})
    lines = _design.claims_table(made).splitlines()
    assert lines[2] == (
        "| `a`: A sentence. | gold | +0.200 [+0.070, +0.330] | 0.016 | 4 | 0.05 | 0.174 | significantly better |"
    )
    assert lines[3].endswith("| no significant difference: equivalent within the smallest effect |")
    assert [len(panel.get_yticks()) for panel in _design.claims_figure(made).axes] == [2]
    facts = json.loads(json.dumps(_design.assessment_facts(made)))
    assert facts["a"]["verdict"] == "significantly better" and facts["a"]["decided"] == "2025-05-02"


def test_claims_about_fixed_items_are_tested_by_their_bootstrap_samples():
    drawn = np.random.default_rng(0).normal(0, 0.02, 3999)
    values = {"a": np.array([0.09, 0.11]), "b": np.array([0.01, 0.01])}
    samples = {"a": 0.1 + drawn, "b": 0.01 + drawn}
    made = _design.assess_samples([claim("a"), claim("b")], values, samples, 350)
    # the samples of a are all above 0: p = 2 / 4000, doubled by Holm; b has z = 0.5
    assert made["a"].p == pytest.approx(0.001) and made["a"].level == pytest.approx(0.975)
    assert made["b"].p == pytest.approx(0.617, abs=0.03)
    assert made["a"].effect == pytest.approx((0.1, 0.1 - 2.2414 * 0.02, 0.1 + 2.2414 * 0.02), abs=2e-3)
    assert made["a"].detectable == pytest.approx((2.2414 + 0.8416) * 0.02, rel=0.03)
    equivalent = "no significant difference: equivalent within the smallest effect"
    assert [each.verdict for each in made.values()] == ["significantly better", equivalent]
    table = _design.claims_table(made, unit="questions", note="Resampled.")
    assert "| ≤ 0.001 |" in table, "no sample of a is below 0: p is only known to be no larger"
    assert _design.assessment_facts(made)["a"]["p_at_most"] and not _design.assessment_facts(made)["b"]["p_at_most"]
    assert "| questions |" in table and "| 350 |" in table and "Resampled. Equivalent:" in table
