import json
from dataclasses import replace

import numpy as np
import pytest
from rewardlab.benchmarks import garden
from rewardlab.research.studies._design import Design, Pilot, assess, paired_differences, read_claims
from rewardlab.research.studies._runs.proxies import HELD_OUT, LEVELS, OWN_SAMPLES, RANDOM, Proxy, StartSamples
from rewardlab.research.studies.overoptimisation_atlas import measures, overoptimisation_atlas, runs
from rewardlab.research.studies.overoptimisation_atlas.report import accuracy_table, peak_table, text
from rewardlab.research.worlds.guides import Base
from rewardlab.research.worlds.small_policies import sample_completions

SEEDS = 3
KLS = (0.0, 1.0, 4.0, 8.0, 12.5)


def curve(arm: str, seed: int, height: float, end: float) -> list[dict]:
    """Records of a run whose gold rises to `height` at KL 4 and goes to `end` at KL 12.5; the proxy keeps rising."""
    gold = np.interp(KLS, [0, 4, 12.5], [0, height + 0.01 * seed, end])
    rows = zip(KLS, gold, strict=True)
    return [
        {"arm": arm, "seed": seed, "step": step, "kl": kl, "gold": g, "proxy": kl, "gold_std": 1.0, "proxy_std": 1.0}
        for step, (kl, g) in enumerate(rows)
    ]


def made_up_records() -> dict[str, list[dict]]:
    """GRPO gains 0.5 at the lowest level and 0.3 more at each other; best-of-n has runs of its own."""
    records: dict[str, list[dict]] = {}
    for index, level in enumerate(LEVELS):
        arms = {method: (0.5 + 0.3 * index, -0.5) for method in runs.METHODS} | {"best of n": (1.0, 0.0)}
        records[level] = [
            row for arm, heights in arms.items() for seed in range(SEEDS) for row in curve(arm, seed, *heights)
        ]
    records[measures.GOLD] = [row for seed in range(SEEDS) for row in curve(runs.GRPO, seed, 1.0, 2.0)]
    records[RANDOM] = [row for seed in range(SEEDS) for row in curve(runs.GRPO, seed, 0.0, -1.0)]
    return records


def made_up_accuracies() -> dict[str, dict[str, list[float]]]:
    shares = dict(zip([*LEVELS, RANDOM], (0.6, 0.7, 0.8, 0.9, 1.0, 0.5), strict=True))
    return {level: {HELD_OUT: [share] * SEEDS, OWN_SAMPLES: [share - 0.01] * SEEDS} for level, share in shares.items()}


def made_up_values() -> dict[str, dict[str, np.ndarray]]:
    accuracies = made_up_accuracies()
    return measures.values(
        made_up_records(), {level: np.array(by_kind[HELD_OUT]) for level, by_kind in accuracies.items()}
    )


def test_metrics_are_those_of_the_curves():
    metrics = made_up_values()
    np.testing.assert_allclose(metrics[measures.PEAK]["GRPO, 70 %"], [0.8, 0.81, 0.82])
    np.testing.assert_allclose(metrics[measures.AT_KL[measures.NEAR]]["GRPO, 60 %"], [0.25, 0.255, 0.26], atol=1e-9)
    at_6 = 0.8 - 2 / 8.5 * 1.3  # from 0.8 at KL 4 down to -0.5 at KL 12.5
    assert metrics[measures.AT_KL[measures.FAR]]["GRPO, 70 %"][0] == pytest.approx(at_6)
    assert metrics[measures.LOST]["GRPO, 70 %"][0] == pytest.approx(6 / 8.5 * 1.3)
    np.testing.assert_allclose(metrics[measures.LOST][f"GRPO, {measures.GOLD}"], 0.0, atol=1e-9)
    np.testing.assert_allclose(metrics[measures.RISE][runs.GRPO], 0.3)  # per 10 points, which is one level here
    np.testing.assert_allclose(metrics[measures.KL_RISE][runs.GRPO], 0.0, atol=1e-9)
    assert not metrics[measures.PEAK][measures.NO_CHANGE].any()


