"""The product's surface: verbs, settings, registry entries, Python API, types, server, recipes, variables.

Everything is read from the installed package, so that the inventory of another version is made by this script too.
Modules have no place in it: a file may move, and its contents stay what they are.
"""

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_type_hints

import rewardlab
from rewardlab.apps.cli import EXIT
from rewardlab.apps.settings.parser import SettingsParser
from rewardlab.apps.verbs import VERBS, Verb
from rewardlab.rm.registry import load, names
from rewardlab.rm.registry.settings import Settings

ROOT = Path(rewardlab.__path__[0])
LEVELS = ("kernels", "rm", "judges", "policy", "benchmarks", "apps")
MOVED: Mapping[str, str] = {"rm.kinds": "rm.models"}
"""Present folder of a registry -> its folder when the baseline was made, under which it stands in the inventory."""
TYPES = ("rm.types", "rm.contract.scoring_contract", "judges.types", "policy.types", "benchmarks.types")
"""Modules of the types that own code meets; the Python API's results stand beside them."""
ROUTE = re.compile(r"(?:_post\(app, |add_api_route\()\s*\"(/\w+)\"")
VARIABLE = re.compile(r"environ(?:\.get|\.setdefault)?[(\[]\s*\"([A-Z_]+)\"")

Section = dict[str, Any]


