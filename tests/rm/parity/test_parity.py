import json
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch
from rewardlab.rm.backbones.sequence_scores import head_outputs
from rewardlab.rm.contract.scoring_contract import PLAIN_TEMPLATE
from rewardlab.rm.errors import DataError
from rewardlab.rm.kinds.ensemble.model import EnsembleRewardModel
from rewardlab.rm.parity.known_faults import score_ids, untruncated_ids
from rewardlab.rm.parity.loaders import stored_scores
from rewardlab.rm.parity.parity import (
    BackendScores,
    compare_backend,
    edge_cases,
    flipped_share,
    other_precision,
    own_variants,
    parity,
)
from rewardlab.rm.types import Example

from tests.rm.spread_models import CHATML, LIMIT, examples, make


@pytest.fixture(scope="module")
def model():
    return make()


def found(model, way):
    (one,) = parity(model, examples(), {"theirs": way})
    return one


def ids_of(model) -> list[list[int]]:
    return [one.ids for one in model.encoder.encode_all(examples())]


def test_a_model_agrees_with_itself_in_all_its_ways():
    for architecture, template in (("qwen3", None), ("llama", CHATML), ("gemma3_text", None), ("qwen3_5_text", None)):
        own = make(architecture, template)
        results = list(parity(own, examples(), own_variants(own)))
        padded = ["padded on the left", "padded on the right", "pad is EOS"]
        assert [one.way for one in results] == ["alone", "shuffled", *padded], architecture
        assert all(one.passed and one.culprit == "" and one.flips == 0 for one in results), architecture
    several = make(objectives=("helpful", "harmless"))
    assert all(one.passed for one in parity(several, examples(), own_variants(several)))
    together = EnsembleRewardModel([make(seed=1), make(seed=2)], ["a", "b"])
    results = list(parity(together, examples(), own_variants(together)))
    assert [one.way for one in results] == ["alone", "shuffled"] and all(one.passed for one in results)


def test_half_precision_may_differ_more_and_flips_are_pairs_in_the_other_order(model):
    ours = model.rate(examples())
    near = BackendScores(ours + 0.01 * ours.std())
    assert not found(model, lambda _: near).passed
    (one,) = parity(model, examples(), {"theirs": lambda _: near}, half=["theirs"])
    assert one.passed and one.tolerance == pytest.approx(0.02 * ours.std())
    noise = 0.05 * ours.std() * np.sign(np.random.default_rng(0).normal(size=ours.shape))
    results = found(model, lambda _: BackendScores(ours + noise, ids_of(model)))
    assert results.culprit == "no known fault; the difference may be rounding in half precision" and not results.passed
    # Of (1, 2, 3) against (1, 3, 2) one pair of three; a tie is no flip
    assert flipped_share(np.array([[1.0], [2], [3]]), np.array([[1.0], [3], [2]])) == pytest.approx(1 / 3)
    assert (
        flipped_share(np.array([[1.0], [1]]), np.array([[1.0], [3]]))
        == 0
        == flipped_share(np.ones((1, 1)), np.ones((1, 1)))
    )


def test_a_way_that_promises_nothing_is_told_and_never_fails(model):
    """Random weights this large lose more than 2e-2 standard deviations in bfloat16."""
    ways = other_precision(model)
    assert list(ways) == ["bfloat16"]
    (results,), (held,) = ([*parity(model, examples(), ways, half=[*ways], report_only=names)] for names in (ways, ()))
    assert results.passed and not results.same and results.culprit == "bfloat16 itself"
    assert not held.passed and held.largest > 0.02 * held.deviation == held.tolerance
    assert next(model.model.parameters()).dtype == torch.float32, "the model itself is left as it was"


def test_edge_cases_are_made_for_the_kinds_that_are_missing_and_the_template_takes(model):
    made = edge_cases(model, [])
    short, several, foreign, long = made
    assert len(short.completion) == 1 and len(several.prompt) == 3 and not foreign.completion.isascii()
    assert model.encoder.encode(long).length > LIMIT
    assert edge_cases(model, made) == []
    assert edge_cases(model, examples()) == [short, several, foreign]
    one_turn = "{% if messages|length > 2 %}{{ raise_exception('one question') }}{% endif %}" + CHATML
    assert len(edge_cases(make(template=one_turn), examples())) == 2


def sigmoid(model, _: Sequence[Example]) -> BackendScores:
    return BackendScores(1 / (1 + np.exp(-model.rate(examples()))))


def with_ids(change):
    return lambda model, _: BackendScores(score_ids(model, [change(model, ids) for ids in ids_of(model)]))


def without_turn_end(model, ids):
    return ids[: -len(model.encoder.tokenizer("<|im_end|>\n", add_special_tokens=False).input_ids)]


