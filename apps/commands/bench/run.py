"""`rewardlab bench NAME`: the scripts of `research/speed`, each with settings of its own."""

import ast
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....research import speed
from ....rm.errors import CheckFailed, UsageError, did_you_mean
from ....rm.registry import names

FOLDER = "research.speed"


def overview() -> str:
    """Return a line for each script; none is imported, because some need absent packages."""
    return "\n".join(f"  {name:<16}{_about(name).partition(chr(10))[0]}" for name in names(FOLDER))


def _about(name: str) -> str:
    folder = Path(speed.__path__[0])
    file = folder / name / "__init__.py" if (folder / name).is_dir() else folder / f"{name}.py"
    source = file.read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""


def run_bench(words: Sequence[str]) -> dict[str, Any]:
    """Run a script with its own arguments; one whose figures are out of bounds fails the check."""
    name = words[0] if words else ""
    if name not in (choices := names(FOLDER)):
        raise UsageError(f"no benchmark '{name}'; {did_you_mean(name, choices)}")
    try:
        code = _script(name).main(words[1:])
    except SystemExit as ended:  # argparse has printed the error, or its help
        if ended.code:
            raise UsageError(f"see rewardlab bench {name} --help") from ended
        code = 0
    if code:
        raise CheckFailed(f"{name}: a figure is out of its bounds; the lines above say which")
    return {"bench": name}


def _script(name: str) -> Any:
    try:
        return importlib.import_module(f"{speed.__name__}.{name}")
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", speed.__name__.partition(".")[0]):
            raise
        raise UsageError(f"bench {name} cannot be run here: {error}; pip install {package}") from error
