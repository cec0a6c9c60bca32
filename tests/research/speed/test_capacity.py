"""The formulas of `rewardlab plan` beside what PyTorch counts and allocates."""

import pytest
import torch
from rewardlab.benchmarks.garden import models
from rewardlab.research.speed import capacity
from rewardlab.research.speed import policy as policies
from rewardlab.research.speed.capacity import BOUNDS, GUIDES, KINDS, Case
from rewardlab.research.speed.capacity.live_bytes import LiveBytes
from rewardlab.research.speed.decoding import Size as DecodingSize
from rewardlab.rm.capacity.choices import PRECISIONS
from rewardlab.rm.capacity.config_shapes import shape_of
from rewardlab.rm.capacity.flops import Answered
from rewardlab.rm.capacity.memory import Step
from rewardlab.rm.capacity.steps import step_parts
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.models.scalar import scalar_from_config
from rewardlab.rm.training.encoding import PairRow
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer, ScalarTask

from tests.conftest import needs_bfloat16_attention

FLOAT = PRECISIONS["float32"]


def test_the_tracker_counts_every_storage_once_from_its_birth_to_its_end():
    before = torch.zeros(100)
    with LiveBytes([before]) as live:
        assert (live.bytes, live.peak) == (400, 400)
        first = torch.zeros(1000)
        view = first[:10]
        second = torch.ones(500)
        assert (live.bytes, live.peak) == (6400, 6400)
        del second
        assert (live.bytes, live.peak) == (4400, 6400)
        del first
        assert live.bytes == 4400  # the view holds it
        del view
        assert live.bytes == 400
        live.restart()
        assert live.peak == 400


def test_the_tracker_sees_what_autograd_saves_and_the_gradients_it_leaves():
    weight = torch.ones(100, requires_grad=True)
    with LiveBytes([weight]) as live:
        out = (weight * 2).exp()  # exp saves its output; the product is gone
        assert live.bytes == 400 + 400
        kept = out.sum()
        del out
        assert live.bytes == 400 + 400 + 4
        kept.backward()
        del kept
        assert live.bytes == 400 + 400  # weight and gradient


def off(formula: int, counted: int) -> float:
    """By which share of what was counted the formula is too high or too low."""
    return abs(formula / counted - 1)


SMALL = capacity.Size(layers=3, width=64, mlp=160, heads=4, kv_heads=2, vocabulary=300, rank=4, rows=4, length=24)
LONG = SMALL.__class__(layers=2, width=48, mlp=96, heads=3, kv_heads=1, vocabulary=200, rank=2, rows=2, length=96)
OPERATIONS = [
    *(Case(kind, size=SMALL) for kind in KINDS),
    *(Case(kind, "llama", size=LONG) for kind in ("scalar", "arm lora", "policy")),
    *(Case(kind, "llama", attention="eager", size=SMALL) for kind in ("scalar", "arm")),
    *(Case(kind, checkpointing=True, size=SMALL) for kind in ("scalar", "scalar lora", "arm moslora")),
]


@pytest.mark.parametrize("case", OPERATIONS, ids=lambda case: f"{case.name}, {case.attention}, L={case.size.length}")
def test_operations_are_those_that_pytorch_counts(case):
    pairs = capacity.training_operations(case)
    assert len(pairs) == 2 and all(off(*pair) <= BOUNDS["operations"] for pair in pairs.values()), pairs


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_operations_of_a_token_behind_a_cache_are_those_that_pytorch_counts(architecture):
    assert off(*capacity.step_operations(Case("policy", architecture, size=SMALL))) <= BOUNDS["operations"]


BYTES = [
    *(Case(kind) for kind in KINDS),
    *(Case(kind, "llama", "bfloat16") for kind in ("scalar", "arm moslora", "policy")),
    *(Case(kind, "llama", "mixed") for kind in ("scalar lora", "arm", "policy lora")),
    *(Case(kind, "qwen3", "mixed", True) for kind in ("scalar", "arm lora", "policy")),
]


@pytest.mark.parametrize("case", BYTES, ids=lambda case: case.name)
def test_bytes_of_a_step_are_those_that_are_alive(case):
    if case.precision != "float32":
        needs_bfloat16_attention()
    assert off(*capacity.training_bytes(case)) <= BOUNDS["bytes"]


@pytest.mark.parametrize("guiding", GUIDES)
def test_bytes_of_decoding_are_those_that_are_alive(guiding):
    size = DecodingSize(layers=4, hidden=192, vocabulary=300, rank=4, tokens=32, prompt=24)
    assert off(*capacity.decoded_bytes(guiding, 8, size)) <= BOUNDS["bytes"]


def watched(trainer, rows_of) -> tuple[int, ...]:
    """The most that was alive in a step after the optimizer's first; rows and tokens of its micro-batches."""
    own, found = trainer.training_step, []

    def step(model, inputs, *more):
        if not trainer.state.global_step:
            return own(model, inputs, *more)
        ready = trainer._prepare_inputs(inputs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trainer, "_prepare_inputs", lambda _: ready)
            states = [value for state in trainer.optimizer.state.values() for value in state.values()]
            gradients = [one.grad for one in model.parameters() if one.grad is not None]
            with LiveBytes([*model.parameters(), *gradients, *states]) as live:
                live.restart()
                loss = own(model, inputs, *more)
            found.append((live.peak, *rows_of(ready)))
        return loss

    trainer.training_step = step
    trainer.train()
    return max(found)


def test_bytes_of_a_reward_models_own_trainer_are_those_that_are_alive(tmp_path):
    config = capacity.configuration(Case("scalar"))
    words = models.tokenizer()
    model = scalar_from_config(config, words, max_length=64)
    draw = torch.Generator().manual_seed(0)
    answers = torch.randint(8, 200, (16, 2, 48), generator=draw).tolist()
    rows = [PairRow(chosen, rejected[:-3], 1.0, 0.0) for chosen, rejected in answers]
    arguments = RewardArguments(str(tmp_path), per_device_train_batch_size=8, save_strategy="no", use_cpu=True)
    arguments.disable_tqdm = True
    trainer = RewardTrainer(model, arguments, ScalarTask(bradley_terry()), rows)
    peak, number, length = watched(trainer, lambda inputs: inputs["tokens"].shape)
    assert (number, length) == (16, 48)
    step = Step(number, length, Answered(scores=1), FLOAT, device="cpu")
    assert off(sum(step_parts(shape_of(config, "own"), step).values()), peak) <= BOUNDS["bytes"]


def test_bytes_of_a_policys_own_update_are_those_that_are_alive(tmp_path):
    size = policies.Size(layers=4, hidden=192, vocabulary=9200, rows=16, prompt=24, answer=48, steps=2)
    start = policies.start_in(str(tmp_path), size)
    trainer = policies.trainer("ours", size, policies.Answers(size), start, str(tmp_path / "run"))
    peak, rows, prompt, answer = watched(
        trainer, lambda batch: (*batch["prompt_ids"].shape, batch["completion_ids"].shape[1])
    )
    assert (rows, answer) == (8, 48)
    step = Step(rows, prompt + answer, Answered(rows * answer), FLOAT, padded=False, device="cpu")
    parts = step_parts(shape_of(start.config, "own"), step, accumulated=True)
    assert off(sum(parts.values()), peak) <= BOUNDS["bytes"]
