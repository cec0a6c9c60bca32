import math

import numpy as np
import pytest
import torch
from rewardlab.judges.retrieval.encoder import new_encoder
from rewardlab.judges.retrieval.pooling import diversity
from rewardlab.judges.retrieval.settings import EncoderSettings
from rewardlab.judges.retrieval.training import (
    JointRow,
    RetrieverArguments,
    RetrieverTrainer,
    TextPair,
    both_directions,
    info_nce,
    joint_rows,
    pairs_within,
)
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.training.checkpointing import last_complete_checkpoint

WORDS = ("roses", "bees", "mulch", "frost", "pond", "herbs", "moss", "birds")
QUESTIONS = [
    TextPair(f"How do I care for {word}?", f"Names {word}. Says when.", str(n)) for n, word in enumerate(WORDS)
]
CASES = [TextPair(f"{word} in spring", f"{word} in autumn") for word in WORDS]
SETTINGS = EncoderSettings(facets=2, width=8, segment_sentences=2, max_length=32)


def encoder(seed: int = 0):
    texts = [text for pair in (*QUESTIONS, *CASES) for text in pair[:2]]
    return new_encoder(SETTINGS, None, texts * 5, seed=seed, hidden=16, layers=1, vocabulary=320)


def trainer(folder, *, rows=None, made=None, **changes) -> RetrieverTrainer:
    options = {"per_device_train_batch_size": 4, "max_steps": 2, "save_steps": 1, "learning_rate": 1e-2}
    arguments = RetrieverArguments(output_dir=str(folder), use_cpu=True, disable_tqdm=True, **options | changes)
    rows = joint_rows(QUESTIONS, CASES, arguments.case_weight, 0) if rows is None else rows
    return RetrieverTrainer(made or encoder(), arguments, rows)


def test_info_nce_by_hand_where_pairs_of_one_group_are_no_negatives():
    similarities = torch.tensor([[1.0, 0.5], [0.25, 0.0]])
    none = torch.zeros(2, 2, dtype=torch.bool)
    found = info_nce(similarities, none, temperature=0.5)
    expected = [math.log(1 + math.exp((0.5 - 1.0) / 0.5)), math.log(1 + math.exp((0.25 - 0.0) / 0.5))]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    similarities = torch.tensor([[1.0, 9.0, 0.5], [9.0, 1.0, 0.5], [0.0, 0.0, 0.0]])
    same = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    found = info_nce(similarities, same, 1.0)
    expected = [math.log(1 + math.exp(-0.5))] * 2 + [math.log(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    alone = info_nce(similarities, torch.ones(3, 3, dtype=torch.bool), 1.0)
    np.testing.assert_allclose(alone, [0, 0, 0], atol=1e-6)


def test_the_joint_loss_weighs_both_kinds_and_shared_texts_are_no_negatives(tmp_path):
    made = trainer(tmp_path, case_weight=0.25, diversity_weight=0.5)
    batch = made.collate([JointRow(*pairs) for pairs in zip(QUESTIONS[:3], CASES[:3], strict=True)])
    loss, vectors = made.compute_loss(made.model, batch, return_outputs=True)
    questions, rubrics, cases, others = vectors.chunk(4)
    own = torch.eye(3, dtype=torch.bool)
    expected = (
        0.75 * both_directions(questions, rubrics, own, 0.05, "mean").mean()
        + 0.25 * both_directions(cases, others, own, 0.05, "mean").mean()
        + 0.5 * diversity(vectors)
    )
    torch.testing.assert_close(loss, expected)
    pairs = [
        TextPair("a", "x"), TextPair("b", "x"), TextPair("a", "y"), TextPair("c", "z", "g"), TextPair("d", "w", "g"),
    ]  # fmt: skip
    made = trainer(tmp_path, rows=[JointRow(pair, None) for pair in pairs], case_weight=0.0)
    same = made.collate([JointRow(pair, None) for pair in pairs])["question"].int().tolist()
    assert same == [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]


def test_partners_are_of_the_same_group_and_missing_pairs_weights_and_divided_batches_are_refused(tmp_path):
    texts, groups = ["a", "b", "c", "d", "e"], ["x", "x", "x", "y", ""]
    pairs = pairs_within(texts, groups, per_text=2, seed=3)
    assert sorted(pairs) == [TextPair(*text, "x") for text in ("ab", "ac", "ba", "bc", "ca", "cb")]
    assert pairs_within(texts, groups, seed=3) == pairs_within(texts, groups, seed=3)
    assert len(pairs_within(texts, groups, seed=3)) == 3
    rows = joint_rows(QUESTIONS, CASES[:3], 0.5, seed=0)
    assert len(rows) == 8 and {row.question for row in rows} == {*QUESTIONS}
    assert [row.case for row in rows[3:6]] == [row.case for row in rows[:3]]
    assert all(row.case is None for row in joint_rows(QUESTIONS, [], 0.0, seed=0))
    assert all(row.question is None for row in joint_rows([], CASES, 1.0, seed=0))
    with pytest.raises(DataError, match="no case -> case pairs, but --case_weight 0.5"):
        joint_rows(QUESTIONS, [], 0.5, seed=0)
    with pytest.raises(DataError, match="no prompt -> rubric pair"):
        joint_rows([], CASES, 0.5, seed=0)
    for wrong, message in [({"temperature": 0.0}, "temperature"), ({"case_weight": 1.5}, "must lie in")]:
        with pytest.raises(UsageError, match=message):
            RetrieverArguments(output_dir=str(tmp_path), **wrong)
    with pytest.raises(UsageError, match="the contrastive loss compares the pairs of a batch"):
        trainer(tmp_path, gradient_accumulation_steps=2)


def test_training_finds_the_rubric_of_a_question(tmp_path):
    made = encoder()
    first = _recall(made)
    trainer(tmp_path, made=made, max_steps=25, save_strategy="no").train()
    assert _recall(made) == 1.0 > first
    made = trainer(tmp_path, attn_implementation="eager")
    assert made.model.backbone.config._attn_implementation == "eager"


def _recall(made) -> float:
    questions, rubrics = (made.embed([pair[side] for pair in QUESTIONS]).reshape(8, -1) for side in (0, 1))
    return float(((questions @ rubrics.T).argmax(1) == np.arange(8)).mean())


def test_a_training_that_goes_on_from_a_checkpoint_ends_with_the_same_weights(tmp_path):
    straight = trainer(tmp_path)
    straight.train()
    again = trainer(tmp_path, made=encoder(seed=5))  # other start weights, which the checkpoint replaces
    (tmp_path / "checkpoint-2").rename(tmp_path / "gone")
    checkpoint = last_complete_checkpoint(tmp_path)
    assert checkpoint is not None and checkpoint.name == "checkpoint-1"
    again.train(resume_from_checkpoint=str(checkpoint))
    for (name, one), other in zip(straight.model.named_parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, msg=name)
