import math

import numpy as np
import pytest
import torch
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.data.solutions import Solution
from rewardlab.rm.errors import DataError
from rewardlab.rm.kinds.process.model import ProcessRewardModel, process_from_config
from rewardlab.rm.kinds.process.training import ProcessTask, SolutionRow, encode_solutions
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from rewardlab.rm.types import user_turn
from transformers import EvalPrediction

NAN = math.nan
QUESTION = user_turn("roba?")
ROWS = [SolutionRow([7, 8, 9, 10], (1, 3), (1.0, 0.25)), SolutionRow([9, 7, 8], (0, 1, 2), (NAN, 0.0, NAN))]


def small(**options) -> ProcessRewardModel:
    tokenizer = small_tokenizer(["roba kano mino suba " * 20], 280)
    return process_from_config(small_config(tokenizer, hidden=32, layers=1), tokenizer, **options)


def nll(logit: float, label: float) -> float:
    return label * math.log1p(math.exp(-logit)) + (1 - label) * math.log1p(math.exp(logit))


def test_the_loss_is_the_mean_over_labelled_steps():
    model, task = small(), ProcessTask()
    loss, logits = task.loss(model.model.eval(), task.collate(ROWS))
    first, second = model.token_logits([row.ids for row in ROWS])
    expected = [nll(first[1, 0], 1.0), nll(first[3, 0], 0.25), nll(second[1, 0], 0.0)]
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)
    assert logits[1, 2].item() == pytest.approx(second[2, 0], rel=1e-4)


def test_unlabelled_steps_and_padding_change_no_loss():
    model, task = small(), ProcessTask()
    inputs = task.collate(ROWS[1:])
    loss, logits = task.loss(model.model, inputs)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[0].ne(0).tolist() == [False, True, False]
    changed = [ROWS[1]._replace(labels=(NAN, 0.0, 1.0))]
    assert task.loss(model.model, task.collate(changed))[0].item() != loss.item()
    model.model.eval()
    alone = [task.loss(model.model, task.collate([row]))[0].item() for row in ROWS]
    together = task.loss(model.model, task.collate(ROWS))[0].item()
    assert together == pytest.approx((2 * alone[0] + alone[1]) / 3, rel=1e-5)  # two labelled steps and one


STEPS = [(2, 1), (-1, 0), (1, 1), (1, 1), (-1, 1), (-3, 0), (-5, 0.5), (-1, 1), (-1, 0)]


def test_the_evaluation_loss_does_not_depend_on_the_batch_size(tmp_path):
    """A solution with two labelled steps weighs twice what one with one does, whether they share a batch or not."""
    model, task = small(), ProcessTask()
    expected = task.loss(model.model.eval(), task.collate(ROWS))[0].item()
    for rows in (1, 2):
        arguments = RewardArguments(str(tmp_path), per_device_eval_batch_size=rows, use_cpu=True, disable_tqdm=True)
        trainer = RewardTrainer(model, arguments, task, ROWS, ROWS)
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-6)


def test_metrics_by_hand():
    labels = np.array([[1, 0, NAN, -100], [1, 1, 1, -100], [0, NAN, NAN, 0.5], [1, 0, NAN, NAN]])
    logits = np.array([[2, -1, -9, -100], [1, 1, -1, -100], [-3, -5, 5, -5], [-1, -1, 1, 1]])
    # steps: 2 of 2, 2 of 3, 1 of 1 (a label of 1/2 decides nothing), 1 of 2; first errors: 1, none, 0, 1
    loss = np.mean([nll(z, y) for z, y in STEPS])
    expected = {"loss": loss, "accuracy": 6 / 8, "first_error_accuracy": 2 / 4}
    assert ProcessTask().metrics(EvalPrediction(logits, labels)) == pytest.approx(expected)


LONG = Solution("long", QUESTION, ("roba", "kano " * 30, "mino"), (1.0, NAN, 0.0))


def test_steps_beyond_the_limit_are_cut_off_and_counted():
    model = small(max_length=24)
    short = Solution("short", QUESTION, ("roba",), (1.0,))
    encoding = encode_solutions(model.encoder, [LONG, short])
    assert [row.labels for row in encoding.rows] == [(1.0,), (1.0,)] and len(encoding.rows[0].ids) == 24
    assert (encoding.pairs, encoding.over_length, encoding.unlabelled, encoding.longest > 36) == (2, 1, 0, True)
    late = LONG._replace(labels=(NAN, NAN, 0.0))
    assert encode_solutions(model.encoder, [late, short]).unlabelled == 1
    assert len(encode_solutions(model.encoder, [LONG, short], "skip").rows) == 1
    with pytest.raises(DataError, match=r"solution 'long' has \d+ tokens and the limit is 24"):
        encode_solutions(model.encoder, [LONG], "refuse")
    with pytest.raises(DataError, match="none of 1 solutions is left to train on: 1 over 24 tokens"):
        encode_solutions(model.encoder, [late])
