"""The study of R2M: measures by hand, labellers that are what they are called, and everything once on a part."""

import json
from dataclasses import replace

import numpy as np
import pytest
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.statistics.cluster_bootstrap import Estimate
from rewardlab.research.statistics.overoptimisation import Curve
from rewardlab.research.studies.r2m import MAIN_ARMS, OTHER_ARMS, Plan, Results, r2m, stages, text
from rewardlab.research.studies.r2m.report import (
    Claim,
    areas,
    claims,
    design_note,
    gap_area,
    golds,
    late_gains,
    paired,
    peak,
    value_at,
)
from rewardlab.research.studies.r2m.runs import LABELLERS, Arm, R2MRun, pair_accuracy
from rewardlab.research.studies.seeds.side_by_side import RECIPES
from rewardlab.rm.types import user_turn


def records(arm, seed, kl, gold, proxy, accuracy=0.5):
    """One run whose start policy has a deviation of 2."""
    spread = {"gold_std": 2.0, "proxy_std": 2.0}
    return [
        {"arm": arm, "seed": seed, "step": step, "kl": kl[step], "gold": gold[step], "proxy": proxy[step]}
        | {"accuracy": accuracy, "frozen_accuracy": 0.5}
        | spread
        for step in range(len(kl))
    ]


# ---- measures ----


def test_the_gap_area_is_that_of_the_triangle_between_proxy_and_gold():
    """Proxy - gold grows from 0 to 2 over 20 nats: 20 · 2 / 2."""
    run = Curve(np.arange(2), np.array([0.0, 20.0]), np.array([0.0, -1.0]), np.array([0.0, 1.0]))
    assert gap_area(run, upto=20.0) == pytest.approx(20.0)
    assert gap_area(run, upto=10.0) == pytest.approx(5.0)


def test_a_run_that_did_not_come_so_far_has_no_area():
    run = Curve(np.arange(2), np.array([0.0, 14.0]), np.array([0.0, -1.0]), np.array([0.0, 1.0]))
    assert np.isnan(gap_area(run, upto=20.0)) and gap_area(run, upto=10.0) > 0


def test_measures_are_in_deviations_of_the_start_policy():
    rows = records("a", 0, [0.0, 30.0], [1.0, 4.0], [1.0, 7.0], accuracy=0.7)
    assert golds(rows, "a", 10.0) == {0: pytest.approx(0.5)}  # a third of 3 / 2
    assert areas(rows, "a", 20.0)[0] == pytest.approx(10.0)  # 20 nats, and the gap there is 1
    assert value_at(rows, "a", "accuracy", 15.0) == {0: pytest.approx(0.7)}


def test_a_peak_is_taken_where_the_other_seeds_have_theirs():
    """Alone each seed would take its own bump of 3; the others' mean is highest at 20, where it has 1."""
    kl = [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]
    bumps = [[0.0, 3.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0, 4.0, 0.0]]
    rows = [row for seed, gold in enumerate(bumps) for row in records("a", seed, kl, [2 * g for g in gold], gold)]
    found = peak(rows, "a")
    assert (found.gold.value, found.kl) == (pytest.approx(3.0), 20.0)


def test_differences_are_paired_by_seed_and_leave_out_what_is_unknown():
    """Seeds differ by far more than the arms do."""
    first, second = {0: 1.1, 1: 101.1, 2: np.nan, 3: 5.0}, {0: 1.0, 1: 101.0, 2: 7.0}
    found, seeds = paired(first, second)
    assert seeds == 2
    assert found == pytest.approx((0.1, 0.1, 0.1))


@pytest.mark.parametrize(
    ("bounds", "sign", "verdict"),
    [
        ((2.0, 1.0, 3.0), 1, "yes"),
        ((2.0, -1.0, 3.0), 1, "**not shown**"),
        ((-2.0, -3.0, -1.0), 1, "**no, the opposite**"),
        ((-2.0, -3.0, -1.0), -1, "yes"),
        ((-2.0, -3.0, -1.0), 0, "yes"),
        ((2.0, 1.0, 3.0), 0, "**no**"),
        ((2.0, np.nan, np.nan), 1, "unknown"),
    ],
)
def test_a_control_says_what_its_whole_interval_says(bounds, sign, verdict):
    assert Claim("positive control", "", Estimate(*bounds), 4, sign).verdict == verdict
    about_r2m = "unknown" if verdict == "unknown" else "not shown either way"
    assert Claim("C1", "", Estimate(*bounds), 4, sign).verdict == about_r2m


