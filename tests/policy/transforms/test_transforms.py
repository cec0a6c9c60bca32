"""policy/transforms, policy/step/algorithm.py: each formula by hand, and what all of them promise."""

import json
import math
from itertools import permutations

import pytest
import torch
from rewardlab.policy.advantages.fixed_baseline import fixed_baseline
from rewardlab.policy.advantages.noise_forward import noise_forward
from rewardlab.policy.step.algorithm import TransformChain, weighted_sum
from rewardlab.policy.transforms.length import shortness
from rewardlab.policy.transforms.noise_backward import check_estimator, noise_backward
from rewardlab.policy.types import Rewards, Rollout, Transform
from rewardlab.rm.registry import load, names

NAN = math.nan
SETTINGS = {
    "gate": {"reward": "style", "by": "right", "threshold": 1.0},
    "format_gate": {"reward": "style", "by": "right"},
    "calibrated": {"reward": "style", "baseline": "right"},
    "pessimism": {"reward": "style", "share": 0.6},
    "length": {"correct": "right"},
    "clip": {"eta": 0.5},
    "delta": {},
    "missing_eos": {"reward": "style", "cost": 0.5},
    "std_filter": {"reward": "style", "first": 1},
    "ccpo_thinker": {"joint": "style", "solo": "right"},
    "ccpo_solver": {"reward": "style"},
    "noise_backward": {"reward": "right", "false_positive": 0.1, "false_negative": 0.2},
    "redistribute": {"reward": "style", "ridge": 1.0},
    "ccpo_vote": {"reward": "style"},
}
ADVANTAGES = {
    "whiten": {},
    "confucius3": {},
    "nsr": {},
    "entropy_mask": {},
    "ace": {"alpha": 1.0},
    "ha_dw": {},
    "hacpo": {"floor": 0.1},
    "poise": {},
    "resrl": {},
    "discriminative": {},
    "entropy_performance": {"alpha": 0.1, "gamma": 0.1},
    "lp_reg": {},
    "nthr": {},
    "prefix": {"first": 0.5},
    "progrpo": {"alpha": 0.3},
    "rlfr": {},
    "sdpo": {},
}


def made(name: str, **settings) -> Transform:
    return load("policy.transforms", name)(**(SETTINGS | ADVANTAGES)[name] | settings)


def a_rollout(lengths=(2, 4, 3, 3), group=(0, 0, 1, 1)) -> Rollout:
    response = torch.arange(6) < torch.tensor(lengths)[:, None]
    return Rollout(torch.tensor(group), response, torch.ones(len(group), dtype=torch.bool))


def rewards() -> Rewards:
    values = torch.tensor([[1.0, 1.0], [2.0, 0.0], [NAN, 1.0], [4.0, NAN]], dtype=torch.float64)
    steps = torch.full((4, 6), NAN, dtype=torch.float64)
    steps[0, [0, 1]] = torch.tensor([0.9, 0.2], dtype=torch.float64)
    steps[1, [0, 2, 3]] = torch.tensor([0.4, 0.7, 0.1], dtype=torch.float64)
    members = torch.stack([values, values - 1, values + 3], 2)
    return Rewards(values, ("style", "right"), steps, members)


def applied(name: str, **settings) -> Rewards:
    one = made(name, **settings)
    return one.change(one.start, rewards(), a_rollout())[1]


def numbers(tensor: torch.Tensor) -> list[float | None]:
    return [None if math.isnan(one) else pytest.approx(one) for one in tensor.tolist()]


def test_a_gate_a_form_and_a_baseline_change_a_reward_by_another():
    assert numbers(applied("gate")["style"]) == [1.0, 0.0, None, None]
    assert numbers(applied("gate", threshold=0.0)["style"]) == [1.0, 2.0, None, None]
    # G-RA: an immediate reward adds up only where the long-term one is high enough
    both = Rewards(torch.tensor([[0.6, 5.0], [0.5, 5.0]]), ("right", "style"))
    gated = made("gate", threshold=0.6).change({}, both, a_rollout((2, 4), (0, 0)))[1]
    assert numbers(weighted_sum(gated.values, [1.0, 1.0])) == [5.6, 0.5]
    values = torch.tensor([[0.3, 1.0], [0.8, 0.0], [NAN, 0.0], [NAN, 1.0]])
    one = made("format_gate")
    found = one.change({}, Rewards(values, ("style", "right")), a_rollout())[1]["style"]
    assert numbers(found) == [pytest.approx(0.3), -1.0, -1.0, None]
    found = applied("calibrated")["style"]
    assert numbers(found) == [0.5, 1 / (1 + math.exp(-2)), None, None]


