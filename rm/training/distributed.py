"""Several processes that train one model: the whole of what is split over them, and what they have to agree on.

What is done here every process takes part in; with one process each function gives back what it was given.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate.utils import broadcast, reduce
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

# ---- a model that FSDP or ZeRO-3 has split ----


def is_sharded(model: nn.Module) -> bool:
    """Whether a process has only its share of the weights."""
    return any(isinstance(parameter, DTensor) or is_partitioned(parameter) for parameter in model.parameters())


def is_partitioned(parameter: Tensor) -> bool:
    """Whether DeepSpeed's ZeRO-3 has split it: only within its own module's forward is it whole."""
    return hasattr(parameter, "ds_id")


@torch.no_grad()
def gathered(tensor: Tensor) -> Tensor:
    """The whole of a tensor, on a CPU where it was split."""
    if is_partitioned(tensor):
        from deepspeed.zero import GatheredParameters  # pyright: ignore[reportMissingImports]

        with GatheredParameters([tensor]):
            return tensor.detach().cpu().clone()
    return tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor


def gathered_state(model: nn.Module) -> dict[str, Any] | None:
    """Every tensor of a split model by name, for `save_pretrained`; None for a model that is whole by itself."""
    if not is_sharded(model):
        return None
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {name: gathered(parameters.get(name, tensor)) for name, tensor in model.state_dict().items()}


@torch.no_grad()
def put(tensor: Tensor, value: Tensor) -> None:
    """A whole value in place of a tensor's, split as that is."""
    if isinstance(tensor, DTensor):
        value = distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements)
    tensor.copy_(value)


@contextmanager
def rank_0_folder(folder: Path, *, writes: bool) -> Iterator[Path]:
    """The folder for the process that writes, one that is thrown away for those that only take part."""
    if writes:
        yield folder
    else:
        with TemporaryDirectory() as other:
            yield Path(other)


# ---- a module beside the model, which DDP does not know of ----


@torch.no_grad()
def same_start(module: nn.Module) -> None:
    """The first process's weights everywhere: each may have drawn its own."""
    for parameter in module.parameters():
        parameter.copy_(broadcast(parameter))  # pyright: ignore[reportArgumentType]


def same_gradients(parameters: Iterable[nn.Parameter], how: str = "mean") -> None:
    """The mean or the sum of all processes' gradients everywhere."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = reduce(parameter.grad, how)  # pyright: ignore[reportAttributeAccessIssue]
