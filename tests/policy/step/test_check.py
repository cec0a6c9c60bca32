"""policy/step/composition.py: every composition runs, or is refused with a sentence before the first step."""

import copy
import itertools
import math
from dataclasses import replace

import pytest
import torch
from rewardlab.policy.step.algorithm import Algorithm, Penalty
from rewardlab.policy.step.composition import RunInputs, check_composition, trial_rewards, trial_rollout
from rewardlab.policy.types import Rewards, TokenEstimator, Transform
from rewardlab.rm.errors import UsageError
from rewardlab.rm.registry import load, names

from tests.policy.advantages.test_advantages import COMPONENTS, ESTIMATORS, SETTINGS, STEPS, TOKENS, VERDICTS
from tests.policy.transforms.test_transforms import ADVANTAGES, made

FIELDS = ("tokens", "logprobs", "base", "entropy", "states", "prompt_logprobs", "head", "teacher")
CRITIC = ("values", "after")
LOSSES = {
    "ppo": {},
    "gspo": {},
    "cispo": {"high": 1.3},
    "kimi": {"tau": 0.1},
    "hacpo": {"delta": 0.8},
    "p3o": {"epsilon": 0.2},
    "rpo": {"beta": 0.1, "eta": 0.01},
    "dispo": {"right_low": 0.0, "right_high": 1.3, "wrong_low": 0.5, "wrong_high": 2.0},
    "rl_plus": {"agents": 2},
    "critique_grpo": {"agents": 2},
}
OF_COMPLETIONS = {"kimi", "hacpo", "p3o", "rpo"}


def algorithm(advantage="dr_grpo", loss="ppo", **changes) -> Algorithm:
    if isinstance(advantage, str):
        advantage = load("policy.advantages", advantage)(**SETTINGS.get(advantage, {}))
    rule = load("policy.losses", loss)(**LOSSES[loss]) if isinstance(loss, str) else loss
    return Algorithm(advantage, rule, load("policy.aggregations", "token_mean")(), **changes)


def run_inputs(number=1, size=4, *, critic=False, **changes) -> RunInputs:
    columns = ("right", "style", "partner", "other")[:number]
    return RunInputs(columns, [size], FIELDS + CRITIC * critic)._replace(**changes)


def refusal(made: Algorithm, inputs: RunInputs) -> str:
    """The sentence, or nothing."""
    try:
        check_composition(made, inputs)
    except UsageError as error:
        return str(error)
    return ""


SHAPES = [("ppo", *one) for one in itertools.product(("loss", "token", "completion"), (False, True), (1, 4))]
SHAPES += [(loss, "loss", False, 2) for loss in LOSSES if loss != "ppo"]
"""Losses with places of the KL, with and without process rewards, and completions in a group."""


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore:are")
def test_every_estimator_runs_on_every_shape_of_rewards_or_is_refused_with_a_sentence(name):
    apart = name in COMPONENTS
    for loss, place, steps, size in SHAPES:
        in_reward = place != "loss"
        if apart and in_reward:
            with pytest.raises(ValueError, match="cannot use a KL penalty in the reward"):
                algorithm(name, apart=True, penalty=Penalty(0.1, place, "k1"))
            continue
        composed = algorithm(name, loss, apart=apart, penalty=Penalty(0.1, place, "k1"))
        inputs = run_inputs(COMPONENTS.get(name, 1), size, critic=name == "gae", process_rewards=steps)
        reasons = {
            "cannot use step rewards": apart and steps,
            "no reward source scores steps": name in STEPS and not steps,
            "verdicts of 0 or 1": name in VERDICTS and (in_reward or steps),
            "a loss of whole completions reads one advantage": name in TOKENS and loss in OF_COMPLETIONS,
        }
        expected, said = [reason for reason, holds in reasons.items() if holds], refusal(composed, inputs)
        assert any(reason in said for reason in expected) if expected else not said, (loss, place, steps, size, said)
        if not said:
            scored = composed(trial_rewards(size, inputs), trial_rollout(size, inputs.fields))
            assert scored.advantage.isfinite().all() and scored.advantage.shape == scored.weights.shape