def test_pessimism_lies_between_the_ensemble_and_its_lowest_member_and_is_missing_without_rewards():
    # the lowest member says 1 less: 0.6 r + 0.4 (r - 1) = r - 0.4
    assert numbers(applied("pessimism")["style"]) == [0.6, 1.6, None, 3.6]
    assert numbers(applied("pessimism", share=1.0)["style"]) == [1.0, 2.0, None, 4.0]
    nothing = torch.full((4, 2), NAN)
    pessimism = made("pessimism")
    found = pessimism.change({}, Rewards(nothing, ("style", "right"), members=nothing[..., None]), a_rollout())[1]
    assert found["style"].isnan().all()
    some = Rewards(torch.tensor([[1.0], [2.0]]), ("style",), members=torch.tensor([[[0.0, NAN]], [[NAN, NAN]]]))
    two = a_rollout((2, 4), (0, 0))
    assert numbers(pessimism.change({}, some, two)[1]["style"]) == [0.6, None]


def test_short_right_answers_gain_wrong_ones_never_do_and_those_without_a_verdict_bound_nobody():
    # lengths 2 and 4: +1/2 and -1/2; 3 and 3: 0
    assert shortness(a_rollout(), torch.ones(4, dtype=torch.bool)).tolist() == [0.5, -0.5, 0.0, 0.0]
    assert numbers(applied("length")["length"]) == [0.5, -0.5, 0.0, None]
    wrong = Rewards(torch.zeros(4, 1), ("right",))
    assert made("length").change({}, wrong, a_rollout())[1]["length"].tolist() == [0.0, -0.5, 0.0, 0.0]
    rollout = a_rollout((2, 4, 6, 3), (0, 0, 0, 1))
    verdicts = Rewards(torch.tensor([[1.0], [1.0], [NAN], [1.0]]), ("right",))
    found = made("length").change({}, verdicts, rollout)[1]["length"]
    assert numbers(found) == [0.5, -0.5, None, 0.0]  # with the third answer's 6 tokens the second would have 0


def test_prompts_are_dropped_whole_and_never_for_a_single_reward():
    values = torch.tensor([[1.0], [3.0], [5.0], [NAN]], dtype=torch.float64)
    filtering = made("std_filter", share=0.5, reward="style")
    after, found = filtering.change({"step": 5, "spread": 1.0}, Rewards(values, ("style",)), a_rollout())
    assert numbers(found["style"]) == [1.0, 3.0, 5.0, None]
    assert after["spread"] == pytest.approx(0.99 + 0.01 * math.sqrt(2))  # of the first prompt alone
    # Its completions would be, if they only lacked the filtered one: it would not apply to the prompt
    values = torch.tensor([[1.0, 0.0], [1.1, 1.0], [0.0, 0.0], [5.0, 1.0]], dtype=torch.float64)
    filtering = made("std_filter", share=0.5, reward="style")
    found = filtering.change({"step": 5, "spread": 1.0}, Rewards(values, ("style", "form")), a_rollout())[1]
    assert numbers(found["style"]) == [None, None, 0.0, 5.0]
    assert numbers(found["form"]) == [None, None, 0.0, 1.0]


def test_clipped_steps_deltas_and_the_cost_of_an_answer_that_was_cut_off():
    found = applied("clip").steps
    assert numbers(found[0, :2]) == [0.0, pytest.approx(-0.3)]
    assert numbers(found[1]) == [pytest.approx(-0.1), None, 0.0, pytest.approx(-0.4), None, None]
    found = applied("delta").steps
    assert numbers(found[1]) == [pytest.approx(-0.3), None, pytest.approx(0.6), pytest.approx(0.1), None, None]
    assert found.nansum(1)[:2].tolist() == pytest.approx([0.9, 0.4])
    cut = a_rollout()._replace(finished=torch.tensor([True, False, False, True]))
    assert numbers(made("missing_eos").change({}, rewards(), cut)[1]["style"]) == [1.0, 1.5, None, 4.0]


