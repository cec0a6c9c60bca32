"""kernels/lora_film/__init__.py"""

import importlib

import pytest
import torch
from rewardlab.kernels.lora_film import lora_film, low_rank, modulate, reference

from tests.stand_ins.kernel_cases.lora_film import example

FILM = {"N": 4, "L": 3, "m": 9, "n": 6, "r": 5, "start": 2, "kind": "scale"}
CORE = FILM | {"kind": "core"}


def test_a_row_worked_out_by_hand():
    # u = A x = (1+2, 1-2) = (3, -1); scaled (6, -3); shifted (7, -3); B u = (7, -3, 4); halved and added to y
    x, y = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[10.0, 20.0, 30.0]]])
    A, B = torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    scale, shift = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, 0.0]])
    out = lora_film(y, x, A, B, scale=scale, shift=shift, factor=0.5)
    assert out.tolist() == [[[13.5, 18.5, 32.0]]]


def test_a_core_mixes_features_by_its_rows():
    # M = [[0, 1], [2, 0]] sends (3, -1) to (-1, 6)
    u = torch.tensor([[[3.0, -1.0]]])
    assert modulate(u, core=torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])).tolist() == [[[-1.0, 6.0]]]


def test_a_diagonal_core_is_a_scale():
    arguments = example(FILM, torch.float64)
    cored = arguments | {"scale": None, "core": arguments["scale"].diag_embed(), "y": arguments["y"].clone()}
    torch.testing.assert_close(lora_film(**cored), lora_film(**arguments))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", [FILM, CORE, FILM | {"L": 1}])
def test_rows_before_the_start_come_back_bit_for_bit(case, dtype):
    arguments = example(case, dtype)
    before = arguments["y"].clone()
    out = lora_film(**arguments)
    assert torch.equal(out[:2], before[:2]) and not torch.equal(out[2:], before[2:])


@pytest.mark.parametrize("case", [FILM, CORE])
def test_a_row_alone_is_the_row_in_a_batch(case):
    arguments = example(case, torch.float64)
    whole = lora_film(**arguments | {"y": arguments["y"].clone()})
    name = case["kind"]
    for row in (2, 3):
        film = {key: arguments[key][row - 2 : row - 1] for key in (name, "shift") if key in arguments}
        alone = {"y": arguments["y"][row : row + 1].clone(), "x": arguments["x"][row : row + 1], "start": 0}
        torch.testing.assert_close(lora_film(**arguments | film | alone)[0], whole[row])


@pytest.mark.parametrize("case", [FILM, CORE, FILM | {"L": 1}, FILM | {"kind": "plain"}])
def test_what_is_added_can_be_had_alone(case):
    arguments = example(case | {"start": 0}, torch.float64)
    y, factor = arguments.pop("y"), arguments.pop("factor")
    added = low_rank(**{name: value for name, value in arguments.items() if name != "start"})
    torch.testing.assert_close(y + factor * added, lora_film(y, **arguments, factor=factor))


def test_one_row_of_modulation_serves_all():
    arguments = example(FILM | {"rows": 1}, torch.float64)
    spread = {name: arguments[name].expand(2, -1) for name in ("scale", "shift")}
    expected = lora_film(**arguments | spread | {"y": arguments["y"].clone()})
    torch.testing.assert_close(lora_film(**arguments), expected)


@pytest.mark.parametrize(
    ("case", "launches"),
    [
        (FILM | {"r": 64}, 2),
        (FILM | {"r": 65}, 0),
        (CORE | {"r": 32}, 2),
        (CORE | {"r": 33}, 0),
        (CORE | {"r": 16, "L": 40}, 2),
        (CORE | {"r": 17, "L": 40}, 0),
    ],
)
def test_ranks_that_do_not_fit_into_registers_go_through_pytorch(case, launches, monkeypatch, triton):
    monkeypatch.setenv("REWARDLAB_KERNELS", "triton")
    with importlib.import_module("rewardlab.kernels.triton_common.launch").recorded(90) as kernels:
        lora_film(**example(case, torch.bfloat16, "meta"))
    assert len(kernels) == launches


def test_without_gradients_the_sum_is_formed_in_place_and_with_them_it_is_not():
    arguments = example(FILM, torch.float32)
    y, before = arguments["y"], arguments["y"].clone()
    assert lora_film(**arguments | {"A": arguments["A"].requires_grad_()}) is not y
    assert torch.equal(y, before)
    with torch.no_grad():
        assert lora_film(**arguments) is y


def test_a_y_in_pieces_is_answered_with_new_memory():
    arguments = example(FILM, torch.float32)
    pieces = torch.stack([arguments["y"], arguments["y"]], dim=-1)[..., 0]
    torch.testing.assert_close(lora_film(**arguments | {"y": pieces}), reference(**arguments))


@pytest.mark.parametrize("kind", ["scale", "core"])
def test_modulation_may_come_in_another_precision(kind):
    arguments = example(FILM | {"kind": kind}, torch.bfloat16)
    wide = {name: arguments[name].float() for name in ("A", "B", "scale", "core", "shift") if name in arguments}
    expected = lora_film(**arguments | {"y": arguments["y"].clone()})
    assert torch.equal(lora_film(**arguments | wide), expected)


def test_autocast_chooses_the_precision_of_the_products():
    arguments = example(FILM, torch.float32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = lora_film(**arguments)
    torch.testing.assert_close(out, reference(**arguments), atol=0.2, rtol=0.05)


def test_a_wrong_use_is_told_what_is_wrong():
    arguments = example(FILM, torch.float32)
    with pytest.raises(ValueError, match="scale and core are both given"):
        lora_film(**arguments | {"core": torch.zeros(2, 5, 5)})
    with pytest.raises(ValueError, match=r"start lies in \[0, 4\], the rows of y, got 5"):
        lora_film(**arguments | {"start": 5})
    with pytest.raises(ValueError, match="1 row or 2, one for each row from start=2 on, got 3"):
        lora_film(**arguments | {"scale": torch.zeros(3, 5), "shift": None})