def surface() -> Section:
    """Return the inventory, by section."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        "verbs": {name: verb_settings(name) for name in VERBS},
        "exit codes": {kind.__name__: str(code) for kind, code in EXIT.items()},
        "registries": {MOVED.get(folder, folder): entries(folder) for folder in registries()},
        "api": {name: api_line(getattr(rewardlab, name)) for name in rewardlab.__all__ if name != "__version__"},
        "types": dict(kind for name in (*TYPES, "apps.api.results") for kind in types_of(module(name))) | contracts(),
        "server": server(),
        "files of the package": package_files(),
        "environment variables": variables(),
        "extras": sorted(project["optional-dependencies"]),
        "commands": sorted(project["scripts"]),
    }


def module(name: str) -> ModuleType:
    """Import a module of the package."""
    return importlib.import_module(f"rewardlab.{name}")


# ---- verbs ----


def verb_settings(name: str) -> Section:
    """Return the flags of a verb that the package declares itself; of inherited trainer settings only the class."""
    verb = VERBS[name]
    facts = {f"<{verb.positional}>": ""} if verb.positional else {}
    aliases = earlier_flags(name, verb)
    for group in verb.settings:
        hints = get_type_hints(group)
        for field in fields(group):
            if field.init and owner(group, field.name).__module__.startswith("rewardlab."):
                facts[f"--{field.name}"] = setting_line(field, hints[field.name]) + aliases.get(field.name, "")
        facts |= {f"all of {type_name(base)}": "" for base in group.__bases__ if is_dataclass(base)}
    return facts


def owner(group: type, name: str) -> type:
    """Return the class that declares a field, the nearest in the order of inheritance."""
    return next(base for base in group.__mro__ if name in vars(base).get("__annotations__", {}))


def earlier_flags(name: str, verb: Verb) -> dict[str, str]:
    """Return the further spellings of flags that the package itself adds."""
    spellings = {}
    for action in SettingsParser(verb.settings, add_help=False)._actions:
        plain = action.option_strings[0].lstrip("-")
        more = [text for text in action.option_strings[1:] if text.lstrip("-").replace("-", "_") != plain]
        if more and not plain.startswith("no_"):
            spellings[action.dest] = f", also {' '.join(more)}"
    return spellings


def setting_line(field: Field, hint: Any) -> str:
    """Return the type, default and choices of a setting."""
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    choices = field.metadata.get("listed") or literals(hint)
    folder = field.metadata.get("registry", "")
    notes = [f"of {' | '.join(map(str, choices))}"] if choices else []
    notes += [f"of {MOVED.get(folder, folder)}"] if folder else []
    return " ".join([f"{type_name(hint)} = {shown(value)}", *notes])


def literals(hint: Any) -> list[Any]:
    """Return the values of the literals in a type."""
    options = [hint, *get_args(hint)]
    return [value for option in options if getattr(option, "__origin__", None) is Literal for value in get_args(option)]


def type_name(hint: Any) -> str:
    """Return a type without its modules; a literal is a string, as its values are listed apart."""
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    plain = re.sub(r"\b(?:\w+\.)+", "", re.sub(r"typing\.Literal\[[^]]*\]", "str", text))
    return re.sub(r"Optional\[(.*)\]", r"\1 | None", plain)


def shown(value: Any) -> str:
    """Return a default as Python has it, and an object or a function without its module."""
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    text = repr(value).replace(str(Path.home()), "~")
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])| at 0x[0-9a-f]+", "", text) if text.startswith("<") else text


# ---- registries ----


def registries() -> Iterator[str]:
    """Yield the folders in which every public module or package has a function of its own name."""
    for path in sorted(path for level in LEVELS for path in (ROOT / level).rglob("__init__.py")):
        folder = ".".join(path.parent.relative_to(ROOT).parts)
        if not folder.startswith("kernels") and is_registry(path.parent):
            yield folder


def is_registry(folder: Path) -> bool:
    """Return whether every public module of a folder defines a function of its own name."""
    inner = [path for path in folder.iterdir() if not path.name.startswith(("_", "."))]
    files = {path.stem: path / "__init__.py" if path.is_dir() else path for path in inner}
    files = {name: path for name, path in files.items() if path.suffix == ".py" and path.exists()}
    return bool(files) and all(name in functions(path) for name, path in files.items())


def functions(path: Path) -> set[str]:
    """Return the names of the functions that a file defines or imports at its top."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):  # what a factory of functions returns
            found |= {name.id for name in node.targets if isinstance(name, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def entries(folder: str) -> Section:
    """Return the names of a registry folder, each with its arguments and their defaults."""
    factories = {name: inspect.signature(_factory(folder, name)) for name in names(folder)}
    return {name: [str(bare(given)) for given in declared.parameters.values()] for name, declared in factories.items()}


def _factory(folder: str, name: str) -> Callable[..., Any]:
    """Return an entry's factory; that of a kind of reward model loads its folders."""
    return load(folder, name)().load if folder == "rm.kinds" else load(folder, name)


def bare(given: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter without its type, and its default without modules."""
    return given.replace(annotation=inspect.Parameter.empty, default=_Shown.of(given.default))


def arguments(function: Callable[..., Any], without: frozenset[str] = frozenset()) -> str:
    """Return the parameters of a function and their defaults.

    >>> arguments(sorted)
    '(iterable, /, *, key=None, reverse=False)'
    """
    declared = inspect.signature(function).parameters.values()
    return str(inspect.Signature([bare(given) for given in declared if given.name not in without]))


class _Shown:
    """A default that is written without its module."""

    def __init__(self, text: str):
        self.text = text

    @classmethod
    def of(cls, value: Any) -> Any:
        return value if value is inspect.Parameter.empty else cls(shown(value))

    def __repr__(self) -> str:
        return self.text


# ---- Python ----


def api_line(value: Any) -> str:
    """Return the arguments and result of a function of the API; those of its verb are named by the verb."""
    if inspect.isclass(value):
        return f"{value.__name__}({', '.join(base.__name__ for base in value.__bases__)})"
    declared, code = inspect.signature(value), value.__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    verb = max(
        (name for name in VERBS if takes_all(declared, VERBS[name])),
        key=lambda name: len(declared_settings(VERBS[name])),
        default="",
    )
    text = arguments(value, frozenset({*declared.parameters} - {*own, "settings", "options"}))
    result = type_name(declared.return_annotation)
    return f"{text} -> {result}" + (f" with the settings of {verb}" if verb else "")


def takes_all(declared: inspect.Signature, verb: Verb) -> bool:
    """Return whether a function takes every setting that a verb declares itself."""
    return declared_settings(verb) <= {*declared.parameters}


def declared_settings(verb: Verb) -> set[str]:
    """Return the names of a verb's settings without those of trainers."""
    return {field.name for group in verb.settings if issubclass(group, Settings) for field in fields(group)}


def types_of(source: ModuleType) -> Iterator[tuple[str, Section]]:
    """Yield the public classes that a module defines, each with its fields, methods and properties."""
    for name, value in sorted(vars(source).items()):
        if inspect.isclass(value) and value.__module__ == source.__name__ and not name.startswith("_"):
            yield name, members(value)


def contracts() -> Section:
    """Return the scoring contracts of single kinds, each with the fields that it adds to the common ones."""
    modules = [module(f"rm.kinds.{name}") for name in names("rm.kinds")]
    classes = dict(kind for source in modules for kind in types_of(source) if kind[0].endswith("Contract"))
    common = dict(types_of(module("rm.contract.scoring_contract")))["ScoringContract"]
    return {name: {key: classes[name][key] for key in classes[name].keys() - common.keys()} for name in classes}


def members(kind: type) -> Section:
    """Return the public members of a class: a field with its default, a method with its arguments."""
    defaults = {field.name: field_default(field) for field in fields(kind)} if is_dataclass(kind) else {}
    defaults |= {name: shown(value) for name, value in vars(kind).get("_field_defaults", {}).items()}
    facts = {name: defaults.get(name, "") for base in reversed(kind.__mro__) for name in own_annotations(base)}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if base.__module__.startswith("rewardlab.") and not name.startswith("_") and name not in facts:
                facts[name] = arguments(value) if inspect.isfunction(value) else type(value).__name__
    return facts


def own_annotations(kind: type) -> list[str]:
    """Return the public fields that a class of the package declares."""
    declared = vars(kind).get("__annotations__", {}) if kind.__module__.startswith("rewardlab.") else {}
    return [name for name in declared if not name.startswith("_")]


def field_default(field: Field) -> str:
    """Return the default of a field; empty if it has none."""
    if field.default_factory is not MISSING:
        return f"{shown(field.default_factory)}()"
    return "" if field.default is MISSING else shown(field.default)


# ---- the rest ----


def server() -> Section:
    """Return the fields of the scoring server's requests, and its routes."""
    protocol = module("apps.serving.protocol")
    requests = [
        value for value in vars(protocol).values() if inspect.isclass(value) and value.__name__.endswith("Request")
    ]
    facts = {kind.__name__: request_fields(kind) for kind in requests if kind.__module__ == protocol.__name__}
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "apps/serving").glob("*.py")]
    return facts | {"routes": sorted(path for source in sources for path in ROUTE.findall(source))}


def request_fields(kind: Any) -> Section:
    """Return the fields of a request and their defaults."""
    return {
        name: "required" if field.is_required() else shown(field.get_default(call_default_factory=True))
        for name, field in kind.model_fields.items()
    }


def package_files() -> list[str]:
    """Return the recipes, rubrics and prompts that are named without a path, and the inspector's tabs."""
    named = [path.name for suffix in ("yaml", "toml", "txt") for path in product_files(suffix)]
    tabs = [f"tab {path.name}" for path in (ROOT / "apps/inspector/tabs").iterdir() if (path / "__init__.py").exists()]
    return sorted(named + tabs)


def product_files(suffix: str) -> Iterator[Path]:
    """Yield the files of the package with this suffix."""
    for level in LEVELS:
        yield from sorted((ROOT / level).rglob(f"*.{suffix}"))


def variables() -> list[str]:
    """Return the environment variables that the package reads or sets."""
    return sorted({name for path in product_files("py") for name in VARIABLE.findall(path.read_text(encoding="utf-8"))})
