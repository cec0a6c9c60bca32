"""A kind of reward model: its settings, and the functions that load and train it. Does not import torch."""

import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..errors import UsageError
from . import load, names
from .settings import Settings


@dataclass(frozen=True)
class Kind:
    """Entry of a package of `rm.kinds`. Its modules are imported on first use, so that `--help` is fast."""

    package: str
    """The package, `__name__` in its own `__init__.py`."""
    loader: str
    """`module:function`, relative to the package, that loads a folder: `function(source, **options) -> RewardModel`."""
    trainer: str = ""
    """`module:class` of its `Training`; empty for a kind that cannot be trained."""
    settings: type[Settings] = Settings
    """Class of the settings of its training."""
    contract: type[Any] | None = None
    """Class of its scoring contract; None for kinds with the common fields only."""
    by_gradient: bool = False
    """Whether it is trained by gradient descent, with trainer arguments, held-out data and several processes."""
    reads_data: bool = True
    """Whether its training reads data; False if it only combines other models."""
    padding_free: bool = False
    """Whether its training supports batches without padding; see `backbones.packing`."""

    @property
    def name(self) -> str:
        """Name of the kind, as in a scoring contract."""
        return self.package.rpartition(".")[2]

    @property
    def load(self) -> Callable[..., Any]:
        """The function that loads a reward model of this kind."""
        return self._imported(self.loader)

    @property
    def training(self) -> type[Any]:
        """The class that trains a reward model of this kind, a subclass of `training.protocol.Training`."""
        if not self.trainer:
            raise UsageError(f"a {self.name} reward model is not trained; name a kind that is")
        return self._imported(self.trainer)

    def _imported(self, reference: str) -> Any:
        return pkgutil.resolve_name(importlib.util.resolve_name(f".{reference}", self.package))


@cache
def kind_of(name: str) -> Kind:
    """Return a kind by its name in `rm.kinds`, or from user code by `file.py:function`."""
    return load("rm.kinds", name)()


@cache
def trained_kinds() -> dict[str, Kind]:
    """Return the kinds that can be trained, by name."""
    kinds = {name: kind_of(name) for name in names("rm.kinds")}
    return {name: kind for name, kind in kinds.items() if kind.trainer}