def test_white_advantages_have_mean_0_and_deviation_1_over_tokens():
    # tokens of the answers: 1, 1 | 3, 3, 3, 3 | none | 5, 5: mean 3, variance (2·4 + 2·4) / 7
    batch = a_rollout((2, 4, 3, 2))._replace(total=torch.tensor([1.0, 3.0, NAN, 5.0]))
    found = made("whiten").change({}, torch.tensor([1.0, 3.0, 0.0, 5.0]), batch)[1]
    scale = math.sqrt(16 / 7)
    assert found[:, 0].tolist() == pytest.approx([-2 / scale, 0, 0, 2 / scale])
    assert not found[~batch.response].any()
    # one token each of 1, 0, 0, 1, where 0 is an advantage like any other: mean 1/2, variance 4 · 1/4 / 3
    batch = a_rollout((1, 1, 1, 1))._replace(total=torch.tensor([1.0, 0.0, 0.0, 1.0]))
    found = made("whiten").change({}, torch.tensor([1.0, 0.0, 0.0, 1.0]), batch)[1]
    assert found[:, 0].tolist() == pytest.approx([math.sqrt(3) / 2 * sign for sign in (1, -1, -1, 1)])


def test_an_advantage_of_0_at_one_token_does_not_leave_the_entropy_quantile():
    # of the first completion's four tokens the two with the highest entropy stay; the second's rewards are equal
    batch = a_rollout((4, 4), (0, 1))._replace(entropy=torch.tensor([[4.0, 3, 2, 1, 0, 0], [9.0, 9, 9, 9, 0, 0]]))
    advantages = torch.tensor([[0.0, 0, 1, 1, 0, 0], [0.0, 0, 0, 0, 0, 0]])
    found = made("entropy_mask", share=0.5).change({}, advantages, batch)[1]
    assert not found.any()  # the two are the tokens whose advantage is 0


def test_every_file_is_tried_here():
    assert {*names("policy.transforms")} == {*SETTINGS, *ADVANTAGES}
    assert {made(name).slot for name in ADVANTAGES} == {"advantage"}


def test_any_two_in_any_order_keep_rows_and_finiteness():
    before = rewards()
    for pair in permutations(SETTINGS, 2):
        composed = TransformChain("reward", {name: made(name) for name in pair})
        (_, _), (_, after) = composed(before, a_rollout())
        assert len(after.values) == 4 and after.values.shape[1] == len(after.names), pair
        assert not after.values.isinf().any() and after.steps.isnan().equal(before.steps.isnan()), pair
        assert json.loads(json.dumps(composed.state)) == composed.state, pair


def test_another_group_never_matters():
    changed = rewards()
    changed.values[2:] = torch.tensor([[7.0, 0.0], [-3.0, 1.0]], dtype=torch.float64)
    for name in SETTINGS:
        one = made(name)
        first, second = (one.change(one.start, each, a_rollout())[1] for each in (rewards(), changed))
        assert torch.allclose(first.values[:2], second.values[:2], equal_nan=True), name


def test_what_is_not_there_cannot_be_changed():
    for name, told in (
        ("clip", "no reward source scores steps"),
        ("delta", "no reward source"),
        ("redistribute", "no reward source"),
        ("pessimism", "comes from a single model"),
    ):
        with pytest.raises(ValueError, match=told):
            made(name).change({}, Rewards(torch.zeros(4, 2), ("style", "right")), a_rollout())
    with pytest.raises(ValueError, match="no reward is called 'stile'; the rewards are style, right"):
        applied("gate", reward="stile")


def doubled(stage: int) -> Transform:
    """Counts how often it ran."""
    return Transform(
        "advantage", lambda state, x, rollout: ({"runs": state["runs"] + 1}, 2 * x), stage, start={"runs": 0}
    )


def test_a_wrong_order_of_stages_is_refused_and_a_missing_component_matters_by_its_weight():
    with pytest.raises(
        ValueError, match=r"'early' is of stage 1 \(groups as a whole\) but comes after 'late' of stage 5"
    ):
        TransformChain("advantage", {"late": doubled(5), "early": doubled(1)})
    with pytest.raises(ValueError, match="'gate' transforms rewards but is listed as a transform of advantages"):
        TransformChain("advantage", {"gate": made("gate")})
    with pytest.raises(ValueError, match="stage must be 1 to 5"):
        Transform("advantage", lambda state, x, rollout: (state, x))
    values = torch.tensor([[1.0, 2.0], [NAN, 2.0], [1.0, NAN]])
    assert numbers(weighted_sum(values, [1.0, 0.5])) == [2.0, None, None]
    assert numbers(weighted_sum(values, [0.0, 0.5])) == [1.0, 1.0, None]
    with pytest.raises(ValueError, match="3 weights for 2 rewards"):
        weighted_sum(values, [1.0, 1.0, 1.0])


