"""rewardlab: a workbench for reward models and alignment.

>>> import rewardlab as rl
>>> model = rl.train("pairs.jsonl", output="runs/rm", max_steps=100)   # doctest: +SKIP
>>> rl.evaluate(model, "test.jsonl")   # doctest: +SKIP

The functions are those of the command line, with the same names of settings; they are imported on first use, so that
`import rewardlab` loads neither PyTorch nor Transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .apps.api import (
        compare,
        decode,
        evaluate,
        judge,
        label,
        lint,
        load,
        plan,
        reinforce,
        sample,
        score,
        train,
        train_judge,
    )
    from .rm.errors import CheckFailed, DataError, UsageError

    __version__: str

__all__ = [
    "CheckFailed",
    "DataError",
    "UsageError",
    "__version__",
    "compare",
    "decode",
    "evaluate",
    "judge",
    "label",
    "lint",
    "load",
    "plan",
    "reinforce",
    "sample",
    "score",
    "train",
    "train_judge",
]
_ERRORS = ("CheckFailed", "DataError", "UsageError")


if not TYPE_CHECKING:  # type checkers would take any name for a public one

    def __getattr__(name: str) -> Any:
        """Import a public name on first use."""
        if name not in __all__:
            raise AttributeError(f"module 'rewardlab' has no attribute '{name}'")
        if name == "__version__":
            from importlib.metadata import version

            value: Any = version("rewardlab")
        else:
            value = getattr(import_module(".rm.errors" if name in _ERRORS else ".apps.api", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
