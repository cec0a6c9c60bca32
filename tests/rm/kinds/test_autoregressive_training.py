import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.benchmarks.garden import pairs
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.contract.golden_scores import write_golden
from rewardlab.rm.data.preference_vectors import dirichlet, vertex_sampler
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.autoregressive.diagnostics import mean_negative_logprob
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.autoregressive.preference_task import PreferenceTask, encode_preferences
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.losses.sequence_logistic import sequence_logistic
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from transformers import EvalPrediction

NAMES = ("helpful", "harmless")
GARDEN = pairs(40, 0)


def arm(base, **changes):
    settings = AdapterSettings(**{"kind": "moslora", "objectives": NAMES, "embedding": "random"} | changes)
    return load_autoregressive(base, beta=0.1, adapter=settings)


def task_of(model, weight=0.5, form="scalarised", sampler=None, objectives=NAMES, **options):
    loss = sequence_logistic(0.1, weight=weight, form=form)
    return PreferenceTask(model.adapter, objectives, loss, sampler or dirichlet(len(objectives)), **options)


def rows_of(model, made=GARDEN, objectives=NAMES):
    return encode_preferences(model.encoder, made, objectives).rows


def moved(model):
    torch.manual_seed(1)
    for key, value in model.adapter.state().items():
        if "objectives" not in key and not key.endswith(".A"):
            value.add_(0.3 * torch.randn_like(value))
    return model


@pytest.fixture(scope="module")
def untrained(base):
    return arm(base)


@pytest.fixture(scope="module")
def guide(base):
    return moved(arm(base))


def test_rows_hold_labels_by_objective_also_where_one_is_missing(untrained):
    row = rows_of(untrained)[3]
    chosen, _ = GARDEN[3].examples
    assert row.chosen == untrained.encoder.encode(chosen).ids and row.pair_index == 3
    assert row.chosen[: row.starts[0]] == row.rejected[: row.starts[1]]
    assert row.wins == (GARDEN[3].wins["helpful"], GARDEN[3].wins["harmless"])
    made = [replace(pair, wins={"helpful": 1.0}) for pair in GARDEN[:4]]
    made += [replace(pair, wins={"overall": 1.0}) for pair in GARDEN[4:6]]
    encoding = encode_preferences(untrained.encoder, made, NAMES)
    assert len(encoding.rows) == 4 and encoding.unlabelled == 2
    assert [math.isnan(win) for win in encoding.rows[0].wins] == [False, True]
    with pytest.raises(DataError, match="none of 2 pairs is left .* 2 without a label for 'helpful, harmless'"):
        encode_preferences(untrained.encoder, made[4:], NAMES)


def test_the_gap_of_a_row_is_the_difference_of_its_rewards_at_its_preference(base):
    for changes in [{}, {"kind": "pblora", "rank": 4, "shared_rank": 4}]:
        model = moved(arm(base, **changes))
        task, rows = task_of(model), rows_of(model)[:6]
        alpha = torch.tensor([[0.1 * i, 1 - 0.1 * i] for i in range(6)])
        with torch.no_grad():
            found = task.gap(model.model, task.collate(rows), alpha)
        for place, shares in enumerate(alpha.tolist()):
            preference = dict(zip(NAMES, shares, strict=True))
            chosen, rejected = (one.sum() for one in model.logprobs(GARDEN[place].examples, preference=preference))
            assert found[place].item() == pytest.approx(chosen - rejected, abs=2e-4)


def test_a_relative_gap_is_zero_at_the_start_and_still_has_its_gradient(untrained):
    inputs = task_of(untrained).collate(rows_of(untrained)[:4])
    alpha = torch.full((4, 2), 0.5)
    with torch.no_grad():
        tasks = [task_of(untrained, **options) for options in ({}, {"reference": True}, {"normalised": True})]
        plain, relative, normal = (task.gap(untrained.model, inputs, alpha) for task in tasks)
    assert plain.abs().max() > 1 and relative.abs().max() < 1e-5 and normal.abs().max() < plain.abs().max()
    task = task_of(untrained, reference=True)
    loss, _ = task.loss(untrained.model, task.collate(rows_of(untrained)[:4]), 0)
    loss.backward()
    assert any(value.grad is not None and value.grad.abs().sum() > 0 for value in untrained.model.parameters())


