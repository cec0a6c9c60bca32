"""R2M in training: one update a cycle from the policy's own states, and controls that differ where they should."""

import copy
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from peft import LoraConfig
from rewardlab.benchmarks import garden
from rewardlab.policy.decoding.engines import SeparateModels, decoding_model
from rewardlab.policy.decoding.guided import decode
from rewardlab.policy.decoding.requests import Request
from rewardlab.policy.rewards.r2m_controls import CONTROLS, R2MArguments, fixed, noise, shuffled, stale
from rewardlab.policy.rewards.r2m_online_updates import Anchor, OnlineR2M, label_pair, rows_of_groups
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.step import forward as head
from rewardlab.policy.step.algorithm import Penalty
from rewardlab.policy.training.critic import CriticArguments
from rewardlab.policy.types import Cycle, Rollout
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.r2m.model import R2MRewardModel
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.losses.grebt import omega
from rewardlab.rm.types import Example, user_turn

from tests.policy.toy_training import algorithm, logged, prompts

R = 4
FAST = R2MArguments(learning_rate=1e-2)
SURE = garden.labeller(noise=0.0, temperature=0.01)


def untaught(policy, words, seed=0):
    """A reward model with the policy's trunk and an untrained head."""
    model = scalar_from_config(copy.deepcopy(policy.config), words, seed=seed)
    model.model.base_model.load_state_dict(policy.base_model.state_dict())
    return model


@pytest.fixture(scope="module")
def scalar(base, words):
    return untaught(base, words)


@pytest.fixture(scope="module")
def states_of(base, scalar):
    """The toy policy's states of answers, as the trainer hands them over."""
    return partial(head.states_of, base, scalar.encoder)


@pytest.fixture(scope="module")
def said(base, words):
    """Its answers, R to each of 8 questions a cycle."""
    prompts = [prompt for prompt in garden.prompts(8 * 5, 5) for _ in range(R)]
    asked = [Request(prompt, seed=row, max_new_tokens=32) for row, prompt in enumerate(prompts)]
    answers = decode(SeparateModels(decoding_model(base, words)), asked, batch_size=512)
    return [Example(prompt, answer.text) for prompt, answer in zip(prompts, answers, strict=True)]


@pytest.fixture
def source(scalar):
    def make(arguments=FAST, *, rounds=10, anchor=None, **changes):
        model = R2MRewardModel.on(copy.deepcopy(scalar), 64, 16)
        return OnlineR2M(model, rounds, replace(arguments, **changes), anchor=anchor)

    return make


@pytest.fixture
def cycles(said, states_of):
    """Cycles whose policy stands still; or, with `drift`, one whose states have changed after the last pass."""

    def make(number=1, groups=8, drift=0.0):
        for place in range(number):
            examples = said[place * groups * R : (place + 1) * groups * R]
            rollout = Rollout(
                group=torch.arange(groups).repeat_interleave(R),
                response=torch.ones(len(examples), 1, dtype=torch.bool),
                finished=torch.ones(len(examples), dtype=torch.bool),
            )
            before, rewards = states_of(examples), torch.zeros(len(examples))
            after = [one + drift * one.sign() for one in before]
            yield before, Cycle(examples, rollout, rewards, after, rewards[:, None])

    return make


def play(source, cycles):
    """Rate and learn; what each cycle told."""
    told = []
    for before, cycle in cycles:
        source.rate(cycle.examples, before)
        told.append(source.learn(cycle))
    return told


