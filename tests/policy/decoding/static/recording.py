"""What a CUDA graph does with a step, on a CPU: the operations of one step, which can be repeated."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
WAITING = {aten._local_scalar_dense, aten.is_nonzero, aten.item, aten.nonzero, aten.masked_select, aten.equal}
READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__")


class Recorded(TorchDispatchMode):
    """Records every operation; one that waits for the device fails.

    Python runs once, so that a number that it computes is frozen. Memory stays where it is.
    """

    def __init__(self):
        super().__init__()
        self.operations: list[tuple[Any, tuple, dict, Any]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.overloadpacket not in WAITING, f"{func} waits for the device"
        result = func(*args, **kwargs or {})
        self.operations.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        """Repeat the operations on the same tensors."""
        for func, args, kwargs, result in self.operations:
            inputs = {tensor.untyped_storage().data_ptr() for tensor in tensors((args, kwargs))}
            if func._schema.is_mutable:
                func(*args, **kwargs)
            elif not any(tensor.untyped_storage().data_ptr() in inputs for tensor in tensors(result)):
                for old, new in zip(tensors(result), tensors(func(*args, **kwargs)), strict=True):
                    old.copy_(new)


def tensors(values: Any) -> list[torch.Tensor]:
    """Return the tensors in nested containers."""
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def forbid_reads(monkeypatch: Any) -> None:
    """Let every method of a tensor that reads its values on the host fail."""

    def fails(*_: Any, **__: Any) -> None:
        raise AssertionError("a tensor is read on the host")

    for name in READS:
        monkeypatch.setattr(torch.Tensor, name, fails)
