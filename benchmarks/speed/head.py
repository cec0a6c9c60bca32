"""Memory and time of log-probabilities under an output head: `rewardlab bench head`.

The loss is -Σ_i (A_i log π_i + c H_i) / N, forward and backward to the hidden states and the head, in float32. Every
variant runs in a process of its own: once for its memory, above that of its inputs and with the gradients it returns;
some times for seconds; once to count what its operations read and write.

    eager            all logits, log_softmax, gather, entropy
    compile          the same through torch.compile; of bytes its own count, and no memory: the compiler's is beside it
    trl              TRL's chunked log-probabilities, with entropy
    liger            has no entropy that could be differentiated
    linear_logprob   ours, chunk by chunk; the backward pass makes the logits again
    linear_loss      ours, with the gradient made in the forward pass
"""

import argparse
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ...kernels.linear_logprob import linear_logprob, linear_loss, reference

ENTROPY = 0.01  # c
PEERS = {"trl": "trl", "liger": "liger_kernel"}
BLANK = "empty"  # operations that only take memory


@dataclass(frozen=True)
class Size:
    """What is measured."""

    rows: int = 2048
    width: int = 512
    vocabulary: int = 32_000
    repeats: int = 3


class Batch(NamedTuple):
    """Inputs of every variant; hidden and weight want gradients."""

    hidden: Tensor
    weight: Tensor
    target: Tensor
    advantage: Tensor

    def loss(self, logprob: Tensor, entropy: Tensor, rows: slice = slice(None)) -> Tensor:
        """Of each row."""
        return -(self.advantage[rows] * logprob + ENTROPY * entropy) / len(self.advantage)


def batch(size: Size, device: str = "cpu") -> Batch:
    """Random ones, always the same, with logits of standard deviation 3."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(size.rows, size.width, generator=generator)
    weight = torch.randn(size.vocabulary, size.width, generator=generator).mul_(3 / size.width**0.5)
    target = torch.randint(size.vocabulary, (size.rows,), generator=generator)
    advantage = torch.randn(size.rows, generator=generator)
    placed = Batch(*(one.to(device) for one in (hidden, weight, target, advantage)))
    for one in (placed.hidden, placed.weight):
        one.requires_grad_()
    return placed


# ---- the variants ----


def eager(given: Batch) -> Tensor:
    """The loss as one writes it first."""
    logp = (given.hidden @ given.weight.T).log_softmax(1)
    said = logp.gather(1, given.target[:, None]).squeeze(1)
    return given.loss(said, -(logp.exp() * logp).sum(1)).sum()


compiled = torch.compile(eager, dynamic=False)


def trl(given: Batch) -> Tensor:
    """The loss by TRL's function."""
    from trl.kernels import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE as size

    arguments = (given.hidden, given.weight, None, given.target, 1.0, size, None, 1.0, ("entropy",))
    logprob, entropy, *_ = ChunkedLogProbFunction.apply(*arguments)
    return given.loss(logprob, entropy).sum()


def recomputed(given: Batch) -> Tensor:
    """The loss by `linear_logprob`."""
    return given.loss(*linear_logprob(given.hidden, given.weight, given.target)).sum()


def made_at_once(given: Batch) -> Tensor:
    """The loss by `linear_loss`."""
    return linear_loss(given.hidden, given.weight, given.target, given.loss).total


VARIANTS: dict[str, Callable[[Batch], Tensor] | None] = {
    "eager": eager,
    "compile": compiled,
    "trl": trl,
    "liger": None,
    "linear_logprob": recomputed,
    "linear_loss": made_at_once,
}


def truth(given: Batch, rows: int = 128) -> list[Tensor]:
    """Gradients of hidden and weight in float64, by autograd through the plain definition, some rows at a time."""
    hidden, weight = (one.detach().double().requires_grad_() for one in (given.hidden, given.weight))
    for part in (slice(first, first + rows) for first in range(0, len(hidden), rows)):
        given.loss(*reference(hidden[part], weight, given.target[part]), part).sum().backward()
    assert hidden.grad is not None and weight.grad is not None
    return [hidden.grad, weight.grad]


# ---- one variant in a process of its own ----


