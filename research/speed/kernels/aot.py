"""Registers, spills, shared memory and instructions of every kernel, compiled for GPUs without one.

    python -m rewardlab.research.speed kernels --compile

Two lists are compiled. Every operation launches its kernels on tensors without data, for the sizes in DRY_RUNS of its
file, for sm_80 and sm_90. And every case of the tables that are measured on a GPU is run so for sm_90. Each launch is
compiled as on such a device, once for its types, constants and alignments: other numbers do not change the code.
Triton's cache keeps what is compiled, so that a second run only counts instructions.

`--check FILE` compares with a committed table and fails (exit code 5) if a kernel spills more, does not fit, or lost
its wide loads or its matrix instructions; `--output FILE` writes a table. Nothing is run: times are lower bounds.
"""

import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from tqdm import tqdm
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ....kernels import triton_common
from ....kernels.triton_common.launch import Launch, recorded
from ....rm.capacity.choices import GPUS
from ....rm.io.markdown import table as markdown_table
from .._scripts import machine, write
from . import TABLES
from .timing import Size
from .work import Run, issue_seconds, kernel_name, least_seconds, planned_runs, planned_trials, refuse_interpreter

CAPABILITIES = (80, 90)
REGISTERS, WARPS, PROGRAMS = 65_536, 64, 32
"""Of a multiprocessor of capability 8.0 or 9.0: registers, and the most warps and programs at a time."""
SHARED, OF_A_PROGRAM, RESERVED = {80: 167_936, 90: 233_472}, {80: 166_912, 90: 232_448}, 1024
"""Bytes of shared memory of a multiprocessor, the most of a program, and what each takes beside its own.

NVIDIA CUDA C++ Programming Guide 12.9, "Technical Specifications per Compute Capability".
"""
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
POINTERS = {
    torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32", torch.float64: "*fp64",
    torch.int64: "*i64", torch.int32: "*i32", torch.bool: "*i1",
}  # fmt: skip
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d+ )?([A-Z][A-Z0-9_.]*)([^;]*);")
WIDEST = ".128"
STREAMED = {
    **{"guided_sampler.scan_cells": "base", "policy_loss.sequence_loss": "logprob", "discounted_scan.scan": "x"},
    **{"linear_logprob.stream_forward": "a", "linear_logprob.stream_backward": "a"},
}
"""Tensor whose elements a kernel's loop goes through once, with the instructions `per_element`."""


@dataclass(frozen=True)
class Row:
    """One compiled kernel: registers a thread, bytes of shared memory a program, counts of instructions."""

    registers: int
    shared: int
    spills: int
    """Loads and stores of local memory."""
    instructions: int
    per_element: float | None
    """Instructions of the longest loop (without a loop, of the kernel) times threads, per element that it handles."""
    wide_loads: int
    """Of 16 bytes a thread."""
    wgmma: int
    """Hopper's matrix instructions."""
    warps: int
    """That a multiprocessor holds at a time; 0: its shared memory is too small for a program."""


def operations() -> list[str]:
    """Return the packages of `kernels` that have Triton kernels to compile."""
    names = [path.parent.name for path in sorted(Path(triton_common.__path__[0]).parent.glob("*/triton.py"))]
    return [name for name in names if hasattr(_fused(name), "DRY_RUNS")]


def dry_run(name: str, capability: int) -> list[Launch]:
    """Record every launch of an operation's kernels on tensors without data, forward and, if it exists, backward."""
    module = _fused(name)
    cases = importlib.import_module(f"....tests.stand_ins.kernel_cases.{name}", __package__)
    with recorded(capability) as launches:
        for case in module.DRY_RUNS:
            arguments = cases.example(case, torch.bfloat16, "meta")
            getattr(module, "dry_run", lambda given: module.fused(**given))(arguments)
    return launches


def launches(runs: Sequence[Run]) -> Iterator[tuple[str, int, Launch]]:
    """Yield operation, capability and launch of everything that is compiled, the tables' at the end."""
    for name in operations():
        for capability in CAPABILITIES:
            yield from ((name, capability, launch) for launch in dry_run(name, capability))
    for run in runs:
        yield from ((kernel_name(launch).split(".")[0], 90, launch) for launch in run.launches)