def test_every_step_of_the_way_is_told_and_the_state_goes_on_from_a_checkpoint():
    composed = TransformChain("advantage", {"a": doubled(1), "b": doubled(4)})
    assert [(name, x.tolist()) for name, x in composed(torch.ones(2), a_rollout())] == [("a", [2, 2]), ("b", [4, 4])]
    other = TransformChain("advantage", {"a": doubled(1), "b": doubled(4)})
    other.load(json.loads(json.dumps(composed.state)))
    other(torch.ones(2), a_rollout())
    assert other.state == {"a": {"runs": 2}, "b": {"runs": 2}}
    with pytest.raises(ValueError, match="the state has the transforms a, not a, b"):
        other.load({"a": {}})


def in_fours(rows: int) -> Rollout:
    return Rollout(torch.arange(rows) // 4, torch.ones(rows, 2, dtype=torch.bool), torch.ones(rows, dtype=torch.bool))


def corrected(verdicts, **settings) -> list[float]:
    values = torch.as_tensor(verdicts, dtype=torch.float64)
    one = noise_backward(**{"reward": "verdict", "false_positive": 0.1, "false_negative": 0.3} | settings)
    seen = Rewards(values[:, None], ("verdict",))
    return one.change({}, seen, in_fours(len(values)))[1]["verdict"].tolist()


def test_backward_by_hand_with_a_rate_for_every_answer():
    # (1 - 0.1) / 0.6 and (0 - 0.1) / 0.6
    assert corrected([1.0, 0.0, 1.0]) == pytest.approx([1.5, -1 / 6, 1.5])
    assert math.isnan(corrected([NAN, 1.0])[0])
    # (1 - 0.1) / 0.6, (0 - 0.2) / 0.4 and (0 - 0.5) / max(0.1, 0.3)
    rates = torch.tensor([[1.0, 0.1, 0.3], [0.0, 0.2, 0.4], [0.0, 0.5, 0.4]], dtype=torch.float64)
    made = noise_backward(reward="verdict", false_positive="fp", false_negative="fn", least=0.3)
    found = made.change({}, Rewards(rates, ("verdict", "fp", "fn")), in_fours(3))[1]
    assert found["verdict"].tolist() == pytest.approx([1.5, -0.5, -5 / 3]) and torch.equal(found["fp"], rates[:, 1])


def test_forward_by_hand_and_rates_of_0_change_nothing():
    found = noise_forward(false_negative=0.3)(torch.tensor([1.0, 0.0, NAN, 1.0], dtype=torch.float64), in_fours(4))
    assert found.tolist() == pytest.approx([0.3, -0.7, 0.0, 0.3])
    # the same as a fixed baseline of 1 - 0.3
    known = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    other = fixed_baseline(baseline=0.7)(known, in_fours(3))
    assert noise_forward(false_negative=0.3)(known, in_fours(3)).tolist() == pytest.approx(other.tolist())
    assert corrected([1.0, 0.0], false_positive=0.0, false_negative=0.0) == [1.0, 0.0]
    assert noise_forward(false_negative=0.0)(torch.tensor([1.0, 0.0]), in_fours(2)).tolist() == [0.0, -1.0]


def test_units_of_a_deviation_undo_the_correction_and_that_is_refused():
    for name in ("grpo", "lite_ppo", "reinforce_pp"):
        with pytest.raises(ValueError, match="cancels the correction of rewards of 0 and 1; use the estimator fix"):
            check_estimator(load("policy.advantages", name)(), 0.1, 0.3)
    for name in ("fixed_baseline", "dr_grpo", "rloo"):
        check_estimator(load("policy.advantages", name)(), 0.1, 0.3)
    check_estimator(load("policy.advantages", "grpo")(), 0.0, 0.0)


def test_what_is_no_verdict_and_no_rate_is_refused():
    with pytest.raises(ValueError, match="'verdict' must be a verdict of 0 or 1, got 0.5"):
        corrected([1.0, 0.5])
    with pytest.raises(ValueError, match="verdicts of 0 or 1, got -1"):
        noise_forward(false_negative=0.1)(torch.tensor([1.0, -1.0]), in_fours(2))
    with pytest.raises(ValueError, match=r"false_positive must be a rate in \[0, 1\], got 1.2"):
        noise_backward(reward="verdict", false_positive=1.2, false_negative=0.0)
    with pytest.raises(ValueError, match=r"false_negative must be a rate in \[0, 1\], got -0.1"):
        noise_forward(false_negative=-0.1)
    with pytest.raises(ValueError, match="no reward is called 'fp'"):
        corrected([1.0, 0.0], false_positive="fp")
