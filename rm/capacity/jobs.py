"""Phases of training, policy training, guided decoding and scoring: memory on a GPU, and seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .choices import PRECISIONS, Gpu, Precision, Sharding, compute_seconds, read_seconds
from .flops import (
    Adapters,
    HeadOutputs,
    adapter_flops,
    adapter_parameters,
    attention_flops,
    forward_flops,
    linear_flops,
    training_flops,
)
from .memory import WIDE, Parts, Step, cache_bytes, inference_bytes, resident_parts, step_parts, weight_bytes
from .shapes import Shape

Guiding = Literal["none", "shared", "late", "separate"]
SAMPLING = 3  # float32 copies of a row's logits during sampling: base, guide, mixture


class Decoding(NamedTuple):
    """A batch of completions of equal length."""

    shape: Shape
    rows: int
    prompt: int
    completion: int
    size: int
    """Bytes per number."""
    guiding: Guiding = "none"
    adapters: Adapters | None = None
    """Adapters of a guide on the same backbone: one forward of 2 N rows, or of N rows in layers below `from_layer`."""
    guide: Shape | None = None
    """Shape of a guide (autoregressive reward model) with separate weights."""
    held: bool = True
    """Whether the weights are part of this estimate."""

    @property
    def positions(self) -> int:
        """Positions of a finished completion, prompt included."""
        return self.prompt + self.completion

    @property
    def branches_at(self) -> int:
        """First layer that is also computed for a guide on the same backbone; the number of layers if there is none."""
        if self.guiding == "shared":
            return 0
        return self.adapters.from_layer if self.guiding == "late" and self.adapters else self.shape.layers

    @property
    def row_layers(self) -> int:
        """Number of rows times layers of the backbone:  N (layers + layers that the guide runs again)."""
        return self.rows * (2 * self.shape.layers - self.branches_at)

    @property
    def models(self) -> tuple[Shape, ...]:
        """Models with separate weights."""
        return (self.shape, self.guide) if self.guide else (self.shape,)

    @property
    def n_models(self) -> int:
        """Number of models that compute logits for each row."""
        return 1 if self.guiding == "none" else 2


def all_cache_bytes(work: Decoding, positions: int) -> int:
    """Return the bytes of keys and values at S positions:  2 G d c S (rows · layers) for each model (see `memory`)."""
    total = cache_bytes(work.shape, work.row_layers, positions, work.size, layers=1)
    return total + (cache_bytes(work.guide, work.rows, positions, work.size) if work.guide else 0)


def decoding_weight_bytes(work: Decoding) -> int:
    """Return the bytes of all weights: backbone, adapter and separate guide; a shared backbone counts once."""
    adapter_bytes = adapter_parameters(work.guide or work.shape, work.adapters) * WIDE if work.adapters else 0
    return work.shape.parameters * work.size + adapter_bytes + (work.guide.parameters * work.size if work.guide else 0)


def decoding_bytes(work: Decoding) -> dict[str, int]:
    """Return the bytes by part at the larger of two peaks; the cache has its full size from the start.

    prefill   a layer's peak over all prompts
    end       logits of all rows and models
    """
    doubled = work.rows * (2 if work.branches_at < work.shape.layers else 1)
    read = Step(doubled, work.prompt, HeadOutputs(doubled), Precision(work.size, work.size))
    logits = work.rows * work.shape.vocabulary * (work.n_models * work.size + SAMPLING * WIDE)
    reading = max(inference_bytes(model, read) for model in work.models)
    weights = {"weights": decoding_weight_bytes(work)} if work.held else {}
    peak = {"workspace": reading} if reading > logits else {"head and logits": logits}
    return weights | {"KV cache": all_cache_bytes(work, work.positions)} | peak


def decoding_read_bytes(work: Decoding) -> int:
    """Return the bytes read to decode one token of every row: all weights in use, and the half-full cache."""
    weights = sum(work.size * model.trunk for model in work.models)  # only one of embedding and head is read in full
    return weights + all_cache_bytes(work, work.prompt + work.completion // 2)


def decoding_flops(work: Decoding) -> tuple[int, int]:
    """Return the operations of the prefill, and of decoding one token of every row with a half-full cache."""
    half = work.prompt + work.completion // 2
    return _pass_flops(work, work.prompt, 0), _pass_flops(work, 1, half)


def _pass_flops(work: Decoding, length: int, cached: int) -> int:
    """Return the operations of `length` new positions of all rows, base and guide; the head reads the last position."""
    tokens = length * work.rows
    layer = length * linear_flops(work.shape) + attention_flops(work.shape, length, cached + length)
    heads = 2 if work.branches_at < work.shape.layers else 1
    flops = work.row_layers * layer + heads * 2 * work.shape.width * work.shape.vocabulary * work.rows
    if work.adapters:
        guide = work.guide or work.shape
        adapted = guide.layers - work.adapters.from_layer
        flops += adapted * tokens * adapter_flops(work.adapters, work.adapters.linears(guide))
    if work.guide:
        flops += forward_flops(work.guide, work.rows, length, HeadOutputs(work.rows), cached=cached)
    return flops


MOST = 2**20  # upper limit of the search for a number of rows


@dataclass(frozen=True)
class Machine:
    """Type and number of GPUs, strategy, and assumed utilisation."""

    gpu: Gpu
    sharding: Sharding
    mfu: float
    """Model FLOPs utilisation: share of the peak operations per second that is reached."""
    mbu: float
    """Model bandwidth utilisation: share of the memory bandwidth that is reached in decoding."""
    reserve: float
    """Share of memory reserved for the CUDA context, communication and fragmentation."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for shares out of range."""
        for name, utilisation in (("mfu", self.mfu), ("mbu", self.mbu)):
            if not 0 < utilisation <= 1:
                raise ValueError(f"{name} must lie in (0, 1], got {utilisation}")
        if not 0 <= self.reserve < 1:
            raise ValueError(f"reserve must lie in [0, 1), got {self.reserve}")

    @property
    def available(self) -> float:
        """Bytes available to tensors:  memory (1 - reserve)."""
        return self.gpu.memory * 1e9 * (1 - self.reserve)

    def computing(self, flops: float, step: Step) -> float:
        """Return the seconds for a number of operations."""
        return compute_seconds(flops, self.gpu, self.mfu, narrow=step.precision.compute < WIDE)