def table(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Return a row for every distinct compilation, by operation, kernel, capability, constants and types."""
    rows: dict[str, dict[str, Any]] = {}
    for name, capability, launch in tqdm(list(launches(runs)), desc="compile", disable=None):
        if (key := row_key(launch, capability)) not in rows:
            rows[key] = asdict(compiled(launch, capability, getattr(_fused(name), "ELEMENTS", {})))
    return rows


def row_key(launch: Launch, capability: int) -> str:
    """Return what distinguishes compilations: kernel, constants, warps, stages, types, and what 16 does not divide."""
    types, constants, attributes = signature(launch)
    named = [name for name in launch.kernel.arg_names if name.isupper() and name in constants]
    dtypes = ",".join(dict.fromkeys(kind[1:] for kind in types.values() if kind.startswith("*")))
    odd = [
        parameter.name
        for index, parameter in enumerate(launch.kernel.params)
        if not parameter.do_not_specialize
        and types[parameter.name].startswith(("*", "i"))
        and (index,) not in attributes
    ]
    odd += [f"{name}=1" for name in constants if not name.isupper()]
    return " ".join([
        kernel_name(launch), *(f"{name}={constants[name]}" for name in named),
        f"w{launch.options['num_warps']} s{launch.options['num_stages']} {dtypes} sm_{capability}",
        *([f"odd {','.join(odd)}"] if odd else []),
    ])  # fmt: skip


def signature(launch: Launch) -> tuple[dict[str, str], dict[str, Any], dict[tuple[int, ...], Any]]:
    """Return types, constants and alignments of a launch, as Triton specialises them."""
    types, constants, attributes = {}, {}, {}
    for index, parameter in enumerate(launch.kernel.params):
        value = launch.arguments[parameter.name]
        if parameter.is_constexpr or (type(value) is int and value == 1 and not parameter.do_not_specialize):
            types[parameter.name], constants[parameter.name] = "constexpr", value
            continue
        types[parameter.name] = _type(value)
        aligned = value.data_ptr() % 16 == 0 if isinstance(value, Tensor) else type(value) is int and value % 16 == 0
        if aligned and not parameter.do_not_specialize:
            attributes[(index,)] = [["tt.divisibility", 16]]
    return types, constants, attributes


def compiled(launch: Launch, capability: int, elements: Mapping[str, str]) -> Row:
    """Compile a launch for a device of the given capability and count its instructions."""
    types, constants, attributes = signature(launch)
    source = ASTSource(launch.kernel, types, constants, attributes)
    binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=dict(launch.options))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        usage, sass = (_tool(option, file.name) for option in ("--dump-resource-usage", "-sass"))
    code = [(int(address, 16), name, rest) for address, name, rest in INSTRUCTION.findall(sass)]
    names = [name for _, name, _ in code if name != "NOP"]
    registers = int(re.search(r"REG:(\d+)", usage)[1])  # pyright: ignore[reportOptionalSubscript]
    size = constants.get(elements.get(launch.kernel.__name__, ""))
    threads = 32 * launch.options["num_warps"]
    return Row(
        registers=registers,
        shared=binary.metadata.shared,
        spills=sum(name.startswith(("LDL", "STL")) for name in names),
        instructions=len(names),
        per_element=None if size is None else round(_longest_loop(code) * threads / size, 1),
        wide_loads=sum(name.startswith("LDG") and WIDEST in name for name in names),
        wgmma=sum("GMMA" in name for name in names),
        warps=resident_warps(registers, binary.metadata.shared, launch.options["num_warps"], capability),
    )


def resident_warps(registers: int, shared: int, warps: int, capability: int) -> int:
    """Return how many warps of a kernel a multiprocessor holds; a thread's registers are taken in steps of 8.

    >>> resident_warps(232, 4096, 1, 90), resident_warps(255, 147_480, 8, 90), resident_warps(32, 233_000, 4, 90)
    (8, 8, 0)
    """
    if shared > OF_A_PROGRAM[capability]:
        return 0
    by_registers = REGISTERS // (8 * -(-registers // 8) * 32) // warps
    by_shared = SHARED[capability] // (shared + RESERVED)
    return warps * min(by_registers, by_shared, WARPS // warps, PROGRAMS)


def _longest_loop(code: Sequence[tuple[int, str, str]]) -> int:
    """Count the instructions of the longest innermost loop, a backward jump's range; without a loop, count all."""
    jumps = [(int(match[1], 16), address) for address, name, rest in code
             if name.startswith("BRA") and (match := re.search(r"0x([0-9a-f]+)", rest))]  # fmt: skip
    loops = [(target, address) for target, address in jumps if target < address]
    lengths = [
        sum(first <= address <= last for address, _, _ in code)
        for first, last in loops
        if not any((first, last) != (low, high) and first <= low and high <= last for low, high in loops)
    ]
    return max(lengths, default=sum(name != "NOP" for _, name, _ in code))


def faults(rows: Mapping[str, Mapping[str, Any]], committed: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a message for every compiled kernel that is worse than in the committed table, or missing there."""
    for key, row in rows.items():
        if key not in committed:
            yield f"{key}: not in the table; write it anew with --output"
            continue
        before = committed[key]
        if not row["warps"]:
            yield f"{key}: {row['shared']} bytes of shared memory, more than a program can have"
        if row["spills"] > before["spills"]:
            yield f"{key}: spills {row['spills']}, {before['spills']} in the table"
        for name in ("wide_loads", "wgmma"):
            if before[name] and not row[name]:
                yield f"{key}: lost its {name}, {before[name]} in the table"


def markdown(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the table as Markdown."""
    head = list(next(iter(rows.values())))
    cells = [[key, *("–" if cell is None else str(cell) for cell in row.values())] for key, row in rows.items()]
    return markdown_table(["kernel", *head], cells)


def measured_cases(rows: Mapping[str, Mapping[str, Any]], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return every case's launches by kernel, its least work, and the least times of work and of instructions."""
    return [
        {
            **{"table": run.table, "case": run.case, "way": run.way},
            **{"launches": Counter(row_key(launch, 90) for launch in run.launches)},
            **{"MB": sum(work.bytes for work in run.works) / 1e6, "GFLOP": sum(work.flops for work in run.works) / 1e9},
            **{f"{name} us": 1e6 * least_seconds(run.works, GPUS[name]) for name in ("h100", "h200")},
            "instructions us": 1e6 * sum(issue_seconds(_instructions(launch, rows)) for launch in run.launches),
        }
        for run in runs
    ]


def _instructions(launch: Launch, rows: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the instructions of a launch's threads, where its loops go once through a tensor; else 0."""
    tensor, per_element = STREAMED.get(kernel_name(launch)), rows[row_key(launch, 90)]["per_element"]
    return 0 if tensor is None or per_element is None else per_element * launch.arguments[tensor].numel()


def compile_everything(check: Path | None, output: Path | None) -> int:
    """Print the tables; exit code 5 if a kernel is worse than in the table `check`."""
    refuse_interpreter()
    runs = [run for trial in planned_trials(Size(), TABLES) for run in planned_runs(*trial)]
    rows = table(runs)
    cases = measured_cases(rows, runs)
    print(f"{markdown(rows)}\n\n{markdown_of_cases(cases)}")
    environment = machine("cpu", ("torch", "triton")) | {"device": "none: compiled, not run"}
    write({"triton": triton.__version__, "machine": environment, "rows": rows, "cases": cases}, output, indent=1)
    messages = [] if check is None else list(faults(rows, json.loads(check.read_text())["rows"]))
    print("\n".join(messages), file=sys.stderr)
    return 5 if messages else 0


def markdown_of_cases(cases: Sequence[Mapping[str, Any]]) -> str:
    """Format the tables' cases as Markdown."""
    head = ["table", "case", "way", "launches", "MB", "GFLOP", "h100 us", "h200 us", "instructions us"]
    lines = []
    for row in cases:
        numbers = [f"{row[name]:.3g}" for name in head[4:]]
        lines.append([row["table"], row["case"], row["way"], str(sum(row["launches"].values())), *numbers])
    return markdown_table(head, lines, right=head[3:])


def _type(value: Any) -> str:
    match value:
        case Tensor():
            return POINTERS[value.dtype]
        case bool():
            return "i1"
        case int():
            return "i32" if -(2**31) <= value < 2**31 else "i64"
        case float():
            return "fp32"
    raise TypeError(f"a kernel takes tensors and numbers, got {value!r}")


def _fused(name: str) -> Any:
    return importlib.import_module(f"....kernels.{name}.triton", __package__)


def _tool(option: str, file: str) -> str:
    return subprocess.run([TOOLS / "cuobjdump", option, file], capture_output=True, text=True, check=True).stdout
