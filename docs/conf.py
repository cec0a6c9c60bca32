"""Configuration of the documentation: `make docs` builds it to build/docs, with warnings as errors."""

import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT.parent))  # a checkout that is not installed, in a folder called rewardlab
if find_spec("rewardlab") is None:
    raise SystemExit("the documentation imports the package: pip install --editable '.[docs]'")

from rewardlab.apps.settings.help import help_page  # noqa: E402
from rewardlab.apps.verbs import VERBS  # noqa: E402

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

VERBS_HERE = "<!-- verbs -->"


def verb_reference() -> str:
    """Return the help page of every verb in Markdown."""
    sections = []
    for name, verb in VERBS.items():
        usage = f"rewardlab {name} {verb.positional.upper()} [settings]".replace("  ", " ")
        page = help_page(verb.help, verb.example, usage, verb.settings) if verb.config else f"usage: {verb.example}"
        sections.append(f"## {name}\n\n{verb.help}\n\n```text\n{page}\n```\n")
    return "\n".join(sections)


def insert_verbs(app: object, name: str, source: list[str]) -> None:
    """Replace the mark in a page by the reference of all verbs."""
    if VERBS_HERE in source[0]:
        source[0] = source[0].replace(VERBS_HERE, verb_reference())


def setup(app) -> None:
    """Register the generated reference."""
    app.connect("source-read", insert_verbs)
