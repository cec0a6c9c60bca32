"""Bytes of tensors that are alive while code runs: every storage once, from allocation to release."""

import gc
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):
    """Count the bytes of all live storages that operations have allocated or that were registered with `see`.

    A view has its base's storage; tensors saved by autograd and gradients are counted like all others. Memory that a
    kernel allocates and frees within one operation is not counted.
    """

    def __init__(self, known: Iterable[Tensor] = ()):
        super().__init__()
        self.bytes = self.peak = 0
        """Current bytes, and the peak since the last `restart`."""
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.see(known)

    def see(self, tensors: Iterable[Any]) -> None:
        """Register existing tensors, such as weights."""
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())

    def restart(self) -> None:
        """Reset the peak to the current bytes."""
        gc.collect()
        self.peak = self.bytes

    def _add(self, storage: torch.UntypedStorage) -> None:
        # `_cdata` is the storage's address, equal for all views. A weak reference does not extend its lifetime, and its
        # callback subtracts the bytes as soon as autograd or Python releases it.
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            return

        def gone(_: Any) -> None:
            del self._alive[key]
            self.bytes -= size

        self._alive[key] = weakref.ref(storage, gone)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        out = function(*arguments, **(options or {}))
        self.see(tree_iter(out))
        return out
