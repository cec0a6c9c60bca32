import json

import pytest
from rewardlab.research.speed.r2m import ARMS, WARM, Size, main, markdown, shares
from rewardlab.research.speed.r2m.cost import PAPER, Shape, absorbed_products, literal_products, predicted_bytes

TOY = Size(
    layers=1, hidden=192, vocabulary=400, rows=8, group=4, prompt=4, answer=6, steps=2 + WARM, inner=16,
    attended=17, attending=3, width=32, pairs=2,
)  # fmt: skip


def test_the_script_writes_rounds_bytes_and_products_as_the_formulas_have_them(tmp_path):
    main(["--output", str(tmp_path / "cost.json")], TOY)
    written = json.loads((tmp_path / "cost.json").read_text())
    seconds = written["time"]["seconds"]
    assert [*seconds["step"]] == [*seconds["rate"]] == [*ARMS] and [*seconds["learn"]] == ["frozen", "r2m"]
    rounds = [values for part in ("step", "rate", "learn") for values in seconds[part].values()]
    assert {len(values) for values in rounds} == {TOY.steps - WARM} and written["time"]["same answers"]
    tokens = TOY.prompt + 3 + TOY.answer  # <|user|>, </s> and <|assistant|> stand around the prompt
    shape = {"answers": TOY.rows, "positions": tokens, "policy_width": TOY.hidden, "width": TOY.hidden}
    assert written["bytes"]["shape"] == shape | {"inner": TOY.inner, "objectives": 1}
    assert written["bytes"]["counted"] == written["bytes"]["formula"]
    for row in written["attention"]["multiply-adds"].values():
        assert row["counted"] == pytest.approx(row["formula"], rel=0.01)
    assert all(gap["relative"] < 2e-5 for gap in written["attention"]["difference"].values())
    assert "RM phase, with generation: " in markdown(written)


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


def test_shares_are_of_r2ms_own_step():
    """learn 1 of 10; rate 3 - 2 of 10; generation adds 10 to the step."""
    seconds = {"step": {"r2m": [10.0, 10.0]}, "learn": {"r2m": [1.0, 1.0]}, "generation": [10.0]}
    seconds |= {"rate": {"r2m": [3.0, 3.0], "scalar": [2.0, 2.0]}}
    assert [one["value"] for one in shares(seconds).values()] == pytest.approx([0.1, 0.1, 0.2, 0.1])