class Phase(NamedTuple):
    """A phase of a plan: memory and seconds on one GPU."""

    name: str
    parts: Parts
    flops: int
    seconds: float
    bound: Literal["operations", "memory"] = "operations"

    @property
    def bytes(self) -> int:
        """Peak memory."""
        return sum(self.parts.values())


class Plan(NamedTuple):
    """Phases and sizes of one round (an optimizer step, or a batch) on all GPUs."""

    phases: tuple[Phase, ...]
    items: float
    """Pairs, prompts or conversations per round, over all GPUs."""
    host: int = 0
    """Host memory that grows with the batch, in bytes per process."""

    @property
    def widest(self) -> Phase:
        """The phase with the largest peak memory."""
        return max(self.phases, key=lambda phase: phase.bytes)

    @property
    def seconds(self) -> float:
        """Seconds per round."""
        return sum(phase.seconds for phase in self.phases)

    def fits(self, machine: Machine) -> bool:
        """Return whether every GPU has enough memory."""
        return self.widest.bytes <= machine.available


def largest_fitting(fits: Callable[[int], bool], most: int = MOST) -> int:
    """Return the largest number up to `most` that fits, or 0; if n fits, all smaller numbers must fit too.

    >>> largest_fitting(lambda n: n * n <= 50), largest_fitting(lambda n: False)
    (7, 0)
    """
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def train_plan(shape: Shape, step: Step, machine: Machine, optimizer: str, accumulation: int = 1) -> Plan:
    """Plan an optimizer step of a reward model; rows of `step` are the chosen and rejected completions."""
    parts = step_parts(shape, step, machine.sharding, optimizer, accumulated=accumulation > 1)
    flops = accumulation * _training_flops(shape, step)
    update = Phase("step", parts, flops, machine.computing(flops, step))
    return Plan((update,), step.rows / 2 * accumulation * machine.sharding.gpus)


def score_plan(shape: Shape, step: Step, machine: Machine) -> Plan:
    """Plan a batch through a scalar reward model; every GPU has the complete model and different rows."""
    return Plan((_forward_phase("score", {}, shape, step, step.rows, machine),), step.rows * machine.sharding.gpus)


def decode_plan(work: Decoding, machine: Machine) -> Plan:
    """Plan a batch of completions; every GPU has the complete models and different prompts."""
    phase = _decoding_phase("decode", {}, work, machine, narrow=work.size < WIDE)
    return Plan((phase,), work.rows * machine.sharding.gpus)


class Rl(NamedTuple):
    """Reward models, reference model and further settings of policy training."""

    prompt: int
    group: int
    rewards: Sequence[Shape] = ()
    reward_size: int = WIDE
    """Bytes per weight of a reward model."""
    reference: bool = True
    critic: bool = False
    feedback: bool = False
    """R2M: the first reward model's head reads the policy's states and is trained."""
    accumulation: int = 1


