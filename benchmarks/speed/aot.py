"""Registers, spills and instructions of every kernel as compiled for GPUs, without a GPU: `rewardlab bench aot`.

Every operation launches its kernels on tensors without data, for the sizes in DRY_RUNS of its file; each launch is
compiled for sm_80 and sm_90 exactly as on such a device, with the alignments of real sizes. `--check FILE` compares
with a committed table and fails (exit code 5) if a kernel spills more, or lost its wide loads or its matrix
instructions; `--output FILE` writes a table.
"""

import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ...kernels import triton_common
from ...kernels.triton_common.launch import Launch, recorded
from ._scripts import argument_parser, write

CAPABILITIES = (80, 90)
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
POINTERS = {
    torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32", torch.float64: "*fp64",
    torch.int64: "*i64", torch.int32: "*i32", torch.bool: "*i1",
}  # fmt: skip
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d+ )?([A-Z][A-Z0-9_.]*)([^;]*);")
WIDEST = ".128"


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


def operations() -> list[str]:
    """Return the packages of `kernels` that have Triton kernels to compile."""
    names = [path.parent.name for path in sorted(Path(triton_common.__path__[0]).parent.glob("*/triton.py"))]
    return [name for name in names if hasattr(_fused(name), "DRY_RUNS")]


def dry_run(name: str, capability: int) -> list[Launch]:
    """Record every launch of an operation's kernels on tensors without data, forward and, if it exists, backward."""
    module, op = _fused(name), importlib.import_module(f"...kernels.{name}", __package__)
    with recorded(capability) as launches:
        for case in module.DRY_RUNS:
            arguments = op.example(case, torch.bfloat16, "meta")
            getattr(module, "dry_run", lambda given: module.fused(**given))(arguments)
    return launches


def table(capabilities: Sequence[int] = CAPABILITIES) -> dict[str, dict[str, Any]]:
    """Return a row for every distinct launch, by operation, kernel, capability and constants."""
    rows = {}
    for name in operations():
        for capability in capabilities:
            for launch in dry_run(name, capability):
                key = f"{name}.{title(launch)} sm_{capability}"
                if key not in rows:
                    rows[key] = asdict(compiled(launch, capability, getattr(_fused(name), "ELEMENTS", {})))
    return rows


def title(launch: Launch) -> str:
    """Return the kernel's name with its constants, dtypes, warps and stages."""
    _, constants, _ = signature(launch)
    names = [arg_name for arg_name in launch.kernel.arg_names if arg_name.isupper() and arg_name in constants]
    chosen = " ".join(f"{name}={constants[name]}" for name in names)
    return f"{launch.kernel.__name__} {chosen} w{launch.options['num_warps']} s{launch.options['num_stages']}"


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
    size = constants.get(elements.get(launch.kernel.__name__, ""))
    threads = 32 * launch.options["num_warps"]
    return Row(
        registers=int(re.search(r"REG:(\d+)", usage)[1]),  # pyright: ignore[reportOptionalSubscript]
        shared=binary.metadata.shared,
        spills=sum(name.startswith(("LDL", "STL")) for name in names),
        instructions=len(names),
        per_element=None if size is None else round(_longest_loop(code) * threads / size, 1),
        wide_loads=sum(name.startswith("LDG") and WIDEST in name for name in names),
        wgmma=sum("GMMA" in name for name in names),
    )


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
        if row["spills"] > before["spills"]:
            yield f"{key}: spills {row['spills']}, {before['spills']} in the table"
        for name in ("wide_loads", "wgmma"):
            if before[name] and not row[name]:
                yield f"{key}: lost its {name}, {before[name]} in the table"


def markdown(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the table as Markdown."""
    heads = list(next(iter(rows.values())))
    lines = ["| kernel | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for key, row in rows.items():
        cells = ("–" if cell is None else str(cell) for cell in row.values())
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
    return importlib.import_module(f"...kernels.{name}.triton", __package__)


def _tool(option: str, file: str) -> str:
    return subprocess.run([TOOLS / "cuobjdump", option, file], capture_output=True, text=True, check=True).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit code 5 if `--check` finds a regression."""
    parser = argument_parser(__doc__)
    parser.add_argument("--check", type=Path, help="a committed table, JSON")
    options = parser.parse_args(arguments)
    rows = table()
    print(markdown(rows))
    write({"triton": triton.__version__, "rows": rows}, options.output, indent=1)
    messages = [] if options.check is None else list(faults(rows, json.loads(options.check.read_text())["rows"]))
    print("\n".join(messages), file=sys.stderr)
    return 5 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
