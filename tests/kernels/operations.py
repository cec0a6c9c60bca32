"""What the common tests of the operations share: their names, copies of their arguments, and fresh memory of NaN."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rewardlab.kernels.triton_common as common
import torch
from torch import Tensor

NAMES = sorted(path.parent.name for path in Path(common.__path__[0]).parent.glob("*/triton.py"))


def module(name: str) -> Any:
    return importlib.import_module(f"rewardlab.kernels.{name}")


def cases_of(name: str) -> Any:
    return importlib.import_module(f"tests.stand_ins.kernel_cases.{name}")


def is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def outputs(function: Any, arguments: dict) -> tuple[Tensor, ...]:
    result = function(**arguments)
    return result if isinstance(result, tuple) else (result,)


def copies(arguments: dict, change: Callable[[Tensor], Tensor] = Tensor.clone) -> dict:
    """Fresh tensors with the strides of the arguments': an operation may overwrite them."""

    def copy(tensor: Tensor) -> Tensor:
        memory = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
        return change(memory).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    return {name: copy(value) if isinstance(value, Tensor) else value for name, value in arguments.items()}


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory holds NaN, or the largest integer."""

    def poisoned(make: Any) -> Any:
        def fresh(*arguments: Any, **options: Any) -> Tensor:
            tensor = make(*arguments, **options)
            return tensor.fill_(torch.nan if tensor.is_floating_point() else torch.iinfo(tensor.dtype).max)

        return fresh

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))