def test_a_weight_of_process_rewards_is_refused_before_training():
    """The steps' rewards are not scaled by it; 0 leaves out only a reward of the whole completion."""
    inputs = run_inputs(2, critic=True, process_rewards=True)._replace(names=("right", "steps"), step_names=("steps",))
    for share in (0.0, 1.0):
        assert not refusal(algorithm("gae", shares={"right": 1.0, "steps": share}), inputs)
    assert not refusal(algorithm("gae", shares={"steps": 1.0}), inputs)
    assert "the weight of 'steps' is 0.1" in refusal(algorithm("gae", shares={"right": 1.0, "steps": 0.1}), inputs)


def test_every_transform_of_advantages_runs_or_names_what_is_missing():
    lacks = {"ace": "log-probabilities", "entropy_mask": "entropies", "poise": "log-probabilities", "resrl": "states"}
    lacks |= dict.fromkeys(("discriminative", "entropy_performance", "lp_reg", "progrpo", "sdpo"), "log-probabilities")
    lacks["nthr"] = "no hidden states"
    lacks |= {"rlfr": "states"}
    for name, advantage in itertools.product(ADVANTAGES, ("grpo", "reinforce_pp")):
        composed = algorithm(advantage, advantage_transforms={name: made(name)})
        assert not refusal(composed, run_inputs()), name
        said = refusal(composed, run_inputs(fields=("tokens",)))
        assert lacks[name] in said if name in lacks else not said, (name, said)


def test_every_scheduler_runs_or_names_what_is_missing():
    bandit = {"model": "ridge", "keep": 2, "longest": 16, "penalty": 0.1, "ceiling": 2.0, "shrink": 1.0, "bonus": 0.5}
    settings = {"cbs": bandit, "dars": {}, "pf_ppo": {"kind": "best_worst"}, "rorecomp": {"share": 0.5}, "wmss": {}}
    settings["mpo"] = {"gap": 0.5, "side": "large"}
    assert {*settings} == {*names("policy.schedulers")}
    for name, given in settings.items():
        scheduled = algorithm(scheduler=load("policy.schedulers", name)(**given))
        assert not refusal(scheduled, run_inputs())
    said = refusal(algorithm(scheduler=load("policy.schedulers", "wmss")()), run_inputs(fields=()))
    assert "leave --measure_kl on" in said


def of_advantages(change) -> dict[str, Transform]:
    return {"own": Transform("advantage", lambda state, x, rollout: change(x), stage=2)}


def of_rewards(change) -> dict[str, Transform]:
    return {"own": Transform("reward", lambda state, x, rollout: (state, change(x)))}


WRONG = {
    "estimate [N, 1]": (
        algorithm(lambda r, rollout: r[:, None]),
        "the advantage estimator returns the shape [16, 1] for trial completions, where [16] or [16, 3] is expected",
    ),
    "estimate NaN": (algorithm(lambda r, rollout: r), "the advantage estimator returns numbers that are not finite"),
    "estimate raises": (algorithm(lambda r, rollout: r.x), "the advantage estimator fails on a trial rollout (Attr"),
    "no state": (
        algorithm(advantage_transforms=of_advantages(lambda x: x)),
        "the transform 'own' returns Tensor, where the next state and the result are expected",
    ),
    "rows": (
        algorithm(advantage_transforms=of_advantages(lambda x: ({}, x[:2]))),
        "the transform 'own' returns the shape [2]",
    ),
    "no rewards": (
        algorithm(reward_transforms=of_rewards(lambda x: x.values)),
        "the transform 'own' returns Tensor for trial rewards, where policy.types.Rewards are expected",
    ),
    "rows of rewards": (
        algorithm(reward_transforms=of_rewards(lambda x: Rewards(x.values[:3], x.names))),
        "the transform 'own' returns rewards of the shape [3, 1], where [16, 1] is expected",
    ),
    "loss []": (algorithm(loss=lambda one: one.logprob.sum()), "the loss returns the shape [] for trial completions"),
    "loss raises": (algorithm(loss=lambda one: one.base.x), "the loss fails on a trial rollout (AttributeError"),
    "name": (algorithm(shares={"rihgt": 1.0}), "no reward is called 'rihgt'; the rewards are right"),
    "scheduler": (algorithm(scheduler=lambda state, s, rollout: ({}, s)), "the scheduler returns numbers that are not"),
}


