"""research/statistics/overoptimisation.py"""

import math

import numpy as np
import pytest
from rewardlab.research.statistics.overoptimisation import (
    BEST_OF_N,
    at_kl,
    at_matched_kl,
    best_of_n_records,
    curves,
    figure,
    gain,
    hump,
    hump_table,
    matched_table,
)
from rewardlab.rm.errors import DataError

NAN = math.nan


def run(seed: int, kl, gold, proxy, arm: str = "GRPO", gold_std: float = 1.0, proxy_std: float = 1.0) -> list[dict]:
    """Records of a run that was measured every tenth step."""
    made = [
        {"arm": arm, "seed": seed, "step": 10 * place, "kl": k, "gold": g, "proxy": p}
        for place, (k, g, p) in enumerate(zip(kl, gold, proxy, strict=True))
    ]
    made[0] |= {"gold_std": gold_std, "proxy_std": proxy_std}
    return made


def rising_and_falling(heights=(1.0, 2.0, 3.0)) -> list[dict]:
    """Gold climbs to a height at KL 4 and falls back to 0 at KL 8; the proxy climbs all the way."""
    return [record for seed, h in enumerate(heights) for record in run(seed, [0, 4, 8], [0, h, 0], [0, 1, 2 + h / 10])]


def test_gains_are_in_the_start_policys_standard_deviations():
    one = curves(run(3, [0, 1], [2, 5], [10, 14], gold_std=2.0, proxy_std=8.0))["GRPO"][3]
    np.testing.assert_allclose(one.gold, [0, 1.5])
    np.testing.assert_allclose(one.proxy, [0, 0.5])
    assert one.step.tolist() == [0, 10]


def test_the_order_of_records_carries_no_meaning():
    records = rising_and_falling()
    assert gain(records[::-1])["GRPO"] == pytest.approx(gain(records)["GRPO"])
    assert hump(records[::-1])["GRPO"].fall == pytest.approx(hump(records)["GRPO"].fall)


def test_a_run_without_its_start_is_refused():
    with pytest.raises(DataError, match=r"'GRPO', seed 0 has no record of step 0"):
        gain(run(0, [0, 1], [0, 1], [0, 1])[1:])
    with pytest.raises(DataError, match=r"arm GRPO, seed 0, step 10 lacks gold;"):
        gain(
            [
                {name: value for name, value in one.items() if name != "gold"}
                for one in run(0, [0] * 2, [0, 1], [0] * 2)[1:]
            ]
        )
    with pytest.raises(DataError, match=r"step 0 lacks gold_std, proxy_std;"):
        gain([{name: value for name, value in one.items() if "std" not in name} for one in run(0, [0], [0], [0])])


def test_between_two_steps_a_run_is_a_straight_line():
    found = at_kl(np.array([0.0, 2, 6]), np.array([1.0, 3, 7]), np.array([0.0, 1, 2, 5, 6, 6.1]))
    np.testing.assert_allclose(found, [1, 2, 3, 6, 7, NAN])


def test_a_kl_counts_where_it_is_first_reached():
    kl, values = np.array([0.0, 4, 3, 3.5, 8]), np.array([0.0, 4, -9, -9, 0])
    np.testing.assert_allclose(at_kl(kl, values, np.array([3.0, 4, 6])), [3, 4, 2])


def test_arms_of_different_speed_are_compared_at_the_same_distance():
    slow = run(0, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0] * 5, "slow")
    fast = run(0, [0, 4, 8], [0, 4, 8], [0] * 3, "fast")
    found = at_matched_kl(slow + fast, np.array([2.0, 3.5]))
    for arm in ("slow", "fast"):
        assert [one.value for one in found[arm].gold] == pytest.approx([2, 3.5])


def test_the_mean_is_over_the_seeds_that_came_so_far():
    records = rising_and_falling((1.0, 3.0)) + run(2, [0, 2], [0, 4], [0, 0])
    one = at_matched_kl(records, np.array([2.0, 4.0, 9.0]))["GRPO"]
    assert one.seeds.tolist() == [3, 2, 0]
    assert [estimate.value for estimate in one.gold] == pytest.approx([(0.5 + 1.5 + 4) / 3, 2, NAN], nan_ok=True)
    half = 12.7062 * math.sqrt(2) / math.sqrt(2)  # t of 1 degree of freedom; 1 and 3 have variance 2
    assert one.gold[1] == pytest.approx((2, 2 - half, 2 + half), rel=1e-4)


def test_gain_is_what_is_left_at_the_end():
    records = run(0, [0, 1, 2], [1, 9, 3], [0] * 3, gold_std=2.0) + run(1, [0, 1], [1, 5], [0] * 2, gold_std=2.0)
    assert gain(records)["GRPO"].value == pytest.approx((1 + 2) / 2)


