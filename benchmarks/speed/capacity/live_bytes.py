"""How many bytes of tensors are alive while a piece of code runs: every storage once, from its birth to its end."""

import gc
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):
    """Bytes of all storages that operations have made, or that were named, and that are still alive.

    A view has its base's storage; what autograd saves and the gradients it leaves are seen like everything else. What a
    kernel takes and gives back inside one operation is not.
    """

    def __init__(self, known: Iterable[Tensor] = ()):
        super().__init__()
        self.bytes = self.peak = 0
        """Now, and the most at any time since the last `restart`."""
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.see(known)

    def see(self, tensors: Iterable[Any]) -> None:
        """Count these too, such as weights that were there before."""
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())

    def restart(self) -> None:
        """Forget the peak."""
        gc.collect()
        self.peak = self.bytes

    def _add(self, storage: torch.UntypedStorage) -> None:
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
