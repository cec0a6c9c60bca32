"""Memory and time of log-probabilities under an output head.

The loss is -Σ_i (A_i log π_i + c H_i) / N, forward and backward to the hidden states and the head, in float32. Every
variant runs in a separate process: once for its memory, above that of its inputs and including the returned gradients;
`repeats` times for seconds; once to count the bytes that its operations read and write.

    eager            all logits, log_softmax, gather, entropy
    compile          the same through torch.compile; bytes as the compiler counts them, no memory (compiling needs some)
    trl              TRL's chunked log-probabilities, with entropy
    liger            not run: it has no differentiable entropy
    linear_logprob   ours, chunk by chunk; the backward pass recomputes the logits
    linear_loss      ours, with the gradient computed in the forward pass
"""

import gc
import importlib.util
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ...kernels.linear_logprob import linear_logprob, linear_loss, reference
from ._scripts import argument_parser, in_fresh_process, machine, seconds, write

ENTROPY = 0.01  # c
PEERS = {"trl": "trl", "liger": "liger_kernel"}
BLANK = "empty"  # operations that only take memory


@dataclass(frozen=True)
class Size:
    """Sizes of the batch and of the head."""

    rows: int = 2048
    width: int = 512
    vocabulary: int = 32_000
    repeats: int = 3


class Batch(NamedTuple):
    """Inputs of every variant; hidden and weight require gradients."""

    hidden: Tensor
    weight: Tensor
    target: Tensor
    advantage: Tensor

    def loss(self, logprob: Tensor, entropy: Tensor, rows: slice = slice(None)) -> Tensor:
        """Return the loss of each row."""
        return -(self.advantage[rows] * logprob + ENTROPY * entropy) / len(self.advantage)


def batch(size: Size, device: str = "cpu") -> Batch:
    """Generate a random batch from a fixed seed, with logits of standard deviation 3."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(size.rows, size.width, generator=generator)
    weight = torch.randn(size.vocabulary, size.width, generator=generator).mul_(3 / size.width**0.5)
    target = torch.randint(size.vocabulary, (size.rows,), generator=generator)
    advantage = torch.randn(size.rows, generator=generator)
    placed = Batch(*(tensor.to(device) for tensor in (hidden, weight, target, advantage)))
    for tensor in (placed.hidden, placed.weight):
        tensor.requires_grad_()
    return placed


# ---- variants ----


def eager(inputs: Batch) -> Tensor:
    """Compute the loss by its definition, from all logits."""
    logp = (inputs.hidden @ inputs.weight.T).log_softmax(1)
    logprob = logp.gather(1, inputs.target[:, None]).squeeze(1)
    return inputs.loss(logprob, -(logp.exp() * logp).sum(1)).sum()


compiled = torch.compile(eager, dynamic=False)


def trl(inputs: Batch) -> Tensor:
    """Compute the loss by TRL's function."""
    from trl.kernels import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE as size

    arguments = (inputs.hidden, inputs.weight, None, inputs.target, 1.0, size, None, 1.0, ("entropy",))
    logprob, entropy, *_ = ChunkedLogProbFunction.apply(*arguments)
    return inputs.loss(logprob, entropy).sum()


def recomputed(inputs: Batch) -> Tensor:
    """Compute the loss by `linear_logprob`."""
    return inputs.loss(*linear_logprob(inputs.hidden, inputs.weight, inputs.target)).sum()


def made_at_once(inputs: Batch) -> Tensor:
    """Compute the loss by `linear_loss`."""
    return linear_loss(inputs.hidden, inputs.weight, inputs.target, inputs.loss).total


VARIANTS: dict[str, Callable[[Batch], Tensor] | None] = {
    "eager": eager,
    "compile": compiled,
    "trl": trl,
    "liger": None,
    "linear_logprob": recomputed,
    "linear_loss": made_at_once,
}


def truth(inputs: Batch, rows: int = 128) -> list[Tensor]:
    """Compute the float64 gradients of hidden and weight by autograd through the reference, `rows` rows at a time."""
    hidden, weight = (tensor.detach().double().requires_grad_() for tensor in (inputs.hidden, inputs.weight))
    for part in (slice(first, first + rows) for first in range(0, len(hidden), rows)):
        inputs.loss(*reference(hidden[part], weight, inputs.target[part]), part).sum().backward()
    assert hidden.grad is not None and weight.grad is not None
    return [hidden.grad, weight.grad]


# ---- measurement of one variant, in a separate process ----


