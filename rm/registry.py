"""Registry folders: a name refers to the factory of that name in the folder's module or package of that name."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from .errors import UsageError, did_you_mean

ROOT = str(__package__).rpartition(".")[0]  # `rewardlab`, derived from this file's package
RENAMED = {
    "rm.models": {"feedback": "r2m"},
    "policy.aggregations": {"answer_mean": "completion_mean"},
    "benchmarks.speed": {"feedback": "r2m"},
}
"""Names of earlier versions, which may occur in their settings and files, and the current names."""


def names(folder: str) -> list[str]:
    """Return the choices in a registry folder, such as `"rm.models"`, in alphabetical order.

    Modules whose names begin with an underscore are helpers and not choices.

    >>> "bradley_terry" in names("rm.losses")
    True
    """
    package = importlib.import_module(f"{ROOT}.{folder}")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))


def load(folder: str, name: str) -> Callable[..., Any]:
    """Return the factory `name` of `folder/name.py`, or `"my_pkg.mod:fn"` of any package; imported only on request.

    >>> load("rm.losses", "bradley_tery")
    Traceback (most recent call last):
    rewardlab.rm.errors.UsageError: no 'bradley_tery' in rm.losses; did you mean 'bradley_terry'?
    """
    if ":" in name:
        return _from_anywhere(name)
    name = RENAMED.get(folder, {}).get(name, name)
    if name not in (choices := names(folder)):
        raise UsageError(f"no '{name}' in {folder}; {did_you_mean(name, choices)}")
    return getattr(importlib.import_module(f"{ROOT}.{folder}.{name}"), name)


def _from_anywhere(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot load '{name}': {error}; write it as 'package.module:function'") from error