def test_a_hump_is_a_fall_of_gold_while_the_proxy_rises():
    one = hump(rising_and_falling())["GRPO"]
    assert one.fall.value == pytest.approx(2)
    assert one.rise.value == pytest.approx(1.2)  # 2.1, 2.2 and 2.3 at the end, 1 at the peak
    assert one.rise.low > 0
    assert not one.over_optimised  # falls of 1, 2 and 3: Student's interval of three seeds reaches below 0
    assert hump(rising_and_falling((2.0, 2.5, 3.0)))["GRPO"].over_optimised


def test_a_fall_of_both_rewards_is_no_over_optimisation():
    records = [
        record for seed, h in enumerate((2.0, 2.5, 3.0)) for record in run(seed, [0, 4, 8], [0, h, 0], [0, h, 0])
    ]
    one = hump(records)["GRPO"]
    assert one.fall.low > 0
    assert not one.over_optimised


def test_noise_alone_makes_no_hump():
    random, falls = np.random.default_rng(0), []
    for _ in range(200):
        records = [one for seed in range(5) for one in run(seed, range(20), random.normal(size=20), range(20))]
        falls.append(hump(records)["GRPO"].fall.value)
    assert abs(np.mean(falls)) < 3 * np.std(falls) / math.sqrt(200)  # a seed's own peak would lie about 1.9 too high


def test_a_hump_is_looked_for_at_the_steps_that_all_seeds_have():
    records = run(0, [0, 4, 8], [0, 3, 1], [0, 1, 2]) + run(1, [0, 4, 8, 9], [0, 3, 1, -50], [0, 1, 2, 3])
    assert hump(records)["GRPO"].fall.value == pytest.approx(2)


def test_a_single_seed_has_a_hump_without_an_interval():
    one = hump(run(0, [0, 4, 8], [0, 3, 1], [0, 1, 2]))["GRPO"]
    assert one.fall.value == pytest.approx(2)
    assert math.isnan(one.fall.low)
    assert not one.over_optimised


def test_best_of_n_is_an_arm_of_its_own():
    proxy, gold = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[0.0, 0.0, 8.0, 4.0]])
    records = best_of_n_records(7, proxy, gold)
    assert [record["n"] for record in records] == [1, 2, 4]
    # of two: the third wins with the first and the second, the fourth three times, one draw of six is {1, 2}
    assert [record["gold"] for record in records] == pytest.approx([3, (2 * 8 + 3 * 4) / 6, 4])
    assert [record["proxy"] for record in records] == pytest.approx([2.5, (2 + 2 * 3 + 3 * 4) / 6, 4])
    assert [record["kl"] for record in records] == pytest.approx([0, math.log(2) - 1 / 2, math.log(4) - 3 / 4])
    assert gain(records)[BEST_OF_N].value == pytest.approx((4 - 3) / gold.std(ddof=1))


def test_tables_say_what_was_found():
    records = rising_and_falling((2.0, 2.5, 3.0)) + run(0, [0, 4], [0, 1], [0, 1], "slow")
    matched = matched_table(records, np.array([4.0, 8.0])).splitlines()
    assert matched[0] == "| arm | reward | KL 4 | KL 8 |"
    assert matched[2] == "| GRPO | gold | +2.50 [+1.26, +3.74] | +0.00 [+0.00, +0.00] |"
    assert matched[4] == "| slow | gold | +1.00 | – |"
    humps = hump_table(records).splitlines()
    assert humps[2].startswith("| GRPO | 3 | 8.0 | +0.00 [+0.00, +0.00] | +2.50 [+1.26, +3.74] |")
    assert humps[2].endswith("| yes |")
    assert humps[3].endswith("| not shown |")


def test_a_table_counts_the_seeds_that_came_so_far():
    records = rising_and_falling((1.0, 1.0)) + run(2, [0, 2], [0, 4], [0, 0])
    assert "+1.00 [+1.00, +1.00] (2 seeds)" in matched_table(records, np.array([4.0]))


def test_the_figure_has_both_rewards_and_best_of_n_dashed():
    random = np.random.default_rng(0)
    chosen = [one for seed in range(3) for one in best_of_n_records(seed, *random.normal(size=(2, 5, 8)))]
    panels = figure(rising_and_falling() + chosen).axes
    assert [panel.get_title() for panel in panels] == ["gold", "proxy"]
    for panel in panels:
        styles = {line.get_label(): line.get_linestyle() for line in panel.get_lines()}
        assert styles["GRPO"] == "-"
        assert styles[BEST_OF_N] == "--"
    gold = next(line for line in panels[0].get_lines() if line.get_label() == "GRPO")
    assert gold.get_ydata().max() == pytest.approx(2, abs=0.05)
