"""Registry folders, in which a name selects the function of this name in its module or package; kinds of models."""

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, wraps
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from inspect import ismethod
from itertools import count
from operator import eq, is_
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ..errors import UsageError, did_you_mean
from .settings import Settings

ROOT = str(__package__).removesuffix(".rm.registry")  # `rewardlab`, derived from this file's package
PLUGINS = {
    "rm.kinds": "rewardlab.kinds",
    "rm.losses": "rewardlab.losses",
    "judges.kinds": "rewardlab.judges",
    "policy.advantages": "rewardlab.advantages",
    "benchmarks.suites": "rewardlab.suites",
}
"""Registry folder -> group of entry points by which installed packages add names to it."""
_OBJECTS: dict[str, Callable[..., Any]] = {}
"""Functions that cannot be imported by name, such as closures, lambdas and partials, by their `reference`."""
IMPORTABLE = re.compile(r"[\w.]+:\w+")


def names(folder: str) -> list[str]:
    """Return the choices in a registry folder, such as `"rm.kinds"`, in alphabetical order, also those of plug-ins.

    Modules whose names begin with an underscore are helpers and not choices.

    >>> "bradley_terry" in names("rm.losses")
    True
    """
    package = importlib.import_module(f"{ROOT}.{folder}")
    modules = (module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))
    return sorted({*modules, *plugins(folder)})


@cache
def plugins(folder: str) -> dict[str, EntryPoint]:
    """Return the entry points of installed packages for a registry folder, by name; `load` prefers the folder's own."""
    group = PLUGINS.get(folder)
    return {entry.name: entry for entry in entry_points(group=group)} if group else {}


def load(folder: str, name: str) -> Callable[..., Any]:
    """Return the function `name` of `folder/name.py`, or of user code: `"my_file.py:name"`, `"my_pkg.mod:name"`.

    The working folder is importable. Modules are imported only on request.

    >>> load("rm.losses", "bradley_tery")
    Traceback (most recent call last):
    rewardlab.rm.errors.UsageError: no 'bradley_tery' in rm.losses; did you mean 'bradley_terry'?
    """
    if ":" in name:
        return _load_reference(name)
    check_name(folder, name)
    module = f"{ROOT}.{folder}.{name}"
    if name in plugins(folder) and not importlib.util.find_spec(module):
        return _load_plugin(plugins(folder)[name])
    return pkgutil.resolve_name(f"{module}:{name}")


def check_name(folder: str, name: str) -> None:
    """Raise a `UsageError` unless the registry folder has the name; nothing of the folder is imported."""
    if name not in (choices := names(folder)):
        raise UsageError(f"no '{name}' in {folder}; {did_you_mean(name, choices)}")


def reference(function: Callable[..., Any]) -> str:
    """Return a name under which `load` returns this function in this process, such as `my_pkg.mod:name`.

    An object that cannot be imported by name gets a generated name, such as `my_pkg.mod.object1:name`.
    """
    target: Any = function.func if isinstance(function, partial) else function
    source, attribute = target.__module__ or "builtins", getattr(target, "__name__", type(target).__name__)
    name = f"{source}:{attribute}"
    if IMPORTABLE.fullmatch(name) and getattr(sys.modules.get(source), attribute, None) is function:
        return name
    same = eq if ismethod(function) else is_  # every access creates another object of a method
    if references := [name for name, registered in _OBJECTS.items() if same(function, registered)]:
        return references[0]
    source, attribute = re.sub(r"[^\w.]", "_", source), re.sub(r"\W", "", attribute)
    numbered = (f"{source}.object{number}:{attribute}" for number in count(1))
    name = next(name for name in numbered if name not in _OBJECTS)
    _OBJECTS[name] = function
    return name


def module_file(name: str) -> Path | None:
    """Return the file of the module of a loaded `"file.py:name"` or `"package.module:name"`; None if it has none."""
    source = name.rpartition(":")[0]
    file = source if source.endswith(".py") else getattr(sys.modules.get(source), "__file__", None)
    return Path(file).expanduser() if file else None


def _load_plugin(entry: EntryPoint) -> Callable[..., Any]:
    try:
        return entry.load()
    except Exception as error:  # whatever the package raises when it is imported
        raise UsageError(
            f"the entry point {entry.name} = {entry.value} of an installed package cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error


def _load_reference(name: str) -> Callable[..., Any]:
    if name in _OBJECTS:
        return _OBJECTS[name]
    source, _, attribute = name.rpartition(":")
    try:
        if not source.endswith(".py") and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # last, so that it hides no installed package
        module = _file_module(Path(source)) if source.endswith(".py") else importlib.import_module(source)
        if not hasattr(module, attribute):
            advice = did_you_mean(attribute, vars(module), "name one of its functions")
            raise UsageError(f"no '{attribute}' in {source}; {advice}")
        if not callable(function := getattr(module, attribute)):
            raise UsageError(f"'{attribute}' in {source} is {function!r:.60} and not a function; name a function")
        return function
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # whatever the module raises when it is imported
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, ImportError | AttributeError) else error
        raise UsageError(
            f"cannot load '{name}': {reason}; write it as 'file.py:function' or 'package.module:function'"
        ) from error


class _FromSource(SourceFileLoader):
    """Loader of Python files from source, never from bytecode, which can be stale after an edit within a second."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code compiled from the current content of the file."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _file_module(path: Path) -> ModuleType:
    """Import a Python file once, and again after an edit; the file can import modules from its own folder."""
    path = path.expanduser().resolve()
    if not path.is_file():
        raise UsageError(f"no file {path}")
    source = path.read_bytes()
    name = f"{path.stem}_{hashlib.sha256(bytes(path) + source).hexdigest()[:8]}"
    if name not in sys.modules:
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        spec: Any = importlib.util.spec_from_file_location(name, path, loader=_FromSource(name, str(path)))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _keeping_random_state(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that restores PyTorch's random state, which new layers change before weights are loaded."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if not (torch := sys.modules.get("torch")):
            return function(*arguments, **options)
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        with torch.random.fork_rng([*devices]):
            return function(*arguments, **options)

    return call


@dataclass(frozen=True)
class Kind:
    """Entry of a package of `rm.kinds`. Its modules are imported on first use, so that `--help` is fast."""

    package: str
    """`__name__` of the package."""
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
        """The function that loads a reward model of this kind. It leaves PyTorch's random state as it was."""
        return _keeping_random_state(self._imported(self.loader))

    @property
    def training(self) -> type[Any]:
        """The class that trains a reward model of this kind, a subclass of `training.protocol.Training`."""
        if not self.trainer:
            raise UsageError(f"kind '{self.name}' cannot be trained; name a kind that can be")
        return self._imported(self.trainer)

    def _imported(self, reference: str) -> Any:
        """Import the object that a reference, relative to the kind's package, names."""
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
