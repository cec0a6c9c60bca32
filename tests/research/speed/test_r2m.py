"""research/speed/r2m/__init__.py at toy size: that the arms do the same work and the formulas hold, not how fast."""

import json
from dataclasses import replace

import pytest
import torch
from rewardlab.kernels.r2m_attention import attend
from rewardlab.research.speed import r2m as feedback
from rewardlab.research.speed.r2m import ARMS, WARM, Size, TimedMethod, main, markdown, overhead, shares
from rewardlab.research.speed.r2m.cost import (
    PAPER,
    Shape,
    absorbed_products,
    attention,
    bytes_of,
    counted_products,
    literal_products,
    predicted_bytes,
)

TOY = Size(
    layers=1, hidden=192, vocabulary=400, rows=8, group=4, prompt=4, answer=6, steps=2 + WARM, inner=16,
    attended=17, attending=3, width=32, pairs=2,
)  # fmt: skip
OTHER = replace(TOY, hidden=384, rows=12, group=3, prompt=7, answer=9, inner=24, attended=129, attending=1, width=66)


@pytest.fixture(scope="module", params=[TOY, pytest.param(OTHER, marks=pytest.mark.slow)], ids=["toy", "other"])
def found(request, tmp_path_factory):
    """What the script writes, and the size that it had."""
    path = tmp_path_factory.mktemp("speed") / "found.json"
    main(["--output", str(path)], request.param)
    return request.param, json.loads(path.read_text())


# ---- what the script writes ----


def test_every_arm_has_its_rounds(found):
    size, written = found
    seconds = written["time"]["seconds"]
    assert [*seconds["step"]] == [*seconds["rate"]] == [*ARMS] and [*seconds["learn"]] == ["frozen", "r2m"]
    rounds = [one for part in ("step", "rate", "learn") for one in seconds[part].values()]
    assert {len(one) for one in rounds} == {size.steps - WARM} and len(seconds["generation"]) == 3
    assert written["size"]["rows"] == size.rows and written["machine"]["threads"] == 1
    assert [one["pairs"] for one in written["time"]["ratio"].values()] == [2, 2]
    assert set(written["parameters"]) == {"policy", "reward model", "head"}


def test_all_arms_train_on_the_same_answers(found):
    assert found[1]["time"]["same answers"]


def test_answers_that_differ_are_noticed(monkeypatch, tmp_path):
    class Restless(feedback.Answers):
        def __call__(self, prompts):
            self.completion_ids = [row[1:] + row[:1] for row in self.completion_ids]
            return super().__call__(prompts)

    monkeypatch.setattr(feedback, "Answers", Restless)
    assert not overhead(TOY, str(tmp_path))["time"]["same answers"]


def test_bytes_are_those_of_the_formula(found):
    size, written = found
    tokens = size.prompt + 3 + size.answer  # <|user|>, </s> and <|assistant|> stand around the prompt
    shape = {"answers": size.rows, "positions": tokens, "policy_width": size.hidden, "width": size.hidden}
    assert written["bytes"]["shape"] == shape | {"inner": size.inner, "objectives": 1}
    assert written["bytes"]["counted"] == written["bytes"]["formula"]
    assert written["bytes"]["last pass"] == written["bytes"]["counted"]["states"]  # nothing holds the padding


def test_multiply_adds_are_those_of_the_formula(found):
    for row in found[1]["attention"]["multiply-adds"].values():
        assert row["counted"] == pytest.approx(row["formula"], rel=0.01)


def test_both_forms_agree(found):
    gaps = found[1]["attention"]["difference"]
    assert [*gaps] == ["output", "query", "W_q", "W_k", "W_v", "W_o"]
    assert all(one["relative"] < 2e-5 for one in gaps.values())


def test_the_tables_say_what_the_file_says(found):
    told = markdown(found[1])
    assert "r2m / frozen: " in told and "RM phase, with generation: " in told
    assert f"| states | {found[1]['bytes']['counted']['states']:,} |" in told
    assert "literal / absorbed: " in told and " over 2 pairs" in told


# ---- formulas by hand ----

SMALL = Shape(answers=2, positions=3, policy_width=4, width=5, inner=2)


def test_bytes_by_hand():
    """2·2·2·4; 4·2·(5 + 1); 4·(2·2·9 + 5); twice that and five counts of 4 bytes."""
    assert predicted_bytes(SMALL) == {"states": 32, "tokens": 48, "head": 164, "optimizer": 348}
    assert predicted_bytes(PAPER)["states"] == 4 * 2**30 - 2 * 512 * 4096  # 4 GiB less a position of every answer


def test_multiply_adds_by_hand():
    """2 (2·2·9 + 2·3·4) and 2 (2·2·5 + 2·3·4·2 + 2·3·2); of an answer of the paper's 0.084 and 34.4 GFLOP."""
    assert (absorbed_products(SMALL), literal_products(SMALL)) == (120, 160)
    one = PAPER._replace(answers=1)
    assert 2 * absorbed_products(one) / 1e9 == pytest.approx(0.084, abs=5e-4)
    assert 2 * literal_products(one) / 1e9 == pytest.approx(34.4, abs=0.05)


def test_products_with_vectors_are_counted():
    matrix, vector = torch.ones(3, 4), torch.ones(4)
    assert counted_products(lambda: matrix @ vector) == 12
    assert counted_products(lambda: matrix.T @ matrix) == 48


def test_bytes_of_a_view_are_those_that_it_keeps_alive():
    whole = torch.zeros(4, 5)
    assert bytes_of([whole[:1], whole[1:2]]) == 80
    assert bytes_of([whole[:1].clone(), whole[1:2].to(torch.bfloat16)]) == 20 + 10


def test_a_form_that_differs_is_noticed(monkeypatch):
    monkeypatch.setattr("rewardlab.research.speed.r2m.cost.attend", lambda u, *others: attend(2 * u, *others))
    assert attention(TOY.attention, 1)["difference"]["output"]["relative"] > 0.1


def test_shares_are_of_r2ms_own_step():
    """learn 1 of 10; rate 3 - 2 of 10; generation adds 10 to the step."""
    seconds = {
        "step": {"r2m": [10.0, 10.0]},
        "learn": {"r2m": [1.0, 1.0]},
        "rate": {"r2m": [3.0, 3.0], "scalar": [2.0, 2.0]},
        "generation": [10.0],
    }
    assert [one["value"] for one in shares(seconds).values()] == pytest.approx([0.1, 0.1, 0.2, 0.1])


def test_a_watched_method_keeps_what_it_was_given_last():
    watched = TimedMethod(lambda first, *rest: (first, *rest), keep=1)
    assert [watched(1), watched(2, 3)] == [(1,), (2, 3)]
    assert [*watched.given] == [2] and len(watched.seconds) == 2
