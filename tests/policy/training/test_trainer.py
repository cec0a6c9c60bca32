"""The loop equals TRL's where both say the same, and keeps its promises where TRL has none."""

import copy
import json
import math
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from rewardlab.apps.assembly.policy_training.settings import RlConfig
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.step.algorithm import Penalty
from rewardlab.policy.step.composition import build_algorithm
from rewardlab.policy.step.forward import completion_states
from rewardlab.policy.step.metrics import LearningSignal
from rewardlab.policy.training.arguments import PolicyArguments
from rewardlab.policy.training.checkpoint import FORMULAS
from rewardlab.policy.training.critic import CriticArguments
from rewardlab.policy.training.trainer import PolicyTrainer
from rewardlab.policy.types import Transform
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.registry import load
from rewardlab.rm.types import prompt_text
from transformers import AutoConfig, AutoModelForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tests.conftest import SMALL_RUN
from tests.policy.toy_training import algorithm, logged, prompts

OF_ALGORITHMS = ("penalty", "reward_transforms", "advantage_transforms", "scheduler", "shares", "entropy")


@pytest.fixture(scope="module")
def data():
    return prompts()


@pytest.fixture
def train(make_trainer, data):
    """A finished run on a copy of the toy policy."""

    def run(advantage="grpo", sources=None, *, steps=2, resume=None, done=True, **changes):
        formulas = {name: changes.pop(name) for name in OF_ALGORITHMS if name in changes}
        made = make_trainer(algorithm(advantage, **formulas), sources, data=data, max_steps=steps, **changes)
        if done:
            made.train(resume_from_checkpoint=resume)
        return made

    return run


def weights(trainer):
    return {name: one.detach().clone() for name, one in trainer.language_model.named_parameters()}