def test_claims_about_r2m_are_not_settled_and_controls_are():
    kl, still = [0.0, 30.0], [0.0, 0.0]
    arms = {
        "frozen": 3.0, "iterative head": 3.0, "R2M": 1.0, "stale states": 0.0, "shuffled states": 1.0,
        "head, gold 1/12": 2.0, "R2M, gold 1/12": 1.0, "head, gold 1/4": 2.0, "R2M, gold 1/4": 3.0,
    }  # fmt: skip
    runs = [(arm, still, [0.0, gap]) for arm, gap in arms.items()]
    runs += [(arm, [0.0, gold], still) for arm, gold in (("head, gold", -3.0), ("R2M, gold", 3.0))]
    runs += [("R2M, random labels", [0.0, 3.0], still)]
    rows = [row for arm, gold, proxy in runs for seed in range(4) for row in records(arm, seed, kl, gold, proxy, 0.6)]
    verdicts = [one.verdict for one in claims(rows)]
    assert verdicts == ["not shown either way"] * 15 + ["yes", "**no, the opposite**", "**no**"]
    note = design_note(rows, 4, 1e-3, 60, 0.125)
    assert "can move by 0.24, with a standard deviation of 0.125" in note
    assert "orders 0.60 as gold does at KL 0 and 0.60 at KL 7" in note
    assert "at KL 10 is +0.00 [+0.00, +0.00] (4 seeds)" in note


def number(stored: float | None) -> float:
    return np.nan if stored is None else stored


def test_the_committed_report_is_what_the_code_writes_of_its_manifest():
    folder = RECIPES.parent / "results" / "r2m"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    results = Results(Plan(**manifest["plan"]), manifest["records"], manifest["calls"], manifest["accuracies"])
    found = [
        Claim(row["name"], row["sentence"], Estimate(*map(number, row["found"])), row["seeds"], row["sign"])
        for row in manifest["claims"]
    ]
    assert text(results, found) == (folder / "report.md").read_text(encoding="utf-8")
    assert [one["holds"] for one in manifest["claims"]] == [one.verdict for one in found]


def test_a_late_gain_is_over_the_other_arm_at_the_same_kl():
    """The other arm lost 1 a nat. This one stays at 2 nats, where its gold rises from -2 to 1: gains of 0 and 3."""
    other = records("frozen", 0, [0.0, 4.0], [0.0, -8.0], [0.0, 0.0])
    this = records("a", 0, [0.0, 2.0, 2.0, 2.0], [0.0, -4.0, -4.0, 2.0], [0.0] * 4)
    assert late_gains([*other, *this], "a") == {0: pytest.approx((0.0 + 3.0) / 2)}
    assert late_gains([*other, *records("a", 1, [0.0, 1.0], [0.0, 0.0], [0.0, 0.0])], "a") == {}
    far = records("a", 0, [0.0, 9.0], [0.0, 1.0], [0.0, 0.0])
    assert np.isnan(late_gains([*other, *far], "a")[0])


# ---- labels and arms ----


def test_accuracy_counts_pairs_of_one_prompt_that_gold_decides():
    said, truth = np.array([3.0, 2.0, 2.0, 5.0]), np.array([1.0, 0.0, 2.0, 9.0])
    assert pair_accuracy(said, truth, [0, 0, 0, 1]) == pytest.approx(1 / 3)  # one right, one wrong, one tie
    assert np.isnan(pair_accuracy(said, np.zeros(4), [0, 0, 0, 1]))