def measured(variant: Callable[[Batch], Tensor], size: Size, device: str, true: Sequence[Tensor]) -> dict[str, Any]:
    """Measure peak megabytes, seconds, bytes moved per logit, and the error of the gradients."""
    variant(batch(Size(17, 16, 129), device)).backward()  # what a first call loads is not counted
    inputs = batch(size, device)

    def run() -> None:
        inputs.hidden.grad = inputs.weight.grad = None
        variant(inputs).backward()

    compiler = bytes_of_compiler(run) if variant is compiled else None
    peak = peak_of(run, device) / 1e6 if compiler is None else None
    rounds = [seconds(run, device) for _ in range(size.repeats)]
    with Traffic() as traffic:
        run()
    errors = [
        float((tensor.grad.double() - reference_gradient).norm() / reference_gradient.norm())
        for tensor, reference_gradient in zip(inputs[:2], true, strict=True)
        if tensor.grad is not None
    ]
    return {
        "peak MB": peak,
        "seconds": float(np.median(rounds)),
        "rounds": rounds,
        "bytes per logit": (traffic.bytes if compiler is None else compiler) / (size.rows * size.vocabulary),
        "gradient error": dict(zip(("hidden", "weight"), errors, strict=True)),
    }


def bytes_of_compiler(run: Callable[[], object]) -> int:
    """Return the bytes that torch.compile counts for its code, from a first call with these sizes."""
    from torch._inductor import config, metrics

    torch._logging.set_logs(inductor_metrics=True)  # it counts only while this log is on
    metrics.reset()
    with config.patch(force_disable_caches=True):
        run()
    torch._logging.set_logs()
    return metrics.num_bytes_accessed


def peak_of(run: Callable[[], object], device: str) -> int:
    """Return the peak bytes resident (on a GPU: allocated) during a call, above those before it. Linux only."""
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak of resident memory
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


class Traffic(TorchDispatchMode):
    """Count bytes as if every operation read each input once and wrote each output once; views move nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        out = function(*arguments, **(options or {}))
        self.bytes += bytes_moved(function, arguments, out)
        return out


def bytes_moved(function: Any, arguments: Sequence[Any], out: Any) -> int:
    """Return the bytes of an operation's distinct inputs and of its outputs; 0 for a view, and for memory alone."""
    if function.is_view or BLANK in str(function):
        return 0
    read = {id(tensor): tensor for tensor in _tensors(arguments)}
    written = {id(tensor): tensor for tensor in _tensors(out if isinstance(out, (tuple, list)) else [out])}
    return sum(tensor.nbytes for tensors in (read, written) for tensor in tensors.values())


def _tensors(arguments: Sequence[Any]) -> list[Tensor]:
    return [argument for argument in arguments if isinstance(argument, Tensor)]


# ---- report ----


def measure(size: Size, device: str) -> dict[str, Any]:
    """Measure every variant, and its peak as a multiple of eager's."""
    environment = machine(device, ("torch", "trl")) | {"dtype": "float32"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "truth.pt"
        torch.save(truth(batch(size)), file)
        rows = {name: _in_a_process(name, size, device, file) for name in VARIANTS}
    for row in rows.values():
        if row.get("peak MB") is not None:
            row["of eager's peak"] = row["peak MB"] / rows["eager"]["peak MB"]
    return {"size": asdict(size), "entropy coefficient": ENTROPY, "machine": environment, "variants": rows}


def _in_a_process(name: str, size: Size, device: str, true: Path) -> dict[str, Any]:
    peer = PEERS.get(name)
    if peer is not None and importlib.util.find_spec(peer) is None:
        return {"not run": f"{peer} is not installed"}
    if VARIANTS[name] is None:
        return {"not run": "no differentiable entropy"}
    options = ["--device", device, "--variant", name, "--truth", str(true), "--size", json.dumps(asdict(size))]
    return json.loads(in_fresh_process(f"{__package__}.head", *options))


def markdown(measurements: Mapping[str, Any]) -> str:
    """Format the table as Markdown."""
    size = measurements["size"]
    title = "N={rows}, D={width}, V={vocabulary}, float32".format(**size)
    lines = [f"| {title} | peak MB | of eager's | seconds | bytes per logit | gradient error |", "|---" * 6 + "|"]
    for name, row in measurements["variants"].items():
        if "not run" in row:
            lines.append(f"| {name} | not run: {row['not run']} | | | | |")
            continue
        share = row.get("of eager's peak")
        peak = "– | –" if share is None else f"{row['peak MB']:.0f} | {share:.2f}"
        cells = f"{peak} | {row['seconds']:.2f} | {row['bytes per logit']:.0f}"
        lines.append(f"| {name} | {cells} | {max(row['gradient error'].values()):.1e} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> None:
    """Measure and print the table; with `--variant`, print one variant's row as JSON (used in a subprocess)."""
    parser = argument_parser(__doc__, ("--variant", "--truth", "--size"))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args(arguments)
    if options.variant is not None:
        variant, size = VARIANTS[options.variant], Size(**json.loads(options.size))
        assert variant is not None
        print(json.dumps(measured(variant, size, options.device, torch.load(options.truth, weights_only=True))))
        return
    measurements = measure(size or Size(), options.device)
    write(measurements, options.output)
    print(markdown(measurements))


if __name__ == "__main__":
    main()