def test_what_is_wrong_is_one_sentence_that_names_the_function_as_the_user_did():
    flat = algorithm(lambda r, rollout: r[:, None], formulas={"advantage": "my_code:flat"})
    assert "estimator 'my_code:flat' returns the shape" in refusal(flat, run_inputs())
    summed = algorithm(loss=lambda one: one.logprob.sum(), formulas={"rule": "my_code:kl"})
    assert "the loss 'my_code:kl' returns the shape" in refusal(summed, run_inputs())
    for name, (wrong, sentence) in WRONG.items():
        said = refusal(wrong, run_inputs())
        assert sentence in said and "\n" not in said, (name, said)


def test_a_missing_input_is_named():
    assert "give the run a critic" in refusal(algorithm("gae"), run_inputs())
    assert "leave --measure_kl on" in refusal(algorithm(loss="rpo"), run_inputs(fields=("tokens", "logprobs")))
    assert "a KL penalty in the reward: the rollout has no log-probabilities" in refusal(
        algorithm(penalty=Penalty(0.1, "completion")), run_inputs(fields=("tokens", "logprobs"))
    )
    watched = run_inputs(2, watched=("style",))
    gated = algorithm(shares={"right": 1.0}, reward_transforms={"gate": made("gate", reward="right", by="style")})
    assert "depends on rewards named with --watch (style)" in refusal(gated, watched)
    beside = replace(gated, shares={"right": 1.0, "partner": 1.0})
    assert "depends on rewards named with --watch (style)" in refusal(beside, run_inputs(3, watched=("style",)))
    assert not refusal(algorithm(shares={"right": 1.0}), watched)
    pessimistic = algorithm(reward_transforms={"pessimism": made("pessimism", reward="right")})
    assert "comes from a single model" in refusal(pessimistic, run_inputs())
    assert not refusal(pessimistic, run_inputs(ensembles=("right",)))


def test_pairs_of_an_evaluation_with_a_single_answer_are_refused_before_training():
    solver = algorithm(reward_transforms={"solver": made("ccpo_solver", reward="right")})
    assert not refusal(solver, run_inputs(sizes=[4]))
    assert "got 1; set an even --num_generations" in refusal(solver, run_inputs(sizes=[4, 1]))


def test_neither_state_nor_random_numbers_change():
    def draws(rewards, rollout):
        return rewards.nan_to_num(0) + torch.rand(len(rewards))

    formulas = {"poise": made("poise"), "ha_dw": made("ha_dw")}
    composed = algorithm(draws, advantage_transforms={"ha_dw": formulas["ha_dw"], "poise": formulas["poise"]})
    before, generator = copy.deepcopy(composed.state), torch.get_rng_state()
    check_composition(composed, run_inputs(size=64))
    assert composed.state == before and torch.equal(torch.get_rng_state(), generator)


def test_what_is_made_up_has_ties_missing_rewards_a_single_reward_and_a_truncated_completion():
    rollout, rewards = trial_rollout(2, ("base",)), trial_rewards(2, run_inputs())
    shown = [None if math.isnan(one) else one for one in rewards["right"].tolist()]
    assert shown == [1, 0, 1, 1, 1, None, None, None] and rollout.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rollout.response.sum(1).tolist() == [1, 2, 3, 1, 2, 3, 1, 2] and rollout.logprobs is None
    assert rollout.finished.logical_not().nonzero().tolist() == [[2]]


def test_a_trainer_refuses_before_its_first_step(make_trainer):
    with pytest.raises(UsageError, match="give the run a critic"):
        make_trainer(algorithm("gae"))
    with pytest.raises(UsageError, match="leave .*measure_kl on|no log-probabilities"):
        make_trainer(algorithm(advantage_transforms={"ace": made("ace")}), measure_kl=False)
    tokens = TokenEstimator(lambda rewards, rollout: rewards.nan_to_num(0)[:, None] * rollout.response)
    make_trainer(algorithm(tokens), measure_kl=False)