def test_every_claim_is_about_metrics_and_arms_of_the_study():
    claims = read_claims("overoptimisation_atlas")
    differences = paired_differences(claims, made_up_values())
    assert {claim.family for claim in claims} == {"primary", "secondary", "controls"}
    assert all(len(given) == SEEDS for given in differences.values())
    assert differences["accuracy_raises_peak"] == pytest.approx([0.3] * SEEDS)
    assert differences["gold_reward_keeps_gold"][0] == pytest.approx(-6 / 8.5 * 1.3)


def test_the_report_states_seeds_peaks_and_verdicts():
    claims, records, accuracies = read_claims("overoptimisation_atlas"), made_up_records(), made_up_accuracies()
    pilot = {"pessimism_loses_less": Pilot(0.2, 2)}
    design = Design(claims, pilot, (1000, 1001), tuple(range(SEEDS)), 4096, 900.0, planned_seeds=8)
    assessments = assess(design, paired_differences(claims, made_up_values()))
    report = text(design, assessments, records, accuracies)
    assert "3 of 8 planned seeds were run" in report
    assert "they reached 100.0 %" in report
    assert "| 70 % | 70.0 (70 to 70 %) | 69.0 (69 to 69 %) |" in accuracy_table(accuracies)
    assert "guided decoding: a guide of one objective" in report
    row = next(line for line in peak_table(records).splitlines() if line.startswith("| 70 % | GRPO |"))
    assert row.split("|")[3:5] == [" 3 ", " 4.0 [4.0, 4.0] "]
    assert " or more " in next(
        line for line in peak_table(records).splitlines() if line.startswith(f"| {measures.GOLD} |")
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A run with a start policy, proxies and a loop that learn next to nothing."""
    samples = StartSamples(Base(0, texts=200, steps=5), samples=4, prompts=6)
    proxy = Proxy(samples, replace(LEVELS["70 %"], pairs=16, steps=2), judged=20)
    return runs.AtlasRun(proxy, cycles=2, every=1, asked=16, prompts=2, group=4), tmp_path_factory.mktemp("atlas")


def test_a_measurement_of_the_start_policy_has_a_kl_of_zero(small):
    run, cache = small
    start = run.proxy.base.load(cache)
    asked = garden.prompts(16, seed=0)
    at = runs.measured(start, start, run.proxy.load(cache), asked, seed=3)
    assert at["kl"] == pytest.approx(0, abs=1e-4)
    completions = sample_completions(start, asked, seed=3)
    assert at["gold"] == pytest.approx(garden.gold().rate(completions.examples).mean())


def test_a_pessimistic_reward_is_the_members_mean_minus_their_deviation(small):
    """Members have mean 0 and deviation 1 on the samples; two equal members do not disagree."""
    run, cache = small
    completions = sample_completions(run.proxy.base.load(cache), garden.prompts(8, seed=1), seed=0)
    single = runs.pessimistic_reward([run.proxy], cache)(completions)
    np.testing.assert_allclose(runs.pessimistic_reward([run.proxy, run.proxy], cache)(completions), single, atol=1e-6)
    other = replace(run.proxy, member=1)
    z = np.stack([single, runs.pessimistic_reward([other], cache)(completions)])
    pessimistic = runs.pessimistic_reward([run.proxy, other], cache)(completions)
    np.testing.assert_allclose(pessimistic, z.mean(0) - z.std(0), atol=1e-6)


@pytest.mark.parametrize("method", [runs.PPO, runs.PESSIMISTIC, runs.R2M])
def test_methods_train_and_are_measured_until_the_policy_is_far_enough(small, method):
    run, cache = small
    result = replace(run, method=method).work(cache)
    assert result["step"].tolist() == [1, 2]
    assert np.isfinite([result[name] for name in ("kl", "gold", "proxy")]).all()
    if method == runs.PPO:
        assert len(replace(run, method=method, furthest=-1.0, gold=True).work(cache)["step"]) == 1


@pytest.mark.long
def test_the_study_runs_on_a_part(tmp_path):
    study = overoptimisation_atlas(tmp_path, workers=1, rows=8)
    assert "UniARM-guided decoding" in study.text
    assert "A dry run" in study.text
    facts = json.loads(json.dumps(study.facts))
    arms = {record["arm"] for record in facts["records"]["70 %"]}
    assert len(arms) == len(runs.METHODS) + 2
