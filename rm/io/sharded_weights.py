"""Gathering and restoring of sharded weights (FSDP, ZeRO-3). Every process must call these functions."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def is_sharded(model: nn.Module) -> bool:
    """Return whether each process holds only a shard of the weights."""
    return any(isinstance(parameter, DTensor) or is_partitioned(parameter) for parameter in model.parameters())


def is_partitioned(parameter: Tensor) -> bool:
    """Return whether DeepSpeed ZeRO-3 has partitioned a parameter: it is gathered only during its module's forward."""
    return hasattr(parameter, "ds_id")


@torch.no_grad()
def gather_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor, on the CPU; return other tensors unchanged."""
    if is_partitioned(tensor):  # its shape is empty outside of the context, which all processes enter together
        from deepspeed.zero import GatheredParameters  # pyright: ignore[reportMissingImports]

        with GatheredParameters([tensor]):
            return tensor.detach().cpu().clone()
    return tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor


def gathered_state(model: nn.Module) -> dict[str, Any] | None:
    """Return the gathered state dict of a sharded model, for `save_pretrained`; None for other models."""
    if not is_sharded(model):
        return None
    # under ZeRO-3 the tensors of state_dict() are empty: gather the parameters themselves, by every name of tied
    # weights; buffers are in the state dict alone
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {name: gather_tensor(parameters.get(name, tensor)) for name, tensor in model.state_dict().items()}


@torch.no_grad()
def put(tensor: Tensor, value: Tensor) -> None:
    """Copy a full value into a tensor; if the tensor is sharded, each process copies its shard."""
    if isinstance(tensor, DTensor):
        value = distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements)
    tensor.copy_(value)


@contextmanager
def rank_0_folder(folder: Path, *, writes: bool) -> Iterator[Path]:
    """Yield the folder on the writing process, and a temporary folder on processes that only take part in gathering."""
    if writes:
        yield folder
    else:
        with TemporaryDirectory() as other:
            yield Path(other)