def rl_plan(shape: Shape, step: Step, work: Rl, machine: Machine, optimizer: str) -> Plan:
    """Plan an optimizer step of a policy: completions, rewards, reference log-probabilities, update.

    Every GPU has complete reward models. The reference is a frozen copy, or the policy with disabled adapters. Sharded
    weights are gathered for generation, under autocast in float32; keys and values are assumed to have the same
    precision.
    """
    sharding, rollouts = machine.sharding, step.rows * work.accumulation
    own_parts = resident_parts(shape, step, sharding, optimizer)
    others = auxiliary_bytes(shape, step, work, sharding)
    around = own_parts | others
    gathered = {"sharding": weight_bytes(shape, step)} if sharding.shares > 1 else {}
    writing = Decoding(shape, rollouts, work.prompt, step.length - work.prompt, step.precision.weights, held=False)
    narrow = step.precision.compute < WIDE
    phases = [_decoding_phase("completions", around | gathered, writing, machine, narrow=narrow)]
    reads = int(work.reference) + int(work.critic or work.feedback)
    if reads:
        states = {"states": 2 * rollouts * step.length * shape.width * step.precision.weights}
        phases.append(_forward_phase("log-probabilities", around | states, shape, step, rollouts, machine, times=reads))
    phases += [_reward_phase(reward, around, step, rollouts, work, machine) for reward in work.rewards]
    flops = work.accumulation * _training_flops(shape, step)
    parts = step_parts(shape, step, sharding, optimizer, accumulated=work.accumulation > 1) | others
    phases.append(Phase("update", parts, flops, machine.computing(flops, step)))
    host = rollouts * step.length * shape.width * 2 if work.feedback else 0
    return Plan(tuple(phases), rollouts * sharding.gpus / work.group, host)


def auxiliary_bytes(shape: Shape, step: Step, work: Rl, sharding: Sharding) -> dict[str, int]:
    """Return the bytes of reward models, reference, critic and R2M head, beside the policy of width D.

    critic    4 (D + 1) numbers: weight, gradient and AdamW's two states, in float32
    R2M       4 (2 D_r d + 2 D d) numbers with d = D: W_q, W_o [D_r, d] and W_k, W_v [D, d]        arXiv:2601.22664
    """
    parts = {"reward models": sum(work.reward_size * (reward.trunk + reward.width) for reward in work.rewards)}
    if work.reference and step.adapters is None:
        parts["reference"] = shape.parameters * step.precision.weights // sharding.shares
    if work.critic:
        parts["critic"] = 4 * WIDE * (shape.width + 1)
    if work.feedback:
        parts["R2M head"] = 4 * WIDE * 2 * shape.width * (work.rewards[0].width + shape.width)
    return {name: part for name, part in parts.items() if part}


def _training_flops(shape: Shape, step: Step) -> int:
    return training_flops(shape, step.rows, step.length, step.top, step.adapters, checkpointing=step.checkpointing)


def _forward_phase(
    name: str, resident: Parts, shape: Shape, step: Step, rows: int, machine: Machine, *, times: int = 1
) -> Phase:
    """Return a forward phase without gradients over `rows` rows in the step's batches; `resident` is in bytes."""
    parts = {"weights": weight_bytes(shape, step)} if not resident else dict(resident)
    share = rows / step.rows
    top = step.top._replace(head_tokens=int(step.top.head_tokens * share))
    flops = times * forward_flops(shape, rows, step.length, top, step.adapters)
    return Phase(name, parts | {"workspace": inference_bytes(shape, step)}, flops, machine.computing(flops, step))


def _reward_phase(reward: Shape, resident: Parts, step: Step, rollouts: int, work: Rl, machine: Machine) -> Phase:
    precision = PRECISIONS["bfloat16" if work.reward_size < WIDE else "float32"]
    rows = min(rollouts, max(1, 16_384 // step.length))  # as in `ScalarRewardModel.rate`
    read = Step(rows, step.length, HeadOutputs(scores=1), precision)
    return _forward_phase(f"rewards of {reward.name}", resident, reward, read, rollouts, machine)


def _decoding_phase(name: str, resident: Parts, work: Decoding, machine: Machine, *, narrow: bool) -> Phase:
    """Return a phase of prefill and decoding; the time per token is the longer of computation and memory access."""
    prefill, each = decoding_flops(work)
    parts = dict(resident)
    for part, size in decoding_bytes(work).items():
        parts[part] = parts.get(part, 0) + size
    computing = compute_seconds(each, machine.gpu, machine.mfu, narrow=narrow)
    reading = read_seconds(decoding_read_bytes(work), machine.gpu, machine.mbu)
    seconds = compute_seconds(prefill, machine.gpu, machine.mfu, narrow=narrow)
    seconds += work.completion * max(computing, reading)
    bound = "memory" if reading > computing else "operations"
    return Phase(name, parts, prefill + work.completion * each, seconds, bound)
