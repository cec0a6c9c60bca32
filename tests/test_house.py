"""The promises of the layout: levels, packaging, names."""

import ast
import importlib
import importlib.util
import pkgutil
import subprocess
from pathlib import Path

import pytest
from rewardlab.rm.errors import UsageError
from rewardlab.rm.registry import load, names

ROOT = Path(__file__).resolve().parent.parent
LEVELS = {"kernels": 0, "rm": 1, "judges": 2, "policy": 2, "benchmarks": 3, "apps": 4, "research": 5}
SOURCES = sorted(path for level in LEVELS for path in (ROOT / level).rglob("*.py"))
PEERS = ROOT / "apps/recipes/peers"  # they import libraries that are not installed here; their own tests replace those
IMPORTABLE = [path for path in SOURCES if path.parent != PEERS and "research" not in path.parts]
FORMULAS = ("advantages", "losses", "aggregations", "transforms", "schedulers", "replays", "curricula", "scaffolds")
REGISTRIES = [
    "rm.kinds",
    "rm.losses",
    "judges.kinds",
    "policy.rollouts",
    *(f"policy.{folder}" for folder in FORMULAS),
    "benchmarks.suites",
    "research.studies",
    "apps.rewards",
]
ORDER = {
    "rm": [
        "registry",
        "io",
        "data",
        "contract",
        "backbones",
        "adapters",
        "losses",
        "capacity",
        "training",
        "kinds",
        "parity",
    ],
    "policy": [*FORMULAS, "step", "rewards", "decoding", "rollouts", "training"],
}
"""Folders of a level: each imports only from itself and those before it."""
GROWING = {*(name.replace(".", "/") for name in REGISTRIES), "research/speed", "apps/commands"}
"""Folders with an entry for every formula, kind, benchmark or verb: they may have any number of entries."""
MOST_ENTRIES = 14


def imported_levels(path: Path) -> list[str]:
    """The top-level folders that a file imports from, by relative imports."""
    package = path.relative_to(ROOT).parent.parts
    levels = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            target = [*base, *(node.module or "").split(".")] if node.module else [*base, node.names[0].name]
            levels.append(target[0])
    return levels


def test_a_file_imports_only_from_its_own_level_or_lower_ones():
    for path in SOURCES:
        own = path.relative_to(ROOT).parts[0]
        for level in imported_levels(path):
            shared = own == "research" and level in ("tests", "examples")  # stand-ins, and models to fetch
            assert level == own or shared or LEVELS[level] < LEVELS[own], f"{path} imports from {level}"


def imported_folders(path: Path) -> list[list[str]]:
    """The level and folder (or module) of each relative import of a file."""
    package = path.relative_to(ROOT).parent.parts
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.level]
    return [[*package[: len(package) - node.level + 1], *(node.module or "").split(".")][:2] for node in nodes]


@pytest.mark.parametrize("level", ORDER)
def test_folders_of_a_level_import_only_from_earlier_ones(level):
    order = ORDER[level]
    assert {*order, "__pycache__"} >= {path.name for path in (ROOT / level).iterdir() if path.is_dir()}
    for path in (ROOT / level).glob("*/**/*.py"):
        folder = path.relative_to(ROOT / level).parts[0]
        for target in imported_folders(path):
            if target[0] == level and target[1] in order:
                assert order.index(target[1]) <= order.index(folder), f"{path} imports from {target[1]}"


def test_tests_of_the_product_do_without_research():
    for path in (ROOT / "tests").rglob("*.py"):
        if path.relative_to(ROOT / "tests").parts[0] != "research":
            assert "research" not in imported_from_the_package(path), f"{path} imports from research"


def imported_from_the_package(path: Path) -> set[str]:
    """The top-level folders of the package that a file imports from, by absolute imports."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    modules = [f"{node.module}.{alias.name}" for node in nodes if not node.level for alias in node.names]
    return {module.split(".")[1] for module in modules if module.startswith("rewardlab.")}


def test_imports_inside_the_project_are_relative():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            module = node.module if isinstance(node, ast.ImportFrom) and not node.level else None
            mentioned = [module or ""] + ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
            assert not any(name.split(".")[0] in {"rewardlab", *LEVELS} for name in mentioned), path


def test_only_the_api_and_the_program_stand_at_the_root_and_kernels_has_no_init():
    assert sorted(path.name for path in ROOT.glob("*.py")) == ["__init__.py", "__main__.py", "setup.py"]
    assert not (ROOT / "kernels" / "__init__.py").exists()
    for folder in {path.parent for path in SOURCES} - {ROOT / "kernels"}:
        assert (folder / "__init__.py").exists(), folder


def source_folders() -> set[Path]:
    """Every folder of the package, relative to the checkout."""
    folders = {path.relative_to(ROOT).parent for path in SOURCES}
    return folders | {parent for folder in folders for parent in folder.parents if parent.parts}


def test_a_folder_is_one_subject():
    for folder in source_folders():
        entries = [
            entry
            for entry in (ROOT / folder).iterdir()
            if entry.name not in ("__init__.py", "__pycache__") and (entry.is_file() or any(entry.rglob("*.py")))
        ]
        assert str(folder) in GROWING or len(entries) <= MOST_ENTRIES, sorted(entry.name for entry in entries)


def test_the_tests_mirror_the_folders():
    folders = {str(folder) for folder in source_folders()}
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.relative_to(ROOT / "tests").parent
        if folder.parts and folder.parts[0] in LEVELS:
            assert str(folder) in folders, f"{path}: there is no folder {folder}"


def test_types_import_no_torch(script):
    text = """
import rewardlab.rm.types, rewardlab.judges.types, rewardlab.benchmarks.types, rewardlab.rm.registry.settings
assert "torch" not in sys.modules
"""
    subprocess.run(script(text), check=True)


def test_every_file_of_a_registry_exports_a_factory_of_its_name():
    for folder in REGISTRIES:
        for name in names(folder):
            factory = load(folder, name)
            assert callable(factory) and factory.__name__ == name and factory.__doc__, (folder, name)


def test_a_wrong_name_is_answered_with_the_right_one():
    with pytest.raises(UsageError, match="no 'scaler' in rm.kinds; did you mean 'scalar'"):
        load("rm.kinds", "scaler")
    with pytest.raises(UsageError, match=f"there is {', '.join(names('rm.kinds'))}"):
        load("rm.kinds", "xyz")


def test_a_name_may_come_from_anywhere():
    assert load("rm.losses", "math:sqrt")(9.0) == 3.0
    with pytest.raises(UsageError, match="package.module:function"):
        load("rm.losses", "no_such_package.mod:fn")


def test_doctests_of_every_module_hold():
    import doctest

    tried = 0
    for path in IMPORTABLE:
        name = ".".join(["rewardlab", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
        result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
        assert not result.failed, name
        tried += result.attempted
    assert tried > 5


def test_packages_are_found_by_the_loader_too():
    import rewardlab.rm as rm

    assert {module.name for module in pkgutil.iter_modules(rm.__path__)} >= {"types", "data", "contract"}
