from random import Random

import numpy as np
import pytest
import torch
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.research.studies.latent import Plan
from rewardlab.research.studies.latent.pairs import RATIONALE, VOCABULARY, draw_pair, draw_pairs, shuffled
from rewardlab.research.studies.latent.reasoners import (
    ALIGNED,
    DEPTH_HEAD,
    FROM_ALL,
    MILLISECONDS,
    STEPS,
    WRITER,
    Timing,
    measure,
    put_weights,
)
from rewardlab.rm.backbones.tokenization import pad
from rewardlab.rm.kinds.latent.model import DEPTH_HEAD as DEPTH_MODULE
from rewardlab.rm.kinds.latent.training import encode_latent

PLAN = Plan((3,), pairs=16, updates=4, tested=10, repeats=2)


def test_rationales_are_the_results_of_the_arithmetic():
    pair = draw_pair(("7", "+5", "*3", "+1", "*7"), Random(0))
    assert pair.prompt[0]["content"] == "7 +5 *3 +1 *7" and pair.chosen == "9" and pair.rejected != "9"
    assert pair.rationales == ("2 6 7 9 right", "2 6 7 9 wrong")
    assert all(len(text.split()) == RATIONALE for text in pair.rationales)


def test_pairs_of_the_test_have_other_problems_and_no_unknown_words():
    train, test = draw_pairs(200, 100, 0)
    assert len({pair.id for pair in (*train, *test)}) == 300
    words = tokenizer(VOCABULARY)
    texts = [text for pair in train for text in (pair.prompt[0]["content"], pair.chosen, *pair.rationales)]
    assert words.unk_token_id not in words(" ".join(texts)).input_ids
    assert draw_pairs(200, 100, 1)[0] != train == draw_pairs(200, 100, 0)[0]


def test_shuffled_rationales_are_those_of_other_pairs_with_the_same_last_word():
    pairs, _ = draw_pairs(50, 0, 0)
    others = shuffled(pairs, 0)
    assert sorted(pair.rationales for pair in others) == sorted(pair.rationales for pair in pairs)
    assert np.mean([a.rationales == b.rationales for a, b in zip(pairs, others, strict=True)]) < 0.2
    assert {pair.rationales[0].split()[-1] for pair in others} == {"right"}
    assert [(pair.id, pair.chosen) for pair in others] == [(pair.id, pair.chosen) for pair in pairs]


@torch.no_grad()
def test_a_writer_is_trained_on_the_score_behind_the_given_rationale():
    reasoner = PLAN.reasoners(3)[WRITER]
    writer = reasoner.untrained()
    task = reasoner.task(writer)
    rows = encode_latent(writer.encoder, draw_pairs(4, 0, 0)[0], "overall")[0].rows
    _, outputs = task.loss(writer.model, task.collate(rows))
    read = [[*row.chosen, *row.rationales[0]] for row in rows]
    torch.testing.assert_close(outputs[:, 0], writer.with_steps(0).score(*pad(read))[:, 0])


def first_depths(model):
    """Return the probabilities of a depth head, which do not depend on the state at first."""
    module = model.language_model.get_submodule(DEPTH_MODULE)
    assert not module.weight.any()
    return module.bias.softmax(dim=0).tolist()


def test_a_reasoner_starts_from_the_weights_of_another_and_is_stored_with_its_own(tmp_path):
    reasoners = PLAN.reasoners(3)
    depth = reasoners[DEPTH_HEAD]
    assert depth.start == reasoners[ALIGNED] and depth.arm.latent_depth == "head" and str(depth) == "depth head, seed 3"
    start, model = depth.start.load(tmp_path), depth.untrained()
    most = [first_depths(reasoners[name].untrained())[-1] for name in (DEPTH_HEAD, FROM_ALL)]
    assert most == pytest.approx([1 / 6, 0.9])
    put_weights(model, depth.start.result(tmp_path))
    examples = draw_pairs(4, 0, 3)[0][0].examples
    np.testing.assert_allclose(model.with_steps(RATIONALE).rate(examples), start.rate(examples))
    trained, (_, test) = depth.result(tmp_path), draw_pairs(16, 10, 3)
    assert measure(depth.load(tmp_path), test) == {name: trained[name] for name in ("accuracy", STEPS)}
    assert trained["updates"] == 2 and start.contract.latent_steps == RATIONALE
    times = Timing((depth.start, depth), responses=4, repeats=2).result(tmp_path)[MILLISECONDS]
    assert times.shape == (2,) and (times > 0).all()
