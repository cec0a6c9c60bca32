"""What the Triton kernels promise beyond the folder's common test; all in the interpreter."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from rewardlab.kernels import guided_sampler as sampling
from rewardlab.kernels import philox
from rewardlab.kernels.guided_sampler import Sampled, reference
from torch import Tensor

triton = pytest.importorskip("triton", reason="triton is not installed")
import triton.language as tl  # noqa: E402
from rewardlab.kernels import triton_common as fused  # noqa: E402
from rewardlab.kernels.guided_sampler import triton_truncated as cut_rows  # noqa: E402
from rewardlab.kernels.guided_sampler.triton import fused as sampler  # noqa: E402
from rewardlab.kernels.triton_common import launch as launching  # noqa: E402
from rewardlab.kernels.triton_common.launch import launch, recorded  # noqa: E402
from rewardlab.kernels.triton_common.tiles import gumbel  # noqa: E402

from tests.stand_ins.kernel_cases.guided_sampler import example  # noqa: E402

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here: test_gpu.py")
FOLDER = Path(fused.__path__[0])
SOURCES = {
    f"{file.parent.name}/{file.stem}": file.read_text()
    for file in [*FOLDER.glob("*.py"), *FOLDER.parent.glob("*/triton*.py")]
}


# ---- the source ----


def test_products_have_one_door_and_nothing_is_tuned_at_run_time():
    for name, text in SOURCES.items():
        assert name == "triton_common/tiles" or "tl.dot(" not in text, (
            f"{name}: the interpreter multiplies bfloat16's bit patterns"
        )
        assert not re.search(r"autotune|libdevice|log1p\(|to_tensor|e-3[89]|~\w", text), (
            f"{name}: not in every interpreter"
        )
        assert name == "triton_common/launch" or not re.search(r"\]\(\w", text.replace("[offset](", "")), (
            f"{name}: start by `launch`"
        )


def test_a_launch_finds_every_global_of_a_kernel_as_it_was_compiled():
    names = [name.replace("/", ".") for name in SOURCES if not name.endswith("__init__")]
    for module in (importlib.import_module(f"rewardlab.kernels.{name}") for name in names):
        for name, value in vars(module).items():
            if isinstance(value, tl.constexpr):
                assert value == value, f"{module.__name__}: Triton compares {name} at a launch, and NaN is not NaN"


# ---- random numbers ----


@triton.jit
def write_gumbels(words, out, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, gumbel(tl.load(words + place).to(tl.uint32)))


def numbers(words: Tensor) -> Tensor:
    """`tiles.gumbel` of some words."""
    out = torch.empty(len(words))
    launch(write_gumbels, (1,), words=words, out=out, BLOCK=len(words))
    return out


def test_gumbels_are_those_of_float64_from_end_to_end():
    spread = torch.linspace(0, 2**32 - 1, 960, dtype=torch.float64).long()
    ends = torch.tensor(
        [*range(16), *(2**26 + step for step in range(-16, 16)), *(2**32 - 1 - step for step in range(16))]
    )
    words = torch.cat([spread, ends])
    torch.testing.assert_close(numbers(words).double(), philox.gumbel(words), atol=4e-6, rtol=0)


def test_a_cell_of_one_in_ten_million_wins_as_often_as_it_should():
    """It wins where E < 1e-7 E', E' the rest's: with probability 1e-7 / (1 + 1e-7) over E'."""
    low = (-numbers(torch.arange(8192)).double()).exp().numpy()  # E of the words from below, in order
    rest = -np.log1p(-(np.arange(20_000) + 0.5) / 20_000)  # E' at its quantiles
    chance = np.searchsorted(low, 1e-7 * rest).mean() / 2**32
    assert chance == pytest.approx(1e-7, rel=0.01)


# ---- the sampler ----


def of_rows(arguments: dict, rows: slice | list[int]) -> dict:
    return {name: one[rows] for name, one in arguments.items()}


def assert_same_bits(sampled: Sampled, rows: list[int], other: Sampled, others: list[int]) -> None:
    for one, two in zip(sampled, other, strict=True):
        assert torch.equal(one[rows], two[others])


def test_a_row_has_the_same_bits_in_any_batch_beside_cut_and_uncut_rows():
    """Rows 3 and 6 are not cut, 3 is greedy."""
    arguments = example({"N": 7, "G": 1, "V": 300, "truncated": True}, torch.bfloat16)
    together = sampler(**arguments)
    for rows in ([6, 2, 3], [1]):
        assert_same_bits(sampler(**of_rows(arguments, rows)), [*range(len(rows))], together, rows)
    plain = {name: value for name, value in arguments.items() if name not in ("top_k", "top_p", "min_p")}
    uncut = sampler(**plain)
    assert_same_bits(uncut, [3, 6], together, [3, 6])
    assert (together.logprob != uncut.logprob)[:3].any()


def test_cut_rows_change_neither_the_kernels_of_other_rows_nor_their_warps():
    """The interpreter has no warps: what it cannot show is shown by what would be compiled."""
    settings = []
    for case in ({}, {"truncated": True}):
        with recorded(90) as launches:
            sampler(**example({"N": 3, "G": 1, "V": 5000} | case, torch.bfloat16, "meta"))
        settings.append([
            (start.kernel, start.options, {name: value if not isinstance(value, Tensor) else value.dtype
                                           for name, value in start.arguments.items()})
            for start in launches[:2]
        ])  # fmt: skip
    assert settings[0] == settings[1]


@pytest.mark.parametrize("truncated", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_number_of_splits_changes_no_token(truncated):
    arguments = example({"N": 3, "G": 1, "V": 2100, **({"truncated": True} if truncated else {})}, torch.bfloat16)
    expected = sampler(**arguments)
    split = sampler(**arguments, span=3)
    assert torch.equal(split.token, expected.token)
    for one, other in zip(split[1:], expected[1:], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


@pytest.mark.long
@pytest.mark.parametrize("truncated", [False, True])
def test_a_real_vocabulary_is_sampled_as_the_definition_does(truncated):
    arguments = example({"N": 4, "G": 2, "V": 128256, **({"truncated": True} if truncated else {})}, torch.bfloat16)
    exact = {name: one.double() if one.is_floating_point() else one for name, one in arguments.items()}
    out, truth = sampler(**arguments), reference(**exact)
    assert torch.equal(out.token, truth.token)
    for one, other in zip(out[1:], truth[1:], strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=0)


def no_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_rows, "sample_from_all", lambda *_: pytest.fail("a cut row was read as a whole"))


@pytest.mark.slow
def test_cut_rows_of_a_real_vocabulary_are_sample_from_few_tokens(monkeypatch):
    no_whole_rows(monkeypatch)
    arguments = example({"N": 2, "G": 1, "V": 128256, "peaked": True}, torch.bfloat16)
    arguments |= {"temperature": torch.full((2,), 0.8), "top_p": torch.tensor([0.9, 1.0])}
    arguments |= {"top_k": torch.tensor([0, 50]), "min_p": torch.tensor([0.0, 0.05])}
    exact = {name: value.double() if value.is_floating_point() else value for name, value in arguments.items()}
    out, truth = sampler(**arguments), reference(**exact)
    assert torch.equal(out.token, truth.token)
    for one, other in zip(out[1:], truth[1:], strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=0)


LIMITS = {"top_k": [5, 0, 0, 9, 0, 40], "top_p": [1, 0.8, 1, 0.7, 0.95, 0.999], "min_p": [0, 0, 0.02, 0.01, 0.9, 0]}


@pytest.mark.parametrize("spread", [3.0, pytest.param(0.05, marks=pytest.mark.slow)])
def test_peaked_and_flat_rows_are_drawn_as_the_definition_does(spread, monkeypatch):
    arguments = example({"N": 6, "G": 1, "V": 1100}, torch.float32)
    arguments |= {"base": arguments["base"] * spread / 3, "guides": arguments["guides"] * spread / 3}
    arguments |= {"temperature": torch.tensor([1.0, 0.7, 1.5, 0.0, 1.0, 0.3])}
    arguments |= {name: torch.tensor(values) for name, values in LIMITS.items()}
    truth = reference(**arguments)
    whole_rows, sample_from_all = [], cut_rows.sample_from_all
    monkeypatch.setattr(cut_rows, "CAPACITY", 1)
    monkeypatch.setattr(cut_rows, "sample_from_all", lambda *given: whole_rows.append(1) or sample_from_all(*given))
    whole = sampler(**arguments)
    assert whole_rows
    monkeypatch.undo()
    no_whole_rows(monkeypatch)
    out = sampler(**arguments)
    assert_same_bits(out, [*range(6)], whole, [*range(6)])
    for one, true in zip(out, truth, strict=True):
        torch.testing.assert_close(one, true, atol=2e-5, rtol=0)


def test_the_order_in_which_tokens_are_collected_changes_no_bit(monkeypatch):
    """Programs of a GPU append in any order."""
    arguments = example({"N": 3, "G": 0, "V": 1100}, torch.float32)
    arguments |= {"base": arguments["base"] / 60, "temperature": torch.full((3,), 0.7)}
    arguments |= {"top_p": torch.full((3,), 0.7), "top_k": torch.tensor([0, 300, 800])}
    numbers = []

    def shuffled(kernel, grid, **given):
        if kernel is cut_rows.draw:
            for row, number in enumerate(given["histogram"][:, -1].tolist()):
                order = torch.randperm(number, generator=torch.Generator().manual_seed(0))
                for name in ("tokens", "depths"):
                    given[name][row, :number] = given[name][row, order]
                numbers.append(number)
        launch(kernel, grid, **given)

    expected = sampler(**arguments)
    monkeypatch.setattr(cut_rows, "launch", shuffled)
    assert_same_bits(sampler(**arguments), [0, 1, 2], expected, [0, 1, 2])
    assert min(numbers) > 10


def test_fewer_tokens_than_top_k_are_all_within_it():
    base = torch.full((4, 40), -torch.inf)
    base[:, 3:8] = torch.tensor([0.4, 0.3, 0.2, 0.06, 0.04]).log()
    arguments = {"temperature": torch.ones(4), "seed": torch.arange(4), "position": torch.arange(4)}
    arguments |= {"top_k": torch.full((4,), 10), "top_p": torch.full((4,), 0.85)}
    out, truth = (one(base, base[:, None, :][:, :0], base[:, :0], **arguments) for one in (sampler, reference))
    assert torch.equal(out.token, truth.token) and out.token.unique().numel() > 1
    torch.testing.assert_close(out.logprob, truth.logprob, atol=2e-5, rtol=0)


def test_rows_beyond_two_thousand_million_logits_are_found(tmp_path):
    """A sparse file of 4.3 GB stands for a buffer whose second row begins behind 2³¹ elements."""
    step, vocabulary = 2**31 + 16, 300
    file = np.memmap(tmp_path / "logits", dtype=np.float16, mode="w+", shape=(step + vocabulary,))
    logits = torch.from_numpy(file).as_strided((2, vocabulary), (step, 1))
    logits.copy_(torch.randn(2, vocabulary, generator=torch.Generator().manual_seed(0)))
    options = {"temperature": torch.ones(2), "seed": torch.zeros(2).long(), "position": torch.zeros(2).long()}
    for arguments in (
        (logits, logits.new_zeros(2, 0, vocabulary), torch.zeros(2, 0)),
        (logits.contiguous(), logits[:, None], torch.ones(2, 1)),
    ):
        truth = reference(*(one.float() for one in arguments), **options)
        assert torch.equal(sampler(*arguments, **options).token, truth.token)


def test_a_mask_of_every_token_gives_nan_and_leaves_the_others_alone():
    arguments = example({"N": 3, "G": 1, "V": 40}, torch.float32)
    arguments["base"][1] = -torch.inf
    out = sampler(**arguments)
    assert 0 <= out.token[1] < 40 and out.guided[1].isnan() and out.entropy[1].isnan()
    truth = reference(**of_rows(arguments, [0, 2]))
    assert torch.equal(out.token[[0, 2]], truth.token)


def test_nothing_waits_for_the_device():
    """Tensors without data would not survive it."""
    with recorded(90) as launches:
        out = sampler(**example({"N": 3, "G": 2, "V": 500, "truncated": True}, torch.bfloat16, "meta"))
    assert isinstance(out, Sampled) and out.token.is_meta
    assert [start.kernel.__name__ for start in launches] == ["scan_cells", "finish", "count", "collect", "draw"]
    assert launches[0].arguments["CELL"] == sampling.CELL


# ---- launching ----


def test_a_kernel_is_launched_on_the_device_of_its_tensors(monkeypatch):
    """Current is another one where a model lies on cuda:1; here devices are numbers that only the guard knows."""
    events = []

    class Guard:
        def __init__(self, tensor):
            self.tensor = tensor

        def __enter__(self):
            events.append(self.tensor)

        def __exit__(self, *_):
            events.append("left")

    class Kernel:
        def __getitem__(self, grid):
            return lambda **given: events.append(grid)

    monkeypatch.setattr(launching.torch.cuda, "device_of", Guard)
    x = torch.zeros(3)
    launch(Kernel(), (2,), n=1, x=x)
    assert events[0] is x and events[1:] == [(2,), "left"]
