"""kernels/lora_film/__init__.py"""

import importlib

import pytest
import torch
from rewardlab.kernels.lora_film import lora_film, modulate, reference

from tests.stand_ins.kernel_cases.lora_film import example

FILM = {"N": 4, "L": 3, "m": 9, "n": 6, "r": 5, "start": 2, "kind": "scale"}
CORE = FILM | {"kind": "core"}


def test_scale_shift_and_core_worked_out_by_hand():
    # u = A x = (1+2, 1-2) = (3, -1); scaled (6, -3); shifted (7, -3); B u = (7, -3, 4); halved and added to y
    x, y = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[10.0, 20.0, 30.0]]])
    A, B = torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    scale, shift = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, 0.0]])
    out = lora_film(y, x, A, B, scale=scale, shift=shift, factor=0.5)
    assert out.tolist() == [[[13.5, 18.5, 32.0]]]
    # M = [[0, 1], [2, 0]] sends (3, -1) to (-1, 6)
    u = torch.tensor([[[3.0, -1.0]]])
    assert modulate(u, core=torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])).tolist() == [[[-1.0, 6.0]]]
    arguments = example(FILM, torch.float64)
    cored = arguments | {"scale": None, "core": arguments["scale"].diag_embed(), "y": arguments["y"].clone()}
    torch.testing.assert_close(lora_film(**cored), lora_film(**arguments))


def test_rows_before_the_start_come_back_bit_for_bit():
    for case, dtype in ((FILM, torch.float32), (CORE, torch.bfloat16), (FILM | {"L": 1}, torch.bfloat16)):
        arguments = example(case, dtype)
        before = arguments["y"].clone()
        out = lora_film(**arguments)
        assert torch.equal(out[:2], before[:2]) and not torch.equal(out[2:], before[2:]), case


@pytest.mark.parametrize("case", [FILM, CORE])
def test_a_row_alone_is_the_row_in_a_batch(case):
    arguments = example(case, torch.float64)
    whole = lora_film(**arguments | {"y": arguments["y"].clone()})
    name = case["kind"]
    for row in (2, 3):
        film = {key: arguments[key][row - 2 : row - 1] for key in (name, "shift") if key in arguments}
        alone = {"y": arguments["y"][row : row + 1].clone(), "x": arguments["x"][row : row + 1], "start": 0}
        torch.testing.assert_close(lora_film(**arguments | film | alone)[0], whole[row])


def test_one_row_of_modulation_serves_all_and_may_have_another_precision():
    arguments = example(FILM | {"rows": 1}, torch.float64)
    spread = {name: arguments[name].expand(2, -1) for name in ("scale", "shift")}
    expected = lora_film(**arguments | spread | {"y": arguments["y"].clone()})
    torch.testing.assert_close(lora_film(**arguments), expected)
    for case in (FILM, CORE):
        arguments = example(case, torch.bfloat16)
        wide = {name: arguments[name].float() for name in ("A", "B", "scale", "core", "shift") if name in arguments}
        expected = lora_film(**arguments | {"y": arguments["y"].clone()})
        assert torch.equal(lora_film(**arguments | wide), expected), case["kind"]


def test_ranks_that_do_not_fit_into_registers_go_through_pytorch(monkeypatch, triton):
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    recorded = importlib.import_module("rewardlab.kernels.triton_common.launch").recorded
    for case, highest in ((FILM, 64), (CORE, 32), (CORE | {"L": 40}, 16)):
        for rank, launches in ((highest, 2), (highest + 1, 0)):
            with recorded(90) as kernels:
                lora_film(**example(case | {"r": rank}, torch.bfloat16, "meta"))
            assert len(kernels) == launches, (case, rank)


def test_the_sum_is_formed_in_place_without_gradients_and_where_y_is_contiguous():
    arguments = example(FILM, torch.float32)
    y, before = arguments["y"], arguments["y"].clone()
    assert lora_film(**arguments | {"A": arguments["A"].requires_grad_()}) is not y
    assert torch.equal(y, before)
    with torch.no_grad():
        assert lora_film(**arguments) is y
    arguments = example(FILM, torch.float32)
    pieces = torch.stack([arguments["y"], arguments["y"]], dim=-1)[..., 0]
    torch.testing.assert_close(lora_film(**arguments | {"y": pieces}), reference(**arguments))


def test_autocast_chooses_the_precision_of_the_products():
    arguments = example(FILM, torch.float32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = lora_film(**arguments)
    torch.testing.assert_close(out, reference(**arguments), atol=0.2, rtol=0.05)


def test_a_wrong_use_is_told_what_is_wrong():
    arguments = example(FILM, torch.float32)
    with pytest.raises(ValueError, match="scale and core exclude each other"):
        lora_film(**arguments | {"core": torch.zeros(2, 5, 5)})
    with pytest.raises(ValueError, match=r"start must lie in \[0, 4\], the number of rows of y, got 5"):
        lora_film(**arguments | {"start": 5})
    with pytest.raises(ValueError, match="1 row or 2, one for each row from start=2 on, got 3"):
        lora_film(**arguments | {"scale": torch.zeros(3, 5), "shift": None})
