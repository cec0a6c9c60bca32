"""Configuration of the documentation: `make docs` builds it to build/docs, with warnings as errors."""

import inspect
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT.parent))  # a checkout that is not installed, in a folder called rewardlab
if find_spec("rewardlab") is None:
    raise SystemExit("the documentation imports the package: pip install --editable '.[docs]'")

from rewardlab.apps.settings.help import help_page  # noqa: E402
from rewardlab.apps.verbs import VERBS  # noqa: E402
from rewardlab.rm.registry import load, names  # noqa: E402

project = "rewardlab"
author = "the rewardlab developers"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "rewardlab"
exclude_patterns = ["screenshots.py"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"Rows": "Rows", "Model": "Model"}
nitpicky = False
copybutton_prompt_text = r"\$ "

METHODS = {
    "rm.kinds": ("Reward models", "train --kind NAME"),
    "rm.losses": ("Losses of reward models", "train --loss NAME"),
    "policy.advantages": ("Advantage estimators", "rl --advantage NAME"),
    "policy.losses": ("Policy losses", "rl --loss NAME"),
    "policy.aggregations": ("Aggregations of token losses", "rl --aggregation NAME"),
    "policy.transforms": (
        "Transforms of rewards and advantages",
        "rl --reward_transform or --advantage_transform NAME",
    ),
    "policy.schedulers": ("Schedulers", "rl --scheduler NAME"),
    "policy.replays": ("Replays", "rl --replay NAME"),
    "policy.curricula": ("Curricula", "rl --curriculum NAME"),
    "policy.scaffolds": ("Scaffolds", "rl --scaffold NAME"),
    "policy.rollouts": ("Rollouts", "rl --rollouts NAME"),
    "apps.rewards": ("Rewards that know the run", "rl --reward NAME"),
    "judges.kinds": ("Judges", "judge --kind NAME"),
    "benchmarks.suites": ("Benchmarks", "eval --benchmark NAME"),
}
"""Registry folder -> its heading and where its names are used."""


def verb_reference() -> str:
    """Return the help page of every verb in Markdown."""
    sections = []
    for name, verb in VERBS.items():
        usage = f"rewardlab {name} {verb.positional.upper()} [settings]".replace("  ", " ")
        page = help_page(verb.help, verb.example, usage, verb.settings)
        sections.append(f"## {name}\n\n{verb.help}\n\n```text\n{page}\n```\n")
    return "\n".join(sections)


def method_reference() -> str:
    """Return the docstring of every entry of the registry folders in Markdown."""
    sections = []
    for folder, (heading, use) in METHODS.items():
        sections.append(f"## {heading}\n\nIn `{folder.replace('.', '/')}/`, used as `rewardlab {use}`.\n")
        for name in names(folder):
            function = load(folder, name)
            module = inspect.getmodule(function)
            first = (inspect.getdoc(module) or "").partition("\n")[0]
            text = inspect.getdoc(function) or ""
            if folder == "rm.kinds":  # a kind says what it computes, and its loader how it is opened
                function = function().load
                text += f"\n\n{inspect.getdoc(function)}"
            call = f"{function.__name__}{inspect.signature(function)}"
            sections.append(f"### {name}\n\n{first}\n\n```text\n{call}\n\n{text}\n```\n")
    return "\n".join(sections)


GENERATED = {"<!-- verbs -->": verb_reference, "<!-- methods -->": method_reference}
"""Mark in a page -> what replaces it."""


def insert_generated(app: object, name: str, source: list[str]) -> None:
    """Replace the marks in a page by the generated references."""
    for mark, generate in GENERATED.items():
        if mark in source[0]:
            source[0] = source[0].replace(mark, generate())


def setup(app) -> None:
    """Register the generated references."""
    app.connect("source-read", insert_generated)
