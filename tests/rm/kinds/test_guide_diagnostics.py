import math

import numpy as np
import pytest
import torch
from rewardlab.benchmarks.garden import pairs
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.data.preference_vectors import dirichlet
from rewardlab.rm.kinds.autoregressive import diagnostics as diagnostics
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.autoregressive.preference_task import PreferenceTask, encode_preferences, part_of
from rewardlab.rm.losses.sequence_logistic import sequence_logistic
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer

NAMES = ("helpful", "harmless")


def test_context_sensitivity_by_hand_does_not_depend_on_the_batches():
    """Two contexts that are sure of one token each: means 1/2, SD 1/2, so the sum is 1; and a blind model has 0."""
    sure = diagnostics.ContextSpread()
    sure.add(torch.tensor([[100.0, 0.0], [0.0, 100.0]]))
    assert sure.values() == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-9))
    blind = diagnostics.ContextSpread()
    for _ in range(3):
        blind.add(torch.zeros(1, 4))
    assert blind.values() == (pytest.approx(0.0, abs=1e-7), pytest.approx(math.log(4)))
    logits = torch.randn(12, 7, generator=torch.Generator().manual_seed(0))
    whole, parts = diagnostics.ContextSpread(), diagnostics.ContextSpread()
    whole.add(logits)
    for part in logits.split(5):
        parts.add(part)
    assert whole.values() == pytest.approx(parts.values())


def test_accuracy_without_length_ties_or_missing_labels():
    """Δ = -2 (|y0| - |y1|) + s with s = ±1 as labelled: length decides the sign of Δ, and s what is left."""
    lengths = np.array([3.0, -3.0, 3.0, -3.0])
    wins = np.array([1.0, 1.0, 0.0, 0.0])
    correlation, accuracy, without, pairs = diagnostics.pair_diagnostics(-2 * lengths + (2 * wins - 1), lengths, wins)
    assert accuracy == 0.5 and without == 1.0 and correlation < -0.97 and pairs == 4
    gaps, lengths = np.array([1.0, -1.0, 2.0]), np.array([1.0, 2.0, -1.0])
    assert diagnostics.pair_diagnostics(gaps, lengths, np.array([1.0, 0.5, np.nan]))[1] == 1.0
    assert math.isnan(diagnostics.pair_diagnostics(gaps, lengths, np.full(3, np.nan))[1])
    assert math.isnan(diagnostics.pair_diagnostics(gaps, np.zeros(3), np.ones(3))[0])
    zeros = diagnostics.pair_diagnostics(np.array([0.0, 0.0, 1.0]), np.ones(3), np.array([1.0, 0.0, 1.0]))
    assert zeros[1] == pytest.approx(1 / 3)


def test_a_collapse_is_a_guide_without_context_that_tells_nothing_beyond_length():
    """Of 64 pairs an accuracy above 0.5 + 1/8 is more than chance."""
    measured = {
        "reads": diagnostics.GuideDiagnostics(0.6, 1, 0, 1, 0.5, 64),
        "a bag of words": diagnostics.GuideDiagnostics(0.3, 1, 0, 1, 0.7, 64),
        "collapsed": diagnostics.GuideDiagnostics(0.3, 1, 0, 1, 0.6, 64),
        "without labels": diagnostics.GuideDiagnostics(0.3, 1, 0, math.nan, math.nan, 0),
    }
    assert diagnostics.collapsed_objectives(measured, base=1.0, limit=0.5) == ["collapsed"]
    assert part_of("base_model.model.layers.0.q_proj.lora_B.default.weight") == "B"
    assert part_of("base_model.preference_heads.3.scale.weight") == "modulation"
    assert part_of("model.embed_tokens.weight") is None


def prepared(base: str, **options):
    settings = AdapterSettings("moslora", NAMES, embedding="one_hot", targets=("all-linear",))
    model = load_autoregressive(base, beta=0.02, adapter=settings)
    task = PreferenceTask(model.adapter, NAMES, sequence_logistic(0.02), dirichlet(2), **options)
    return model, task, encode_preferences(model.encoder, pairs(64, 0), NAMES).rows


def trained(tmp_path, model, task, rows, *callbacks, **settings):
    arguments = RewardArguments(
        output_dir=str(tmp_path), use_cpu=True, disable_tqdm=True, save_strategy="no", **settings
    )
    trainer = RewardTrainer(model, arguments, task, rows, callbacks=callbacks)
    trainer.train()
    return trainer