def test_what_is_drawn_depends_on_seed_step_and_rows_only_and_vertices_are_seen(guide):
    inputs = task_of(guide).collate(rows_of(guide)[:6])
    with torch.no_grad():
        first, again, later = (task_of(guide).loss(guide.model, inputs, step)[0].item() for step in (3, 3, 4))
        other = task_of(guide, seed=1).loss(guide.model, inputs, 3)[0].item()
    assert first == again and len({first, later, other}) == 3
    with torch.no_grad():
        plain = task_of(guide, weight=0.0).loss(guide.model, inputs, 0)[0].item()
        anchored = task_of(guide, weight=1.0, form="vertices").loss(guide.model, inputs, 0)[0].item()
    assert anchored > plain


def test_stored_scores_are_asked_for_and_metrics_read_every_objective_at_its_vertex(base):
    model = arm(base)
    task = task_of(model, form="scores")
    with pytest.raises(DataError, match="needs pairs with a 'gaps' column"):
        task.check(rows_of(model))
    task.check(rows_of(model, [replace(pair, gaps={"helpful": 0.5}) for pair in GARDEN]))
    task = task_of(arm(base))
    gaps = np.array([[1.0, -1.0], [2.0, 3.0], [-1.0, 1.0]])
    wins = np.array([[1.0, 1.0], [0.0, np.nan], [0.5, 1.0]])
    found = task.metrics(EvalPrediction(predictions=gaps, label_ids=wins))
    assert found == {"accuracy_helpful": 0.5, "accuracy_harmless": 0.5, "accuracy": 0.5}
    blind = EvalPrediction(predictions=np.zeros((2, 2)), label_ids=np.array([[1.0, 0.0], [0.0, 0.25]]))
    assert [*task.metrics(blind).values()] == [0.0, 0.0, 0.0], "a guide without a preference is never right"


def test_an_evaluation_draws_nothing(guide):
    task = task_of(guide, sampler=vertex_sampler(2))
    inputs = task.collate(rows_of(guide)[:6])
    with torch.no_grad():
        loss, gaps = task.evaluate(guide.model, inputs)
        again, _ = task_of(guide, seed=9).evaluate(guide.model, inputs)
        corner = task.gap(guide.model, inputs, torch.tensor([1.0, 0.0]).expand(6, 2))
    assert loss.item() == again.item() and gaps.shape == (6, 2)
    torch.testing.assert_close(gaps[:, 0], corner)


def trainer_for(model, folder, steps, **options):
    arguments = RewardArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=8, save_steps=2, learning_rate=3e-3,
        report_to="none", disable_tqdm=True, use_cpu=True, logging_steps=100, lr_scheduler_type="constant", **options,
    )  # fmt: skip
    return RewardTrainer(model, arguments, task_of(model), rows_of(model))


def test_a_resumed_run_ends_with_the_same_adapter_and_mean_of_weights(base, tmp_path):
    average = {"weight_average": 0.5, "weight_average_start": 0.0}
    whole = arm(base)
    trainer_for(whole, tmp_path / "whole", 4, **average).train()
    trainer_for(arm(base), tmp_path / "cut", 2, **average).train()
    checkpoint = tmp_path / "cut" / "checkpoint-2"
    assert (checkpoint / "preference_adapter.safetensors").exists()
    resumed = arm(base)
    trainer_for(resumed, tmp_path / "cut", 4, **average).train(resume_from_checkpoint=str(checkpoint))
    start, end = arm(base).adapter.state(), whole.adapter.state()
    assert any((start[key] != end[key]).any() for key in end)
    for key, value in resumed.adapter.state().items():
        torch.testing.assert_close(value, end[key], atol=1e-6, rtol=1e-5)


def test_a_saved_model_brings_a_reward_per_objective_or_one_at_a_preference(guide, tmp_path):
    examples = [example for pair in GARDEN[:5] for example in pair.examples]
    guide.save(tmp_path / "arm")
    write_golden(guide, examples, tmp_path / "arm")
    again = load_reward_model(str(tmp_path / "arm"))
    assert again.contract == guide.contract and again.contract.objectives == NAMES
    np.testing.assert_allclose(again.rate(examples), guide.rate(examples), atol=1e-6)
    leaning = again.at({"helpful": 0.8, "harmless": 0.2})
    assert leaning.contract.objectives == ("helpful=0.8,harmless=0.2",)
    by_hand = guide.logprobs(examples, preference={"helpful": 0.8, "harmless": 0.2})
    np.testing.assert_allclose(leaning.rate(examples)[:, 0], [0.1 * one.sum() for one in by_hand], atol=1e-5)
    with pytest.raises(UsageError, match="no objective 'honest' in this model"):
        again.at({"honest": 1.0})
    with pytest.raises(UsageError, match="is an adapter already"):
        load_autoregressive(str(tmp_path / "arm"), adapter=guide.adapter.settings)


