"""Measure speed or memory: `python -m rewardlab.research.speed NAME ARGUMENTS`, or `--help` for the names.

No installation is needed: a link named `rewardlab` to the checkout, in a folder on PYTHONPATH, is the package.
"""

import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...rm.errors import CheckFailed, UsageError, did_you_mean
from ...rm.registry import names
from .._command import exit_code

FOLDER = "research.speed"


def overview() -> str:
    """Return a line for each script; none is imported, because some need absent packages."""
    lines = [f"  {name:<17}{_first_line(name)}" for name in names(FOLDER)]
    return "\n".join(["usage: python -m rewardlab.research.speed NAME [settings], or NAME --help", "", *lines])


def _first_line(name: str) -> str:
    folder = Path(__file__).parent
    file = folder / name / "__init__.py" if (folder / name).is_dir() else folder / f"{name}.py"
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def run_script(name: str, words: Sequence[str]) -> None:
    """Run a script with its own arguments; one whose figures are out of bounds fails the check."""
    if name not in (choices := names(FOLDER)):
        raise UsageError(f"no speed script '{name}'; {did_you_mean(name, choices)}")
    if _script(name).main(words):
        raise CheckFailed(f"{name}: a figure is out of its bounds; the lines above say which")


def _script(name: str) -> Any:
    try:
        return importlib.import_module(f".{name}", __package__)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", str(__package__).partition(".")[0]):
            raise
        raise UsageError(f"{name} cannot be run here: {error}; pip install {package}") from error


def main(words: Sequence[str] | None = None) -> int:
    """Run a script by its name and return the exit code; argparse ends its help and its errors by itself."""
    name, *rest = list(sys.argv[1:] if words is None else words) or [""]
    if name in ("", "-h", "--help"):
        print(overview())
        return 0 if name else 2
    return exit_code(f"speed {name}", lambda: run_script(name, rest))


if __name__ == "__main__":
    sys.exit(main())