def wrong_side(model, given: Sequence[Example]) -> BackendScores:
    return BackendScores(score_ids(model, [untruncated_ids(model, one)[:LIMIT] for one in given]))


def mean_pooling(model, _: Sequence[Example]) -> BackendScores:
    rows = [torch.tensor([ids]) for ids in ids_of(model)]
    with torch.no_grad():
        outputs = [head_outputs(model.model, row, torch.ones_like(row))[0].mean(0) for row in rows]
    return BackendScores(torch.stack(outputs).double().numpy())


def fresh_head(model, given: Sequence[Example]) -> BackendScores:
    other = make()
    torch.nn.init.normal_(other.model.score.weight, std=0.3, generator=torch.Generator().manual_seed(9))
    return BackendScores(other.rate(given), ids_of(other))


def padding_as_content(model, _: Sequence[Example]) -> BackendScores:
    ids, filler = ids_of(model), model.encoder.tokenizer.pad_token_id
    width = max(map(len, ids))
    return BackendScores(score_ids(model, [[*one, *[filler] * (width - len(one))] for one in ids]))


def other_template(model, given: Sequence[Example]) -> BackendScores:
    other = make(template=CHATML)
    ids = [one.ids for one in other.encoder.encode_all(given)]
    return BackendScores(score_ids(model, ids), ids)


CLOSED = {"template": CHATML}


def plain_template(model, given: Sequence[Example]) -> BackendScores:
    plain = make(template=PLAIN_TEMPLATE)
    return BackendScores(score_ids(model, [one.ids for one in plain.encoder.encode_all(given)]))


FAULTS = [
    ("sigmoid activation", {}, sigmoid),
    ("double BOS", {"bos": True}, with_ids(lambda model, ids: [ids[0], *ids])),
    ("missing EOS", {}, with_ids(lambda _, ids: ids[:-1])),
    ("missing EOS", CLOSED, with_ids(without_turn_end)),
    ("wrong truncation side", {}, wrong_side),
    (
        "no truncation",
        {},
        lambda model, given: BackendScores(score_ids(model, [untruncated_ids(model, one) for one in given])),
    ),
    ("wrong pooling (mean)", {}, mean_pooling),
    ("pad token scored as content", {}, padding_as_content),
    ("re-initialised head or other weights: the backend reads the same tokens", {}, fresh_head),
    ("other template", {}, other_template),
    ("other template", CLOSED, plain_template),
]


@pytest.mark.parametrize(("culprit", "settings", "fault"), FAULTS, ids=[f"{row[0]} {[*row[1]]}" for row in FAULTS])
def test_a_planted_fault_is_called_by_its_name(culprit, settings, fault):
    own = make(**settings)
    one = found(own, partial(fault, own))
    assert one.culprit == culprit and not one.passed
    if fault is fresh_head:
        assert one.flips > 0
    if fault is other_template:
        assert one.token.startswith("conversation 1, token 1: "), "where it first reads another token"


def test_what_nothing_explains_or_has_no_scores_is_said(model):
    ours = model.rate(examples())
    assert found(model, lambda _: BackendScores(ours * 1.5 + 0.25)).culprit == "scores times 1.5 plus 0.25"
    noise = BackendScores(ours + np.random.default_rng(0).normal(size=ours.shape))
    assert found(model, lambda _: noise).culprit.endswith("the backend does not report its tokens")
    assert (
        found(model, lambda _: BackendScores(np.full_like(ours, np.nan))).culprit
        == "scores that are missing or not finite"
    )
    other = compare_backend(model, examples(), ours, "x", BackendScores(np.zeros((12, 2))), 1.0)
    assert other.culprit == "scores of shape (12, 2), but the model's have (12, 1)" and not other.passed
    one = found(model, lambda _: BackendScores(np.empty(0), because="refused: no padding token"))
    assert one.culprit == "refused: no padding token" and one.largest == np.inf and not one.passed


def test_scores_of_another_program_are_read_from_csv_and_an_empty_one_is_refused(tmp_path):
    path = tmp_path / "theirs.csv"
    path.write_text("prompt,completion,score\nq,a,0.5\nq,b,-2\n")
    group = stored_scores(str(path), ("reward",))
    assert group.backends[str(path)](group.examples).scores.tolist() == [[0.5], [-2.0]]
    path.write_text("prompt,completion,score\nq,a,\n")
    with pytest.raises(DataError, match="row 1: no score: 'score' is empty"):
        stored_scores(str(path), ("reward",))


def test_rewards_of_objectives_named_as_columns_of_score_are_read_from_its_output(tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_text(json.dumps({"prompt": "q", "completion": "a", "row": 7, "low": 0.25, "reward_row": 0.5}) + "\n")
    group = stored_scores(str(path), ("row", "low"))
    assert group.backends[str(path)](group.examples).scores.tolist() == [[0.5, 0.25]], "low is of another program"
