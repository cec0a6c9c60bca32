import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.apps.cli import main
from rewardlab.benchmarks.garden import pairs
from rewardlab.rm.data.scored_rows import RankedList, load_lists
from rewardlab.rm.errors import DataError
from rewardlab.rm.kinds.scalar import ScalarSettings
from rewardlab.rm.kinds.scalar.lists import ListTask, ListTraining, encode_lists
from rewardlab.rm.kinds.scalar.training import ScalarTask, encode_pairs
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.losses.listwise_cross_entropy import listwise_cross_entropy
from rewardlab.rm.losses.plackett_luce import plackett_luce
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from rewardlab.rm.types import OVERALL, user_turn
from rewardlab.tests.stand_ins.small_training import Fit, fit
from transformers import EvalPrediction

from tests.rm.losses.test_losses_of_pairs import small

NAN = math.nan


def write(path, *rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def turn(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize(
    ("row", "completions", "scores"),
    [
        ({"prompt": "q", "completions": ["a", "b", "c"], "ranks": [2, 1, 2]}, "abc", (-2, -1, -2)),
        ({"prompt": "q", "responses": ["a", "b", "c"], "scores": [0.5, None, 3]}, "abc", (0.5, NAN, 3)),
        ({"prompt": "q", "answers": [{"answer": x, "rank": n} for n, x in enumerate("abc")]}, "abc", (0, -1, -2)),
        ({"prompt": "q", "completions": [{"text": x, "score": 2} for x in "ab"]}, "ab", (2, 2)),
        ({"prompt": "q", "chosen": "a", "rejected": "b", "wins": {"overall": 0.25}}, "ab", (0.25, 0.75)),
        (
            {"context": [{"role": "user", "content": "q"}]}
            | {"completions": [{"rank": n, "completion": turn(x)} for n, x in enumerate("ba")]},
            "ba",
            (0, -1),
        ),
    ],
)
def test_lists_are_read_from_rows_of_all_forms(tmp_path, row, completions, scores):
    (ranked,), report = load_lists(write(tmp_path / "a.jsonl", row), OVERALL)
    assert ranked.prompt == user_turn("q") and "".join(ranked.completions) == completions and not report.dropped
    assert ranked.scores == pytest.approx(scores, nan_ok=True)


def test_rows_of_one_completion_are_joined_by_prompt_and_bad_rows_counted(tmp_path):
    singles = [{"prompt": p, "completion": c, "reward": r} for p, c, r in [("q", "a", 1), ("p", "x", 0), ("q", "b", 2)]]
    singles[2] |= {"prompt": [{"role": "user", "content": "q"}], "completion": turn("b")}  # as `rewardlab label` writes
    lists, _ = load_lists(write(tmp_path / "a.jsonl", *singles), "reward")
    assert [(ranked.completions, ranked.scores) for ranked in lists] == [(("a", "b"), (1, 2)), (("x",), (0,))]
    bad = [
        ({"completions": ["a", "b"]}, "a list needs 2 or more completions with a rank or score"),
        ({"completions": ["a", "b"], "scores": [1, None]}, "a list needs 2 or more completions with a rank or score"),
        ({"completions": ["a", "b"], "ranks": [1, 2, 3]}, "of 2 completions"),
        ({"completions": [], "ranks": []}, "of 0 completions"),
        ({"completions": ["a", " "], "ranks": [1, 2]}, "empty completion: 'completions[1]'"),
        ({"completions": ["a", "b"], "ranks": ["first", 2]}, "'ranks' is not a finite number: 'first'"),
        ({"completion": "a"}, "no column 'overall'"),
    ]
    good = {"prompt": "q", "completions": ["a", "b"], "ranks": [1, 2]}
    source = write(tmp_path / "b.jsonl", good, *({"prompt": "q"} | row for row, _ in bad))
    lists, report = load_lists(source, OVERALL)
    assert len(lists) == 1
    for (_, sentence), (_, why) in zip(bad, report.dropped, strict=True):
        assert sentence in why


def test_rows_of_one_prompt_in_several_files_are_one_list(tmp_path):
    rows = [{"prompt": "q", "completion": name, "overall": score} for score, name in enumerate("ab")]
    files = [write(tmp_path / f"{row['completion']}.jsonl", row) for row in rows]
    training = ListTraining(ScalarSettings(loss="plackett_luce"), RewardArguments(use_cpu=True), plackett_luce())
    data, report = training.load_rows(files)
    assert [(ranked.completions, ranked.scores) for ranked in data.lists] == [(("a", "b"), (0, 1))] and report.read == 2


def ranked_pairs(made) -> list[RankedList]:
    return [RankedList(p.id, p.prompt, (p.chosen, p.rejected), (p.wins[OVERALL], 1 - p.wins[OVERALL])) for p in made]


LISTS = [
    RankedList(
        str(n), p.prompt, (p.chosen, p.rejected, f"{p.chosen} honey", p.rejected[:9])[: 2 + n % 3], tuple(scores)
    )
    for n, (p, scores) in enumerate(zip(pairs(6, 0), [[1, 0], [2, 0, 3], [3, 2, NAN, 1]] * 2, strict=True))
]


def test_lists_of_two_have_loss_and_gradient_of_bradley_terry():
    model = small()
    made = [replace(pair, wins={OVERALL: wins}) for pair, wins in zip(pairs(6, 0), [1.0, 0.0, 0.5] * 2, strict=True)]
    values = []
    for task, rows in [
        (ScalarTask(bradley_terry()), encode_pairs(model.encoder, made, OVERALL).rows),
        (ListTask(plackett_luce()), encode_lists(model.encoder, ranked_pairs(made)).rows),
    ]:
        model.model.zero_grad()
        loss, _ = task.loss(model.model, task.collate(rows))
        loss.backward()
        values.append((loss.item(), [p.grad.clone() for p in model.model.parameters() if p.grad is not None]))
    (loss, gradients), (of_lists, gradients_of_lists) = values
    assert of_lists == pytest.approx(loss, abs=1e-6)
    for one, other in zip(gradients, gradients_of_lists, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_batch_is_the_mean_of_its_lists_and_counts_pairs_and_best_ones():
    model, task = small(), ListTask(plackett_luce())
    rows = encode_lists(model.encoder, LISTS).rows
    together, rewards = task.loss(model.model, task.collate(rows))
    single = [task.loss(model.model, task.collate([row]))[0].item() for row in rows]
    assert together.item() == pytest.approx(np.mean(single), abs=1e-5) and task.items(task.collate(rows)) == 6
    rated = model.rate(LISTS[2].examples)[:, 0]
    assert rewards[2].tolist() == pytest.approx(rated.tolist(), abs=1e-5)
    _, counts = task.evaluate(model.model, task.collate(rows))
    right = best = 0
    for ranked in LISTS:
        rated = model.rate(ranked.examples)[:, 0]
        known = [n for n, score in enumerate(ranked.scores) if not math.isnan(score)]
        right += sum(
            ranked.scores[i] > ranked.scores[j] and rated[i] > rated[j] for i in known for j in known if i != j
        )
        best += max(known, key=lambda n: rated[n]) == max(known, key=lambda n: ranked.scores[n])
    assert counts[:, 0].tolist() == [1, 3, 3] * 2
    metrics = task.metrics(EvalPrediction(counts.detach().numpy(), np.zeros(6)))
    assert metrics == {"accuracy": pytest.approx(right / 14), "best_found": pytest.approx(best / 6)}


def test_the_best_is_not_found_where_a_worse_completion_has_the_same_reward():
    """All rewards are 0, whatever stands first. The two best of the last list are equals, and one of them is enough."""
    model, task = small(), ListTask(plackett_luce())
    for parameter in model.model.score.parameters():
        torch.nn.init.zeros_(parameter)
    rows = encode_lists(model.encoder, [*LISTS, LISTS[0]._replace(scores=(1.0, 1.0))]).rows
    counts = task.evaluate(model.model, task.collate(rows))[1]
    assert counts.tolist() == [[1, 0, 0], [3, 0, 0], [3, 0, 0]] * 2 + [[0, 0, 1]]


def test_lists_without_two_different_scored_completions_are_left_out():
    model = small()
    same = RankedList("s", user_turn("q"), ("honey", "honey", "bees"), (1.0, 0.0, NAN))
    encoding = encode_lists(model.encoder, [same, LISTS[0]])
    assert (encoding.unlabelled, len(encoding.rows)) == (1, 1)
    with pytest.raises(DataError, match="none of 1 lists is left .* 1 without two different completions"):
        encode_lists(model.encoder, [same])
    long = LISTS[0]._replace(id="l", completions=("honey " * 99, "bees"))
    assert encode_lists(model.encoder, [long, LISTS[0]], "skip").over_length == 1
    with pytest.raises(DataError, match="list 'l' has 1.. tokens and the limit is 64"):
        encode_lists(model.encoder, [long], "refuse")


def test_training_orders_lists_and_micro_batches_do_not_change_it(tmp_path):
    def trained(batch: int, accumulation: int):
        model, task = small(), ListTask(listwise_cross_entropy())
        rows = encode_lists(model.encoder, LISTS).rows
        arguments = RewardArguments(
            output_dir=str(tmp_path / str(batch)),
            max_steps=3,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            use_cpu=True,
            train_sampling_strategy="sequential",
            save_strategy="no",
        )
        RewardTrainer(model, arguments, task, rows).train()
        return model.rate(LISTS[1].examples)

    np.testing.assert_allclose(trained(6, 1), trained(2, 3), atol=1e-5)
    model, task = small(), ListTask(plackett_luce())
    rows = encode_lists(model.encoder, LISTS).rows
    fit(model, task, rows, Fit(steps=40, learning_rate=1e-2, batch=6, seed=0))
    _, counts = task.evaluate(model.model, task.collate(rows))
    assert (counts[:, 0] == counts[:, 1]).all() and counts[:, 2].all()


def test_the_command_trains_on_lists_and_refuses_settings_of_pairs(tmp_path, capsys):
    rows = [
        {"prompt": "Name one.", "completions": [f"fern {n}", f"moss {n}", "no"], "ranks": [1, 2, 2]} for n in range(6)
    ]
    command = ["train", "--data", write(tmp_path / "a.jsonl", *rows), "--loss", "plackett_luce(top=1)", "--json"]
    command += ["--small_hidden", "8", "--small_layers", "1", "--small_vocabulary", "300", "--max_steps", "2"]
    command += ["--eval_data", str(tmp_path / "a.jsonl"), "--use_cpu", "True", "--output", str(tmp_path / "model")]
    assert main(command) == 0
    summary = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert summary["lists"] == 6 and {"eval_accuracy", "eval_best_found", "train_loss"} <= {*summary}
    model = load_reward_model(str(tmp_path / "model"))
    assert model.contract.kind == "scalar"
    assert main([*command, "--overwrite", "--center_rewards_coefficient", "0.1"]) == 2
    assert "--loss plackett_luce(top=1) reads ranked lists" in capsys.readouterr().err