def digest(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().tobytes()


def test_the_first_rewards_are_the_scalar_models_and_stay_so_for_a_frozen_reward(source, scalar, cycles):
    ((before, cycle),) = cycles()
    one = source()
    assert one.version[1:] == (0, 0, 1.0)
    np.testing.assert_allclose(one.rate(cycle.examples, before), scalar.rate(cycle.examples), atol=1e-6, rtol=0)
    one = source(**CONTROLS["frozen"])
    play(one, cycles(3))
    ((before, cycle),) = cycles()
    np.testing.assert_allclose(one.rate(cycle.examples, before), scalar.rate(cycle.examples), atol=1e-6, rtol=0)


def test_the_head_learns_and_the_body_does_not(source, cycles):
    one = source()
    body, head = digest(one.model.body.model), digest(one.model.head)
    told = play(one, cycles(2))
    assert digest(one.model.body.model) == body and digest(one.model.head) != head
    assert [row["head_version"] for row in told] == [row["policy_version"] for row in told] == [0, 1]
    assert [row["omega"] for row in told] == pytest.approx([1.0, omega(1, 10, 0.6)])
    assert one.version[1:] == (2, 2, omega(2, 10, 0.6))


def test_an_update_widens_the_pairs_it_was_made_on_and_no_gradient_reaches_the_states(source, cycles):
    # The same answers twice: -log σ(best - worst) falls
    one = source(alpha=0.0)
    ((before, cycle),) = cycles()
    told = play(one, [(before, cycle)] * 4)
    assert told[-1]["bt"] < told[0]["bt"] < math.log(2)
    one = source(floor=0.2)
    play(one, cycles(2))
    ((before, cycle),) = cycles()
    watched = [each.clone().requires_grad_() for each in before]
    one.rate(cycle.examples, before)
    one.learn(cycle._replace(states=watched))
    assert all(each.grad is None for each in watched)


def test_groups_in_batches_are_one_pass_of_several_steps(source, cycles):
    together, apart = source(), source(batch_groups=3)
    for one in (together, apart):
        play(one, cycles())
    steps = [int(one.optimizer.state[one.learning[0]]["step"]) for one in (together, apart)]
    assert steps == [1, 3]  # 8 groups: 3, 3 and 2
    assert together.updates == apart.updates == 1


def test_completions_and_groups_that_the_policy_did_not_learn_from_are_left_out(source, cycles):
    ((before, cycle),) = cycles(groups=3)
    total = torch.zeros(12)
    total[:2] = total[4:8] = torch.nan  # two of the first group are left, none of the second
    one = source()
    (told,) = play(one, [(before, cycle._replace(total=total))])
    assert told["skipped_groups"] == 2
    ((before, cycle),) = cycles(groups=2)
    one = source()
    head = digest(one.model.head)
    (told,) = play(one, [(before, cycle._replace(total=torch.full((8,), torch.nan)))])
    assert digest(one.model.head) == head
    assert told["skipped_groups"] == 2 and "loss" not in told and one.version[1:3] == (0, 1)


def test_every_objective_has_its_own_pairs(base, source, cycles, words):
    objectives = ("good", "kind")
    model = R2MRewardModel.on(scalar_from_config(copy.deepcopy(base.config), words, objectives=objectives), 64, 8)
    both, one = (OnlineR2M(copy.deepcopy(model), 10, replace(FAST, objectives=chosen)) for chosen in ((), ("kind",)))
    before, weight = model.head.score.weight.clone(), "score.weight"
    for each in (both, one):
        play(each, cycles())
    moved = [(dict(each.model.head.named_parameters())[weight] - before).abs().sum(1) > 0 for each in (both, one)]
    assert moved[0].tolist() == [True, True] and moved[1].tolist() == [False, True]
    with pytest.raises(UsageError, match="no objective 'gold' in the reward model; it has good, kind"):
        OnlineR2M(model, 10, replace(FAST, objectives=("gold",)))


def test_an_update_is_of_the_version_that_was_rated_whatever_was_rated_in_between(source, cycles, said, states_of):
    one = source()
    ((before, cycle),) = cycles()
    play(one, [(before, cycle)])
    with pytest.raises(UsageError, match="at version 1, has not rated these 32 completions"):
        one.learn(cycle)
    # An evaluation may come between rewards and update
    quiet, asked = source(reads=noise, floor=0.0), source(reads=noise, floor=0.0)
    for one in (quiet, asked):
        for before, cycle in cycles(3):
            one.rate(cycle.examples, before)
            if one is asked:
                one.rate(said[-6:], states_of(said[-6:]))
            one.learn(cycle)
    assert digest(quiet.model.head) == digest(asked.model.head)


def test_a_state_goes_on_where_it_was_and_one_of_another_run_or_body_is_refused(source, cycles, base, words, scalar):
    whole, half = source(anchor=Anchor(SURE, 3)), source(anchor=Anchor(SURE, 3))
    told = play(whole, cycles(4))
    play(half, cycles(2))
    again = source(anchor=Anchor(SURE, 3))
    again.load(copy.deepcopy(half.state()))
    assert again.version == half.version
    for row, expected in zip(play(again, [*cycles(4)][2:]), told[2:], strict=True):
        assert row == pytest.approx(expected, abs=1e-6)
    for other, message in (
        (source(rounds=20), "has rounds 10, but this run has 20; resume with"),
        (source(learns="nothing"), "has learns head, but this run has nothing"),
        (OnlineR2M(R2MRewardModel.on(scalar, 64, 8), 10), r"widths \[64, 64, 16\]"),
        (OnlineR2M(R2MRewardModel.on(untaught(base, words, 1), 64, 16), 10, FAST), "reward model has body"),
    ):
        with pytest.raises(DataError, match=message):
            other.load(source().state())


@pytest.mark.parametrize("name", CONTROLS)
def test_every_control_runs_and_moves_what_it_says(source, cycles, name):
    one = source(**CONTROLS[name])
    reading = {key: value.clone() for key, value in one.model.head.named_parameters()}
    body = digest(one.model.body.model)
    play(one, cycles(3))
    moved = {key for key, value in one.model.head.named_parameters() if not torch.equal(value, reading[key])}
    expected = {"frozen": set(), "not_trained": set(), "iterative_head": {"score.weight"}}
    if name == "fixed":  # over one state there is nothing to choose by
        expected["fixed"] = {"score.weight", "W_v", "W_o"}
    assert moved == expected.get(name, {"score.weight", "W_q", "W_k", "W_v", "W_o"})
    assert (digest(one.model.body.model) != body) == (name == "full_update")


def test_what_the_controls_read_instead_and_states_do_not_depend_on_their_company(base, scalar, states_of, said):
    answers, random = said[:40], torch.Generator().manual_seed(0)
    states = states_of(answers)
    before = shuffled(states, answers, random)
    assert all(torch.equal(one, other) for one, other in zip(before[1:], states, strict=False))
    drawn = noise(states, answers, random)
    assert [one.shape for one in drawn] == [one.shape for one in states]
    found, expected = torch.cat(drawn), torch.cat(states).float()
    torch.testing.assert_close(found.mean(0), expected.mean(0), atol=0.25, rtol=0)
    torch.testing.assert_close(found.std(0), expected.std(0), atol=0, rtol=0.2)
    assert {len(one) for one in fixed(states, answers, random)} == {1}
    moved = [2 * one for one in states]
    for one, other in zip(stale(base, scalar.encoder)(moved, answers, random), states, strict=True):
        torch.testing.assert_close(one, other)
    together = states_of(said[:6])
    for one, alone in zip(together, (states_of([example])[0] for example in said[:6]), strict=True):
        torch.testing.assert_close(one, alone, atol=2**-6, rtol=0)  # one unit of bfloat16


def test_unrefreshed_states_are_those_of_the_annotation(source, cycles):
    """Where the policy has not moved the update is the same; where it has, only the refreshed one sees it."""
    for drift, same in ((0.0, True), (0.5, False)):
        found = []
        for refresh in (True, False):
            one = source(refresh=refresh, floor=0.0)
            play(one, cycles(3, drift=drift))
            found.append(digest(one.model.head))
        assert (found[0] == found[1]) == same


def test_the_pair_may_be_chosen_on_the_states_after_the_update(source, cycles):
    """By refreshed rewards the best is above the worst for certain; by those of the annotation it need not be."""
    found = []
    for pair_from in ("annotation", "refreshed"):
        one = source(rounds=5, floor=0.0, pair_from=pair_from, learns="nothing", alpha=0.0)
        found.append(play(one, cycles(4, drift=2.0))[-1]["bt"])
    assert found[1] < found[0]


def test_labels_are_counted_and_decide_the_pair(source, cycles):
    """Asked about 3 of 8 groups: told that the worst is better, the head brings them together."""
    asked = []

    def against(prompt, answers):
        asked.append(answers)
        rewards = one.model.body.rate([Example(prompt, answer) for answer in answers])[:, 0]
        return float(rewards[0] < rewards[1])

    one = source(alpha=0.0, anchor=Anchor(against, 3, only=True), **CONTROLS["iterative_head"])
    ((before, cycle),) = cycles()
    (told,) = play(one, [(before, cycle)])
    assert (told["asked"], told["calls"], told["abstained"], told["accuracy"]) == (3, 3, 0, 0.0)
    assert told["skipped_groups"] == 5 and told["bt"] > math.log(2)
    assert play(one, [(before, cycle)])[0]["calls"] == 6 == len(asked)


def test_an_abstention_makes_no_pair_and_the_other_groups_are_as_published_unless_left_out(source, cycles):
    one = source(anchor=Anchor(lambda prompt, answers: math.nan, 3))
    (told,) = play(one, cycles())
    assert told["abstained"] == told["skipped_groups"] == 3 and "accuracy" not in told
    for only, skipped in ((False, 0), (True, 5)):
        one = source(anchor=Anchor(SURE, 3, only=only))
        assert play(one, cycles())[0]["skipped_groups"] == skipped


def test_a_labellers_liking_for_a_place_favours_nobody():
    """Whoever always likes the first answer gives 1 and 0 about equally often."""
    first, second = Example(user_turn("q"), "a"), Example(user_turn("q"), "b")
    random = torch.Generator().manual_seed(0)
    found = [label_pair(lambda prompt, answers: 1.0, first, second, random) for _ in range(200)]
    assert 80 < sum(found) < 120
    assert all(label_pair(lambda _, texts: float(texts[0] == "a"), first, second, random) == 1 for _ in range(20))
    with pytest.raises(DataError, match=r"must return P\(first is better\) in \[0, 1\] or NaN, got 7.0"):
        label_pair(lambda prompt, answers: 7.0, first, second, random)


def test_what_an_anchor_cannot_do_and_groups_of_two_sizes_are_refused(source, cycles):
    with pytest.raises(UsageError, match="must label at least one group in every cycle, got 0"):
        Anchor(SURE, 0)
    with pytest.raises(UsageError, match=r"needs a single objective and alpha < 1, got 1 objectives and alpha 1.0"):
        source(alpha=1.0, anchor=Anchor(SURE, 1))
    with pytest.raises(UsageError, match="labels 9 groups, but the cycle has 8"):
        play(source(anchor=Anchor(SURE, 9)), cycles())
    assert rows_of_groups(torch.tensor([1, 0, 1, 0])).tolist() == [[1, 3], [0, 2]]
    with pytest.raises(ValueError, match=r"groups must have equal sizes, got \[2, 1\]"):
        rows_of_groups(torch.tensor([0, 0, 1]))


@pytest.fixture
def train(make_trainer, source):
    """A finished run on a copy of the toy policy, with its source."""

    def run(advantage="rloo", one=None, *, steps=2, resume=None, **changes):
        one, ppo = one or source(rounds=steps), advantage == "gae"
        formulas = algorithm(advantage, penalty=Penalty(0.05, "token", "k1") if ppo else Penalty())
        changes |= {"max_completion_length": 12, "max_steps": steps, "critic": CriticArguments() if ppo else None}
        trainer = make_trainer(formulas, RewardSources({"r2m": one}), **changes)
        trainer.train(resume_from_checkpoint=resume)
        return trainer, one

    return run


def test_neither_an_update_moves_the_policy_nor_an_evaluation_the_reward(train, source, base):
    """A policy that does not learn stands still while the reward model learns on its states."""
    one = source(rounds=2, floor=0.0)
    head = digest(one.model.head)
    trainer, _ = train(one=one, learning_rate=0.0, eval_dataset=prompts(2), per_device_eval_batch_size=4)
    assert digest(trainer.language_model) == digest(base) and digest(one.model.head) != head
    assert all(each.grad is None for each in trainer.language_model.parameters())
    before = one.version
    assert math.isfinite(trainer.evaluate()["eval_reward"]) and one.version == before


def test_a_policy_with_an_adapter_is_read_too(train):
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer, one = train(steps=2, peft_config=lora, num_iterations=2)
    assert one.version[1:3] == (1, 1) and logged(trainer, "r2m/head_version") == [0]
