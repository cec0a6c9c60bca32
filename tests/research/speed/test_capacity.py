import pytest
import torch
from rewardlab.benchmarks.garden import models
from rewardlab.research.speed import capacity
from rewardlab.research.speed.capacity import BOUNDS, GUIDES, KINDS, Case
from rewardlab.research.speed.capacity.live_bytes import LiveBytes
from rewardlab.research.speed.decoding import Size as DecodingSize
from rewardlab.rm.capacity.choices import PRECISIONS
from rewardlab.rm.capacity.config_shapes import shape_of
from rewardlab.rm.capacity.flops import HeadOutputs
from rewardlab.rm.capacity.memory import Step, step_parts
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.kinds.scalar.training import PairRow, ScalarTask
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer

from tests.conftest import needs_bfloat16_attention

FLOAT = PRECISIONS["float32"]


def off(formula: int, counted: int) -> float:
    """By which share of what was counted the formula is too high or too low."""
    return abs(formula / counted - 1)


SMALL = capacity.Size(layers=3, width=64, mlp=160, heads=4, kv_heads=2, vocabulary=300, rank=4, rows=4, length=24)
LONG = SMALL.__class__(layers=2, width=48, mlp=96, heads=3, kv_heads=1, vocabulary=200, rank=2, rows=2, length=96)
OPERATIONS = [
    *(Case(kind, size=SMALL) for kind in KINDS),
    Case("policy", "llama", size=LONG),
    Case("arm", "llama", attention="eager", size=SMALL),
    Case("scalar lora", checkpointing=True, size=SMALL),
]


def test_operations_are_those_that_pytorch_counts_also_behind_a_cache():
    for case in OPERATIONS:
        pairs = capacity.training_operations(case)
        assert len(pairs) == 2 and all(off(*pair) <= BOUNDS["operations"] for pair in pairs.values()), (case, pairs)
    for architecture in ["qwen3", "llama"]:
        assert off(*capacity.step_operations(Case("policy", architecture, size=SMALL))) <= BOUNDS["operations"]


FAST = [Case("scalar"), Case("arm moslora", "llama", "bfloat16"), Case("policy lora", "llama", "mixed")]
FAST += [Case("arm lora", "qwen3", "mixed", True)]
BYTES = [*map(Case, KINDS), Case("scalar lora", "llama", "mixed"), Case("policy", "qwen3", "mixed", True)]
SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in BYTES if case not in FAST]


@pytest.mark.parametrize("case", [*FAST, *SLOW], ids=lambda case: case.name)
def test_bytes_of_a_step_are_those_that_are_alive(case):
    if case.precision != "float32":
        needs_bfloat16_attention()
    assert off(*capacity.training_bytes(case)) <= BOUNDS["bytes"]


@pytest.mark.parametrize(
    "guiding", ["late", *(pytest.param(guiding, marks=pytest.mark.slow) for guiding in GUIDES[::3])]
)
def test_bytes_of_decoding_are_those_that_are_alive(guiding):
    size = DecodingSize(layers=4, hidden=192, vocabulary=300, rank=4, tokens=32, prompt=24)
    assert off(*capacity.decoded_bytes(guiding, 8, size)) <= BOUNDS["bytes"]


def watched(trainer) -> tuple[int, ...]:
    """The most that was alive in a step after the optimizer's first; rows and tokens of its batch."""
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
            found.append((live.peak, *ready["tokens"].shape))
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
    peak, number, length = watched(trainer)
    assert (number, length) == (16, 48)
    step = Step(number, length, HeadOutputs(scores=1), FLOAT, device="cpu")
    assert off(sum(step_parts(shape_of(config, "own"), step).values()), peak) <= BOUNDS["bytes"]
