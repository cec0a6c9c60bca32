"""Plan of a job, computed from its settings: memory of each phase, time, and the largest batch that fits."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import UsageError
from .choices import PRECISIONS, Sharding, find_gpu
from .flops import Adapters, HeadOutputs, adapter_parameters
from .jobs import Decoding, Machine, Plan, Rl, decode_plan, largest_fitting, rl_plan, score_plan, train_plan
from .memory import Step
from .settings import JOBS, PlanConfig
from .shapes import Shape, find_shape

QKV = ("q_proj", "k_proj", "v_proj")


def plan_facts(config: PlanConfig) -> dict[str, Any]:
    """Return the summary of `rewardlab plan`, which is also saved as plan.json; no weights are loaded."""
    open_shape = partial(find_shape, trust_remote_code=config.trust_remote_code)
    shape = open_shape(config.model)
    sharding = Sharding(config.gpus, config.strategy)
    machine = Machine(find_gpu(config.gpu), sharding, config.mfu, config.mbu, config.reserve)
    separate = config.job == "decode" and config.guide == "separate"
    guide = open_shape(config.guide_model or config.model) if separate else None
    adapters = _adapters(config, guide or shape)
    trained = adapter_parameters(guide or shape, adapters) if adapters else 0
    batch = config.batch or JOBS[config.job]
    if config.job == "decode":
        make = partial(_decode_plan, config, shape, machine, adapters, guide)
    else:
        make = _plan_function(config, shape, machine, adapters)
    most = largest_fitting(lambda rows: make(rows).fits(machine))
    plan = make(batch)
    rounds = math.ceil(config.examples * config.epochs / plan.items)
    hours = rounds * plan.seconds / 3600
    return {
        "model": shape.name,
        "parameters": shape.parameters,
        "adapter_parameters": trained,
        "job": config.job,
        "gpu": machine.gpu.title,
        "gpus": config.gpus,
        "fits": plan.fits(machine),
        "gigabytes": _gigabytes(plan.widest.bytes),
        "room_gigabytes": _gigabytes(machine.available),
        "host_gigabytes": _gigabytes(plan.host),
        "widest": plan.widest.name,
        "batch": batch,
        "largest_batch": most,
        "seconds_per_round": round(plan.seconds, 3),
        "rounds": rounds,
        "hours": round(hours, 2),
        "gpu_hours": round(hours * config.gpus, 2),
        "phases": [
            {
                "name": phase.name,
                "gigabytes": {name: _gigabytes(size) for name, size in phase.parts.items()},
                "teraflops": round(phase.flops / 1e12, 2),
                "seconds": round(phase.seconds, 4),
                "bound": phase.bound,
            }
            for phase in plan.phases
        ],
        "assumed": {"mfu": config.mfu, "mbu": config.mbu, "reserve": config.reserve},
    }


def _plan_function(
    config: PlanConfig, shape: Shape, machine: Machine, adapters: Adapters | None
) -> Callable[[int], Plan]:
    """Return the planning function of a job (`score`, `train` or `rl`), which takes the batch size per GPU."""
    length = config.length or config.prompt + config.completion
    _check_room(shape, length)
    answer = min(config.completion, length)
    head = answer if config.job == "rl" or config.kind == "autoregressive" else 0
    precision, again = PRECISIONS[config.precision], config.gradient_checkpointing

    def step(rows: int) -> Step:
        top = HeadOutputs(rows * head, 0 if head else 1)
        return Step(rows, length, top, precision, adapters, checkpointing=again)

    if config.job == "score":
        return lambda batch: score_plan(shape, step(batch), machine)
    if config.job == "train":
        return lambda batch: train_plan(shape, step(2 * batch), machine, config.optimizer, config.accumulation)
    rewards = [find_shape(name, trust_remote_code=config.trust_remote_code) for name in config.reward_model] or [shape]
    weights, parts = PRECISIONS[config.reward_dtype].weights, (config.reference, config.critic, config.r2m)
    around = Rl(config.prompt, config.group, rewards, weights, *parts, config.accumulation)
    return lambda batch: rl_plan(shape, step(batch), around, machine, config.optimizer)


def _decode_plan(
    config: PlanConfig, shape: Shape, machine: Machine, adapters: Adapters | None, guide: Shape | None, batch: int
) -> Plan:
    _check_room(shape, config.prompt + config.completion)
    size = PRECISIONS[config.precision].compute
    work = Decoding(shape, batch, config.prompt, config.completion, size, config.guide, adapters, guide)  # type: ignore[arg-type]
    return decode_plan(work, machine)


def _adapters(config: PlanConfig, shape: Shape) -> Adapters | None:
    """Return the adapters of --adapter or --lora_r; a guide that shares the backbone always has some."""
    shares = config.job == "decode" and config.guide in ("shared", "late")
    kind = config.adapter or ("lora" if config.lora_r else "moslora" if shares else "none")
    if shares and kind == "none":
        raise UsageError(f"--guide {config.guide} is an adapter of the base model; remove --adapter none")
    if kind == "none" or config.job == "score" or (config.job == "decode" and config.guide == "none"):
        return None
    follows = config.job == "decode" or (config.job == "train" and config.kind == "autoregressive")
    targets = tuple(config.lora_target_modules) or (QKV if follows else ("all-linear",))
    targets = () if targets == ("all-linear",) else targets
    names = [linear.name for linear in shape.linears]
    if missing := [target for target in targets if target not in names]:
        raise UsageError(f"no layer of {shape.name} is called {missing[0]}; its layers are {', '.join(names)}")
    late = shape.layers * 3 // 4 if shares and config.guide == "late" else 0
    layer = late if config.from_layer is None else config.from_layer
    if not 0 <= layer < shape.layers:
        raise UsageError(f"--from_layer must lie in 0..{shape.layers - 1} for {shape.name}, got {layer}")
    rank = config.lora_r or (8 if follows else 16)
    return Adapters(rank, targets, layer, kind, config.objectives, shape.width)


def _check_room(shape: Shape, length: int) -> None:
    """Raise `UsageError` if sequences of `length` tokens exceed the positions of the model."""
    if shape.positions and length > shape.positions:
        raise UsageError(f"{shape.name} has {shape.positions} positions, too few for {length} tokens; lower the length")


def _gigabytes(size: float) -> float:
    """Return a number of bytes in gigabytes, rounded to megabytes."""
    return round(size / 1e9, 3)