def measured(variant: Callable[[Batch], Tensor], size: Size, device: str, true: Sequence[Tensor]) -> dict[str, Any]:
    """Megabytes at the peak, seconds, bytes moved per logit, and how far the gradients are from the truth."""
    variant(batch(Size(17, 16, 129), device)).backward()  # what a first call loads is not counted
    given = batch(size, device)

    def run() -> None:
        given.hidden.grad = given.weight.grad = None
        variant(given).backward()

    compiler = bytes_of_compiler(run) if variant is compiled else None
    peak = peak_of(run, device) / 1e6 if compiler is None else None
    rounds = [seconds(run, device) for _ in range(size.repeats)]
    with Traffic() as traffic:
        run()
    errors = [
        float((one.grad.double() - other).norm() / other.norm())
        for one, other in zip(given[:2], true, strict=True)
        if one.grad is not None
    ]
    return {
        "peak MB": peak,
        "seconds": float(np.median(rounds)),
        "rounds": rounds,
        "bytes per logit": (traffic.bytes if compiler is None else compiler) / (size.rows * size.vocabulary),
        "gradient error": dict(zip(("hidden", "weight"), errors, strict=True)),
    }


def bytes_of_compiler(run: Callable[[], object]) -> int:
    """What torch.compile counts its code to move, of a first call of these sizes."""
    from torch._inductor import config, metrics

    torch._logging.set_logs(inductor_metrics=True)  # for which alone it counts
    metrics.reset()
    with config.patch(force_disable_caches=True):
        run()
    torch._logging.set_logs()
    return metrics.num_bytes_accessed


def seconds(run: Callable[[], object], device: str) -> float:
    """Of one call, everything it started on the device included."""
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_of(run: Callable[[], object], device: str) -> int:
    """Bytes: the most that was resident (allocated, on a GPU) during a call, above what was before. Linux."""
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(name))
    return 1024 * int(line.split()[1])


class Traffic(TorchDispatchMode):
    """Counts bytes as if every operation read each input once and wrote each output once; views move nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        out = function(*arguments, **(options or {}))
        if not function.is_view and BLANK not in str(function):
            read = {id(one): one for one in _tensors(arguments)}
            written = {id(one): one for one in _tensors(out if isinstance(out, (tuple, list)) else [out])}
            self.bytes += sum(one.numel() * one.itemsize for some in (read, written) for one in some.values())
        return out


def _tensors(arguments: Sequence[Any]) -> list[Tensor]:
    return [argument for argument in arguments if isinstance(argument, Tensor)]


# ---- telling ----


def measure(size: Size, device: str) -> dict[str, Any]:
    """Every variant, and its peak as a multiple of eager's."""
    from .decoding import machine  # which loads much that the variants' processes need not have

    place = machine(device) | {"dtype": "float32"}
    place["versions"] = {name: version(name) for name in ("torch", "trl") if importlib.util.find_spec(name)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "truth.pt"
        torch.save(truth(batch(size)), file)
        rows = {name: _in_a_process(name, size, device, file) for name in VARIANTS}
    for row in rows.values():
        if row.get("peak MB") is not None:
            row["of eager's peak"] = row["peak MB"] / rows["eager"]["peak MB"]
    return {"size": asdict(size), "entropy coefficient": ENTROPY, "machine": place, "variants": rows}


def _in_a_process(name: str, size: Size, device: str, true: Path) -> dict[str, Any]:
    peer = PEERS.get(name)
    if peer is not None and importlib.util.find_spec(peer) is None:
        return {"not run": f"{peer} is not installed"}
    if VARIANTS[name] is None:
        return {"not run": "no differentiable entropy"}
    asked = ["--device", device, "--variant", name, "--truth", str(true), "--size", json.dumps(asdict(size))]
    command = [sys.executable, "-m", __name__ if __name__ != "__main__" else f"{__package__}.head", *asked]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | {"PYTHONWARNINGS": "ignore"}
    )
    return json.loads(done.stdout.splitlines()[-1])


def markdown(found: Mapping[str, Any]) -> str:
    """The table for people."""
    size = found["size"]
    title = "N={rows}, D={width}, V={vocabulary}, float32".format(**size)
    lines = [f"| {title} | peak MB | of eager's | seconds | bytes per logit | gradient error |", "|---" * 6 + "|"]
    for name, row in found["variants"].items():
        if "not run" in row:
            lines.append(f"| {name} | not run: {row['not run']} | | | | |")
            continue
        share = row.get("of eager's peak")
        peak = "– | –" if share is None else f"{row['peak MB']:.0f} | {share:.2f}"
        cells = f"{peak} | {row['seconds']:.2f} | {row['bytes per logit']:.0f}"
        lines.append(f"| {name} | {cells} | {max(row['gradient error'].values()):.1e} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> None:
    """Measure and print the table; `--variant` is the process of one, which prints its row as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--output", type=Path, help="a JSON file")
    for name in ("--variant", "--truth", "--size"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.variant is not None:
        variant, given = VARIANTS[options.variant], Size(**json.loads(options.size))
        assert variant is not None
        print(json.dumps(measured(variant, given, options.device, torch.load(options.truth, weights_only=True))))
        return
    found = measure(size or Size(), options.device)
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(markdown(found))


if __name__ == "__main__":
    main()