def gold_function(prompts, completions, **_):
    return [
        garden.gold_rewards(prompt_text(prompt), completion[0]["content"]).overall
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def test_grpo_is_trls_grpo_to_the_last_digits(train, base, words, data, tmp_path):
    """Same answers, loss and weights after four steps with a corrected KL in the loss and two passes.

    Adam's epsilon keeps a step along a gradient of rounding alone as small as that, on every processor.
    """
    base.save_pretrained(tmp_path / "start")
    theirs = GRPOTrainer(
        copy.deepcopy(base).from_pretrained(tmp_path / "start"),
        [gold_function],
        GRPOConfig(
            **SMALL_RUN, output_dir=str(tmp_path / "trl"), bf16=False, report_to=[], logging_steps=1, max_steps=4,
            beta=0.05, num_iterations=2, loss_type="dapo", disable_dropout=True, adam_epsilon=1e-4,
        ),
        data,
        processing_class=words,
    )  # fmt: skip
    theirs.train()
    penalty = build_algorithm(RlConfig(kl=0.05), ["gold"]).penalty
    ours = train(steps=4, penalty=penalty, num_iterations=2, adam_epsilon=1e-4)
    assert logged(ours, "reward") == pytest.approx(logged(theirs, "reward"), abs=1e-6)
    assert logged(ours, "loss") == pytest.approx(logged(theirs, "loss"), abs=1e-5)
    mean_of_micro_batches = logged(theirs, "entropy")
    assert logged(ours, "entropy") == pytest.approx(mean_of_micro_batches, rel=0.02)
    for name, one in theirs.model.named_parameters():
        torch.testing.assert_close(weights(ours)[name], one, atol=1e-5, rtol=0)  # Adam's steps are up to 1e-3


def test_the_reward_is_the_models_own_by_its_own_contract_and_what_it_says_of_them_is_logged(train, words):
    seen = []

    class Asked:
        contract = garden.gold().contract

        def rate(self, examples):
            seen.extend(examples)
            return garden.gold().rate(examples)

        def facts(self):
            return {"rated": len(seen)}

    trainer = train(sources=RewardSources({"gold": Asked()}))
    assert logged(trainer, "gold/rated") == [16, 32]
    assert logged(trainer, "reward")[0] == pytest.approx(garden.gold().rate(seen[:16]).mean())
    assert not any("</s>" in one.completion or "<pad>" in one.completion for one in seen)


def test_faults_are_named_and_saved_and_the_run_goes_on_or_stops(train, tmp_path):
    def half(examples):
        return [1.0 if place % 2 else math.inf for place, _ in enumerate(examples)]

    record = tmp_path / "faults.jsonl"
    sources = {"gold": garden.gold(), "half": half}
    trainer = train(sources=RewardSources(sources, skip=True, record=record), steps=1, shares={"gold": 1.0})
    assert logged(trainer, "rewards/faults") == [8]
    assert logged(trainer, "rewards/half/missing") == [8]
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    assert len(rows) == 8 and rows[0]["reason"] == "is inf" and rows[0]["completion"]
    with pytest.raises(DataError, match=r"reward 'half' is inf for completion 0.* \(and 7 more\)"):
        train(sources=RewardSources(sources, record=record), steps=1)


def test_where_no_answer_has_a_reward_nothing_moves_not_even_by_momentum(train, capsys):
    calls = []

    def sometimes(examples):
        calls.append(len(examples))
        return [None if len(calls) in (2, 4) else float(len(one.completion)) for one in examples]

    seen = []

    class Keep(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            seen.append(next(iter(model.parameters())).detach().clone())

    sources, penalty = RewardSources({"length": sometimes}), Penalty(0.1)
    trainer = train(sources=sources, steps=4, callbacks=[Keep()], penalty=penalty)
    first, second, third, fourth = seen
    assert torch.equal(first, second) and not torch.equal(second, third) and torch.equal(third, fourth)
    assert logged(trainer, "skipped_steps") == [1.0, 1.0]
    assert trainer.signal.updates == trainer.signal.steps_without_reward == 2 and trainer.signal.fault == ""
    warnings = [line for line in capsys.readouterr().out.splitlines() if "has a reward" in line]
    assert warnings == ["step 2: none of 16 completions has a reward (missing: length 16), so none is trained on"]


PPO = {"penalty": Penalty(0.05, "token", "k1"), "critic": CriticArguments(learning_rate=1e-2)}


def test_variants_are_refused_where_others_answer(train):
    def rollout(prompts, trainer):
        return {}

    data = Dataset.from_list([{"prompt": [{"role": "user", "content": "a"}], "variants": [[]], "row": 0}])
    with pytest.raises(UsageError, match="prompts with variants need completions of this process's policy"):
        train(rollout_func=rollout, eval_dataset=data, done=False)


def test_the_critics_gradient_does_not_depend_on_micro_batches(train):
    """Every token has the same weight, whatever the lengths beside it and whether the policy is trained on it."""
    gradients = []

    class Keep(PolicyTrainer):
        def after_step(self):
            gradients.append(torch.cat([one.grad.flatten() for one in self.learner.critic.parameters()]))
            super().after_step()

    def every_third(state, scores, rollout):
        return {}, (torch.arange(len(scores)) % 3 == 0) * len(scores) / 6

    settings = {"steps": 1, "kind": Keep, "critic": CriticArguments(), "scheduler": every_third}
    for number in (1, 2, 16):
        size = {"per_device_train_batch_size": 16 // number, "gradient_accumulation_steps": number}
        train("gae", **settings, **size)
    assert gradients[0].norm() > 0.01
    for split in gradients[1:]:
        torch.testing.assert_close(split, gradients[0], rtol=1e-4, atol=1e-5)


class Watched(PolicyTrainer):
    """A trainer that keeps what its critic read."""

    def _annotations(self, reading, rows, batch):
        self.states = completion_states(reading.states, rows)
        return super()._annotations(reading, rows, batch)

    def _log_step(self, scored, rollout, *arguments):
        self.rollout = rollout
        super()._log_step(scored, rollout, *arguments)


@pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
def test_behind_a_tool_a_completion_goes_on_and_its_last_token_ends_it(train, words):
    """The value behind it is further off than its number of own tokens, and the end of its first turn ends nothing."""
    end = words.eos_token_id

    def with_a_tool(prompts, trainer):
        ids = trainer._tokenize_prompts(list(prompts))[0]
        completions = [[5, end, 7, end if index % 2 else 8] for index, _ in enumerate(ids)]
        mask = [[1, 1, 0, 1] for _ in ids]
        return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None, "env_mask": mask}

    trainer = train(
        "gae", steps=1, learning_rate=0.0, rollout_func=with_a_tool, kind=Watched, done=False, penalty=Penalty(),
        critic=CriticArguments(learning_rate=0.0),
    )  # fmt: skip
    torch.nn.init.normal_(trainer.learner.critic.head.weight)
    trainer.train()
    rollout, states = trainer.rollout, trainer.states
    assert rollout.response[0].tolist() == [True, True, False, True]
    assert rollout.finished.tolist() == [bool(index % 2) for index in range(len(states))]
    values = trainer.learner.critic(states)
    torch.testing.assert_close(rollout.after, values[:, 4])
    torch.testing.assert_close(rollout.values[:, [0, 1, 3]], values[:, [0, 1, 3]])


def test_a_critic_of_a_constant_reward_expects_it_where_most_completions_are_truncated(train, base, tmp_path):
    """With a learning rate of 0 the policy stays; the critic learns and never moves it."""
    sources = RewardSources({"one": lambda examples: [1.0] * len(examples)})
    critic = CriticArguments(learning_rate=1e-2, passes=8)
    settings = {"penalty": Penalty(), "measure_kl": False, "rollout_steps": 1, "max_completion_length": 4}
    trainer = train("gae", sources, steps=11, learning_rate=0.0, critic=critic, **settings)
    assert all(torch.equal(one, other) for one, other in zip(weights(trainer).values(), base.parameters(), strict=True))
    losses = logged(trainer, "critic/loss")
    assert np.mean(losses[-3:]) < 0.5 * losses[0]
    files = sorted((tmp_path / "run" / "rollouts").iterdir())[-4:]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert np.mean([row["finished"] for row in rows]) < 0.5
    assert np.mean([value for row in rows for value in row["values"]]) == pytest.approx(1.0, abs=0.1)


class Again:
    """The previous batch once more with half its advantages, from the second cycle on."""

    def __init__(self):
        self.seen = []

    def __call__(self, state, total, past):
        self.seen.append((total.mean().item(), past))
        return {"calls": state.get("calls", 0) + 1}, past.advantage / 2


def test_a_replay_trains_on_the_previous_batch_against_its_own_policy(train):
    again = Again()
    trainer = train(steps=6, num_iterations=2, replay=again)
    assert len(again.seen) == 2  # three cycles of two steps
    assert logged(trainer, "skipped_steps") == [1.0]  # the first has nothing to look back to
    assert again.seen[0][1].rollout.logprobs is not None
    ratios = logged(trainer, "ratio")
    assert len(ratios) == 5  # none of the skipped step
    assert ratios[0] == pytest.approx(1.0, abs=1e-3)  # the present batch's first pass after nothing happened
    assert ratios[1] != pytest.approx(1.0, abs=1e-4)  # the previous batch, by a policy that has moved
    with pytest.raises(UsageError, match="set num_iterations to 2 or more"):
        train(replay=again)


def _counting(slot):
    return Transform(slot, lambda state, x, _: ({"calls": state.get("calls", 0) + 1}, x), stage=2 * (slot != "reward"))


def test_a_killed_run_goes_on_as_if_nothing_had_happened(train, tmp_path):
    """Optimizer, critic, transforms, scheduler, replay, a reward that learns and the next answers."""
    everything = {
        **PPO,
        "advantage_transforms": {"white": load("policy.transforms", "whiten")()},
        "reward_transforms": {"count": _counting("reward")},
        "scheduler": lambda state, scores, rollout: ({"mean": scores.mean().item()}, torch.ones_like(scores)),
        "num_iterations": 2,
        "save_strategy": "steps",
        "save_steps": 4,
        "save_total_limit": 9,
    }
    whole = train("gae", RewardSources({"r2m": Learner()}), steps=8, replay=Again(), **everything)
    states = whole.algorithm.state
    checkpoint = tmp_path / "kept"
    shutil.copytree(tmp_path / "run" / "checkpoint-4", checkpoint)
    sources = RewardSources({"r2m": Learner()})
    resumed = train("gae", sources, steps=8, replay=Again(), resume=str(checkpoint), **everything)
    for name in ("reward", "r2m/asked", "loss", "critic/loss", "ratio", "watch/kl"):
        assert logged(resumed, name)[-4:] == pytest.approx(logged(whole, name)[-4:], abs=1e-5), name
    assert resumed.algorithm.state == states and states["rewards"]["count"]["calls"] == 4
    assert resumed.signal == whole.signal and whole.signal.updates > 3
    for one, other in zip(weights(resumed).values(), weights(whole).values(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_a_checkpoint_of_an_earlier_version_has_no_signal(train, tmp_path):
    record = tmp_path / "faults.jsonl"
    record.write_text("kept\n")
    trainer = train(sources=RewardSources({"gold": garden.gold()}, record=record), done=False)
    trainer.trained_state.save(tmp_path, trainer.kl, trainer.signal)
    stored = json.loads((tmp_path / FORMULAS).read_text())
    assert stored["kl"] == 0 and stored["faults"] == 5 and stored.pop("signal")
    (tmp_path / FORMULAS).write_text(json.dumps(stored))
    kl, signal = trainer.trained_state.load(tmp_path, is_main=True)
    assert kl == 0 and signal == LearningSignal() and record.read_text() == "kept\n"
    (tmp_path / FORMULAS).write_text(json.dumps({name: stored[name] for name in ("algorithm", "replay")}))
    with pytest.raises(DataError, match="lacks faults, kl; resume with the version that wrote it"):
        trainer.trained_state.load(tmp_path, is_main=True)


class Learner:
    """A reward that reads the policy's states, and learns after every cycle."""

    contract = garden.gold().contract
    reads_states = True

    def __init__(self):
        self.cycles, self.asked = [], 0

    def rate(self, examples, states):
        self.asked += 1
        assert len(states) == len(examples)
        return np.array([[float(one.mean()) + self.asked] for one in states])

    def learn(self, cycle):
        self.cycles.append(cycle)
        return {"asked": self.asked}

    def state(self):
        return {"asked": self.asked}

    def load(self, state):
        self.asked = state["asked"]


@pytest.mark.parametrize("replay", [None, Again()], ids=["plain", "replay"])
def test_a_reward_that_learns_gets_the_last_passs_states_row_by_row(train, replay):
    """With a replay the second cycle's first pass is on replayed completions: the states are still its own."""
    learner = Learner()
    trainer = train("rloo", RewardSources({"r2m": learner}), steps=4, num_iterations=2, replay=replay)
    assert logged(trainer, "r2m/asked") == [1.0, 2.0]
    assert replay is None or trainer.replay_buffer.micro_batches[0]["weights"].any()
    for cycle in learner.cycles:
        lengths = cycle.rollout.response.sum(1).tolist()
        assert len(cycle.states) == len(cycle.examples) == 16
        for states, length, example in zip(cycle.states, lengths, cycle.examples, strict=True):
            assert len(states) == len(trainer.encoder.encode_prompt(example.prompt)) + length - 1


def test_the_reference_of_an_adapter_is_the_policy_without_it(train):
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = train(steps=3, peft_config=lora, learning_rate=1e-2)
    assert trainer.reference is None
    kl = logged(trainer, "watch/kl")
    assert kl[0] == pytest.approx(0, abs=1e-4) and kl[-1] > 0.01


def test_a_run_that_has_exhausted_its_kl_budget_trains_no_further_when_resumed(train, tmp_path):
    settings = {"steps": 20, "learning_rate": 1e-2, "kl_budget": 0.5, "save_strategy": "steps", "save_steps": 1}
    ended = train(**settings)
    last, kl = ended.state.global_step, logged(ended, "watch/kl")
    assert kl[-1] > 0.5 > max(kl[:-1])
    resumed = train(**settings, resume=str(tmp_path / "run" / f"checkpoint-{last}"))
    assert resumed.state.global_step == last < 20 and resumed.kl == ended.kl > 0.5
    for one, other in zip(weights(resumed).values(), weights(ended).values(), strict=True):
        assert torch.equal(one, other)


def test_the_kl_that_is_watched_depends_on_neither_micro_batches_nor_estimator_nor_missing_rewards(train):
    """It is that of all completions of the step, also where it is measured along with the loss."""

    def odd(examples):
        return [float(len(one.completion)) if len(one.completion) % 2 else None for one in examples]

    settings = {"steps": 3, "learning_rate": 3e-3, "sources": RewardSources({"odd": odd})}
    first = train(**settings, penalty=Penalty(1e-9, kind="forward"))
    assert not first._annotates
    known = logged(first, "watch/kl")
    assert max(known) > 0.1 and first.kl == known[-1]
    parts = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    mask = {"mask": load("policy.transforms", "entropy_mask")(share=1.0)}  # has the completions read before the loss
    for changes in (parts, {"advantage_transforms": mask}):
        trainer = train(**settings, **changes)
        assert logged(trainer, "watch/kl") == pytest.approx(known, abs=1e-4)
        assert trainer.kl == pytest.approx(first.kl, abs=1e-4)


def test_completions_that_are_read_again_for_lack_of_memory_are_counted_once(train, words):
    """The second micro-batch does not fit, which shows after its forward pass: its halves are read."""

    class Narrow(PolicyTrainer):
        calls = 0

        def _compute_loss(self, model, inputs):
            loss, self.calls = super()._compute_loss(model, inputs), self.calls + 1
            if self.calls == 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return loss

    other = models.causal_lm(words, seed=9)
    whole, narrow = (train(steps=1, kind=kind, reference=other) for kind in (PolicyTrainer, Narrow))
    assert narrow.calls == 4 and logged(narrow, "watch/kl") == pytest.approx(logged(whole, "watch/kl"), rel=1e-5)


def test_the_loss_of_an_evaluation_does_not_depend_on_how_training_is_divided(train, data):
    """The reward is 1 and so is every advantage, with a ratio of 1: the loss of each evaluated group is -1."""
    for parts in (1, 4):
        trainer = train(
            "fixed_baseline", RewardSources({"one": lambda examples: [1.0] * len(examples)}), done=False,
            per_device_train_batch_size=16 // parts, steps_per_generation=parts, gradient_accumulation_steps=1,
            per_device_eval_batch_size=4, eval_dataset=data.select(range(2)), measure_kl=False,
        )  # fmt: skip
        assert trainer.evaluate()["eval_loss"] == pytest.approx(-1), parts
        assert not trainer.live, "an evaluation leaves nothing to learn"


def test_masked_truncated_completions_keep_their_length_and_have_no_weight(train):
    weights = []

    class Keep(PolicyTrainer):
        def _compute_loss(self, model, inputs):
            weights.extend(inputs["weights"].sum(1).tolist())
            return super()._compute_loss(model, inputs)

    settings = {"steps": 1, "max_completion_length": 6, "kind": Keep}
    plain, masked = train(**settings), train(**settings, mask_truncated_completions=True)
    for name in ("watch/length", "watch/unfinished", "watch/kl", "reward"):
        assert logged(masked, name) == logged(plain, name), name
    assert 0 < (left_out := weights[16:].count(0.0)) == round(16 * logged(masked, "watch/unfinished")[0]) < 16, left_out
    assert sum(weights[16:]) == pytest.approx(1), "over the step, as without a mask"


@pytest.mark.parametrize("advantage, changes", [("gae", PPO), ("grpo", {})])
def test_an_evaluation_changes_nothing(train, data, advantage, changes):
    trainer = train(advantage, steps=0, done=False, eval_dataset=data.select(range(2)), **changes,
                    reward_transforms={"count": _counting("reward")})  # fmt: skip
    before, trainer.kl = copy.deepcopy(trainer.algorithm.state), 0.25
    found = trainer.evaluate()
    assert trainer.algorithm.state == before and trainer.kl == 0.25
    assert math.isfinite(found["eval_reward"]) and found["eval_watch/kl"] == pytest.approx(0, abs=1e-4)


def test_settings_that_would_do_harm_are_refused_and_steps_rounded_to_cycles(tmp_path):
    for changes, message in (
        ({"beta": 0.1}, "beta is not read here; set the algorithm's penalty"),
        ({"vespo_k_pos": 3.0}, "vespo_k_pos is not read here; set the algorithm's clip rule"),
        ({"entropy_target": 0.5}, "entropy_target is not read here; set the algorithm's entropy"),
        ({"model_init_kwargs": {}}, "model_init_kwargs is not read here; set --dtype and --attn_implementation"),
        ({"loss_type": "grpo"}, "loss_type is not read here; set the algorithm's clip rule and aggregation"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "set these variables in the policy's chat template"),
        ({"kl_budget": 1.0, "measure_kl": False}, "kl_budget needs measure_kl"),
        ({"save_strategy": "epoch"}, "may split a batch of completions"),
        ({"steps_per_generation": 3, "num_generations": 4}, "make the first number a multiple of the second"),
    ):
        with pytest.raises(UsageError, match=message):
            PolicyArguments(**{"output_dir": str(tmp_path), **SMALL_RUN, **changes})
    made = {"output_dir": str(tmp_path), **SMALL_RUN, "save_strategy": "steps", "save_steps": 5}
    assert PolicyArguments(**made, num_iterations=3).save_steps == 6
    made = {"output_dir": str(tmp_path), **SMALL_RUN, "num_iterations": 2}
    assert [PolicyArguments(**made, rollout_steps=steps).rollout_steps for steps in (0, 1, 2, 3)] == [0, 2, 2, 4]


def test_a_mixture_of_experts_is_only_trained_without_its_balancing_loss_when_told(train, words):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model(
        "mixtral", vocab_size=len(words), num_key_value_heads=2, num_local_experts=4, router_aux_loss_coef=0.5, **sizes
    )
    model = AutoModelForCausalLM.from_config(config)
    for coefficient, told in ((None, "router_aux_loss_coef is 0.5"), (100.0, "router_aux_loss_coef is 100")):
        with pytest.raises(UsageError, match=told):
            train(model=model, done=False, router_aux_loss_coef=coefficient)
    assert not train(model=model, done=False, router_aux_loss_coef=0.0).aux_loss_enabled
