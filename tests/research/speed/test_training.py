import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.research.speed import training

TINY = training.TINY


@pytest.fixture(scope="module")
def measurements(tmp_path_factory):
    path = tmp_path_factory.mktemp("speed") / "training.json"
    assert training.main(["--device", "cpu", "--budget", "0.1", "--output", str(path)], replace(TINY, steps=2)) == 0
    return json.loads(path.read_text())


def test_every_case_has_a_row_or_the_reason_why_it_has_none(measurements):
    """A budget that the first turn uses up ends the run after it."""
    assert [*measurements["cases"]] == ["packed"]
    assert {*measurements["not run"]} == {"padded", "trl", "flash"}
    assert measurements["not run"]["padded"] == "the budget ended"
    assert len(measurements["cases"]["packed"]["seconds"][0]) == 2
    assert "| padded | not run: the budget ended |" in training.markdown(measurements)


@pytest.mark.parametrize("name", ["packed", "padded", "trl"])
def test_every_case_trains_on_the_same_batches(name, tmp_path, monkeypatch):
    """The loss of the first step is that of the first rows, by hand."""
    model, rows = training.build_model(TINY, "cpu"), training.ragged_rows(TINY, 300)
    with torch.no_grad():
        rewards = [[model(torch.tensor([ids])).logits.item() for ids in row[:2]] for row in rows[: TINY.batch]]
    expected = np.mean([np.log1p(np.exp(rejected - chosen)) for chosen, rejected in rewards])
    trainer = training.CASES[name](model, rows, training.settings_of(TINY, "cpu", str(tmp_path)) | {"max_steps": 1})
    assert trainer.train().training_loss == pytest.approx(expected, abs=1e-5)


def test_tokens_and_operations_by_hand(monkeypatch):
    """Two pairs: a shared prompt of 20 tokens with 4 and 1 more, and three tokens against one of another text.

    Per token 2 · 128 · (128 + 64 + 64 + 128 + 3 · 128) operations of one layer, 4 · 128 L² of attention and 2 · 128 of
    the head, three times.
    """
    prompt = [*range(6, 26)]
    rows = [training.PairRow([*prompt, 1, 2, 3, 4], [*prompt, 5], 1, 0), training.PairRow([30, 31, 32], [33], 1, 0)]
    monkeypatch.setattr(training, "ragged_rows", lambda *_: [*rows, *rows])
    assert training.token_counts(TINY) == {"tokens": 24 + 21 + 3 + 1, "padded": 4 * 24, "packed": 25 + 3 + 1}
    linear, lengths = 2 * 128 * (128 + 64 + 64 + 128 + 3 * 128), np.array([24, 21, 3, 1])
    assert training.flops_of_step(TINY) == 3 * (lengths * (linear + 2 * 128) + 4 * 128 * lengths**2).sum()