def test_the_token_offset_is_added_for_every_token_and_saved(base, tmp_path):
    """Δ rises by c times the difference of lengths, and rewards by β c times the length."""
    model = moved(arm(base))
    rows = rows_of(model)[:6]
    plain, raised = task_of(model), task_of(model)
    raised.token_offset = 2.5
    alpha = torch.tensor([[0.3, 0.7]] * 6)
    inputs = plain.collate(rows)
    lengths = torch.tensor([len(row.chosen) - row.starts[0] - len(row.rejected) + row.starts[1] for row in rows])
    difference = raised.gap(model.model, inputs, alpha) - plain.gap(model.model, inputs, alpha)
    torch.testing.assert_close(difference, 2.5 * lengths, atol=1e-4, rtol=0)
    neutral = model.with_token_offset(2.5)
    examples = list(GARDEN[0].examples)
    sizes = np.array([len(values) for values in model.logprobs(examples, preference={"helpful": 1, "harmless": 0})])
    np.testing.assert_allclose(neutral.rate(examples) - model.rate(examples), 0.1 * 2.5 * sizes[:, None] * [1, 1])
    assert neutral.contract.token_offset == 2.5 and neutral.contract.hash() != model.contract.hash()
    model = moved(arm(base)).with_token_offset(1.25)
    model.save(tmp_path)
    write_golden(model, list(GARDEN[0].examples), tmp_path)
    again = load_reward_model(str(tmp_path))
    assert again.token_offset == 1.25 and again.contract == model.contract
    np.testing.assert_allclose(again.rate(GARDEN[1].examples), model.rate(GARDEN[1].examples), atol=1e-6)
    with pytest.raises(UsageError, match="was saved with token_offset 1.25, got 2.0"):
        load_autoregressive(str(tmp_path), token_offset=2.0)


def test_the_mean_surprise_makes_the_base_models_rewards_independent_of_length_in_the_mean(base):
    """Σ (log π + c) over all tokens is 0 if c is the mean of -log π."""
    model = arm(base)
    task, rows = task_of(model), rows_of(model)
    offset = mean_negative_logprob(task, model.model, rows, batch=7)
    logprobs = model.with_token_offset(offset).logprobs(
        [example for pair in GARDEN for example in pair.examples], preference={"helpful": 1, "harmless": 0}
    )
    assert sum(values.sum() for values in logprobs) == pytest.approx(0, abs=1e-2)
    assert offset == pytest.approx(math.log(tokenizer().vocab_size), rel=0.1)  # an untrained base model


def test_centred_rewards_are_those_that_were_trained_on(base, tmp_path):
    settings = AdapterSettings("moslora", NAMES, embedding="one_hot")
    model = moved(load_autoregressive(base, beta=0.1, centred=True, adapter=settings))
    task, rows = task_of(model, centred=True), rows_of(model)[:3]
    gap = task.gap(model.model, task.collate(rows), torch.tensor([[1.0, 0.0]] * 3))
    rewards = np.array([model.rate(pair.examples)[:, 0] for pair in GARDEN[:3]])
    np.testing.assert_allclose(0.1 * gap.detach(), rewards[:, 0] - rewards[:, 1], atol=1e-4)
    assert not np.allclose(
        model.rate(GARDEN[0].examples), moved(arm(base, embedding="one_hot")).rate(GARDEN[0].examples)
    )
    assert model.contract.token_baseline == "base"
    model.save(tmp_path)
    write_golden(model, list(GARDEN[0].examples), tmp_path)
    again = load_reward_model(str(tmp_path))
    assert again.centred and again.contract == model.contract
    with pytest.raises(UsageError, match="need a guide that is an adapter of its base model"):
        load_autoregressive(base, centred=True)
    np.testing.assert_allclose(again.rate(GARDEN[1].examples), model.rate(GARDEN[1].examples), atol=1e-5)


def test_the_label_of_a_training_batch_is_that_of_its_preferences(untrained):
    task = task_of(untrained, sampler=lambda count, generator: torch.tensor([[0.75, 0.25]]).expand(count, -1))
    wins = torch.tensor([[1.0, 0.0], [0.5, 0.0], [math.nan, 1.0], [0.5, math.nan]])
    gaps, labels = task.labelled_gaps(torch.arange(4.0), {"wins": wins, "pair_index": torch.arange(4)}, 0)
    assert gaps.tolist() == [0, 1, 2, 3] and labels.tolist() == [0.75, 0.375, 0.625, 0.5]