def test_labellers_are_as_right_as_they_are_said_to_be_and_do_not_look_at_the_order():
    pairs = [one for one in garden.pairs(600, 3) if LABELLERS["gold"](one.prompt, (one.chosen, one.rejected)) != 0.5]
    for name, expected in (("gold", 1.0), ("judge", 0.8), ("random", 0.5)):
        said = [LABELLERS[name](one.prompt, (one.chosen, one.rejected)) for one in pairs]
        turned = [LABELLERS[name](one.prompt, (one.rejected, one.chosen)) for one in pairs]
        truth = [LABELLERS["gold"](one.prompt, (one.chosen, one.rejected)) for one in pairs]
        assert [1 - one for one in turned] == said
        assert np.mean(np.equal(said, truth)) == pytest.approx(expected, abs=0.06)


def test_gold_ties_are_ties_to_every_honest_labeller():
    same = (user_turn("tell me about bees"), ("bees", "honey"))
    assert LABELLERS["gold"](*same) == LABELLERS["judge"](*same) == 0.5


def test_every_arm_is_run_at_its_seeds_and_what_it_builds_on_comes_first():
    plan = Plan()
    runs = plan.runs()
    assert {len(runs[name]) for name in MAIN_ARMS} == {10} and {len(runs[name]) for name in OTHER_ARMS} == {5}
    bases, proxies, taught, last = stages(runs)
    assert len({*bases}) == 10
    assert len({*proxies}) == 10 + 5 * 3  # the ensemble's other members
    assert len(taught) == 5 and {one.labels for one in taught} == {6 * 60}
    main = [one.loop.base.seed for one in last if one.arm in {run.arm for name in MAIN_ARMS for run in runs[name]}]
    assert main[:60] == sorted(main[:60]) and last[0] == runs["frozen"][0]


# ---- everything once ----


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    cache = tmp_path_factory.mktemp("r2m")
    return cache, r2m(cache, workers=1, rows=12, log=lambda _: None)


@pytest.mark.long
def test_the_study_runs_on_a_part_and_finds_its_results_again(study):
    cache, found = study
    told = []
    again = r2m(cache, workers=1, rows=12, log=told.append)
    assert found.text == again.text
    assert all(line.split()[0] == line.split()[2] for line in told)  # N of N results are in the cache
    facts = json.loads(json.dumps(found.facts))
    runs = {(one["arm"], one["seed"]) for one in facts["records"]}
    assert len(runs) == len(MAIN_ARMS) + len(OTHER_ARMS)
    assert all(name in found.text for name in (*MAIN_ARMS, *OTHER_ARMS))
    assert len(facts["claims"]) == 18 and {*found.figures} == {"self", "labels"}


@pytest.mark.long
def test_before_its_first_cycle_every_arm_on_the_frozen_proxy_is_the_frozen_proxy(study):
    """ω is 1 there: same answers, same rewards, whatever the arm will read or learn."""
    rows = [one for one in study[1].facts["records"] if one["step"] == 0 and one["seed"] == 0]
    starts = {one["arm"]: one["reward"] for one in rows if one["arm"] not in ("taught before", "ensemble")}
    assert starts == dict.fromkeys(starts, pytest.approx(starts["frozen"], abs=1e-5))
    assert len({one["gold"] for one in rows}) == 1


@pytest.mark.long
def test_labels_are_asked_for_as_many_groups_as_the_arm_has(study):
    calls = study[1].facts["calls"]
    assert calls["frozen"] == calls["R2M"] == 0
    assert 0 < calls["R2M, gold 1/12"] <= 2 * 1  # two cycles; groups whose rewards are all equal are not asked
    assert 2 < calls["R2M, gold"] <= 2 * 3


@pytest.mark.long
def test_a_run_is_its_fields(study):
    """Another learning rate is another file in the cache, and another run."""
    cache, _ = study
    run = Plan.short(0, 12).runs()["R2M"][0]
    other = replace(run, arm=replace(run.arm, learning_rate=0.1))
    assert run.file(cache).exists() and not other.file(cache).exists()
    assert isinstance(other, R2MRun) and isinstance(other.arm, Arm)
    assert not np.allclose(run.result(cache)["reward"], other.work(cache)["reward"])