def test_a_new_adapter_reads_its_context_as_the_base_model_does(base):
    model, task, rows = prepared(base)
    measured = diagnostics.guide_diagnostics(task, model.model, rows[:20])
    expected = diagnostics.base_context_sensitivity(task, model.model, rows[:20])
    assert [at.context_sensitivity for at in measured.values()] == pytest.approx([expected] * 2)
    whole = diagnostics.guide_diagnostics(task, model.model, rows[:20], batch=20)
    assert measured["helpful"] == pytest.approx(whole["helpful"])


def test_learning_rates_of_the_adapters_parts_and_restarts_are_kept_in_a_checkpoint(base, tmp_path):
    model, task, rows = prepared(base, rates={"A": 0.2, "modulation": 3.0})
    task.restarts = 1
    trainer = trained(tmp_path, model, task, rows, max_steps=1, learning_rate=1e-2, lr_scheduler_type="constant")
    names = {id(weight): name for name, weight in model.model.named_parameters()}
    rates = {part_of(names[id(p)]): group["lr"] for group in trainer.optimizer.param_groups for p in group["params"]}
    assert rates == {"A": pytest.approx(1e-3), "B": pytest.approx(1e-2), "modulation": pytest.approx(3e-2)}


def test_a_collapse_is_reported_and_the_training_starts_again_with_a_slower_a(base, tmp_path):
    """The limit is set so high, and the labels are so random, that any guide counts as collapsed."""
    model, task, rows = prepared(base)
    random = [row._replace(wins=(float(index % 2),) * 2) for index, row in enumerate(rows[:16])]
    told: list[str] = []
    monitor = diagnostics.CollapseMonitor(task, random, every=1, limit=100.0, restarts=1, report=told.append)
    first = trained(tmp_path, model, task, rows, monitor, max_steps=3, learning_rate=1e-2)
    assert first.state.global_step == 1 and monitor.collapsed_at == 1
    assert told[0].startswith("measuring whether the guide reads its context, on 16 pairs: now the base model, and the")
    assert "step 1: the guide has collapsed at helpful, harmless" in told[1] and "half the learning rate" in told[1]
    assert monitor.restart() and task.restarts == 1
    assert torch.equal(model.adapter.state()["mixer.objectives"], monitor.initial["mixer.objectives"])
    assert all(torch.equal(value, monitor.initial[name]) for name, value in model.adapter.state().items())
    second = trained(tmp_path, model, task, rows, monitor, max_steps=3, learning_rate=1e-2)
    assert second.state.global_step == 3 and not monitor.restart()  # no restart is left
    logged = [entry for entry in second.state.log_history if "context_sensitivity_helpful" in entry]
    assert [entry["step"] for entry in logged] == [1, 2, 3]
    guide = monitor.facts(model.model)["guide"]
    assert guide["collapsed"] == [*NAMES] and guide["restarts"] == 1 and guide["pairs"] == 16

    task.restarts = 2
    task.save(tmp_path)
    _, other, _ = prepared(base)
    other.load(tmp_path)
    assert other.restarts == 2 and other.rate_factor("x.lora_A.default.weight") == 0.25


def test_a_run_of_fewer_steps_than_between_measurements_is_not_measured(base, tmp_path, monkeypatch):
    model, task, rows = prepared(base)
    monitor = diagnostics.CollapseMonitor(task, rows, every=3, report=print)
    monkeypatch.setattr(diagnostics, "_measure", lambda *_: pytest.fail("the guide was measured"))
    trained(tmp_path, model, task, rows, monitor, max_steps=2)
    assert not monitor.active


def test_a_guide_is_measured_on_as_many_pairs_as_the_tokens_allow(base):
    _, _, rows = prepared(base)
    both = [len(row.chosen) + len(row.rejected) for row in rows]
    assert len(diagnostics.measured_rows(rows * 2)) == 64
    assert len(diagnostics.measured_rows(rows, tokens=sum(both[:5]))) == 5
    assert len(diagnostics.measured_rows(rows, tokens=sum(both[:5]) - 1)) == 4
    assert len(diagnostics.measured_rows(rows, tokens=1)) == 1


def test_the_spread_of_contexts_does_not_depend_on_how_many_are_added_at_once(monkeypatch):
    logits, values = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)), []
    for at_once in (2, 512):
        monkeypatch.setattr(diagnostics, "AT_ONCE", at_once)
        spread = diagnostics.ContextSpread()
        spread.add(logits)
        values.append(spread.values())
    assert values[0] == pytest.approx(values[1])
