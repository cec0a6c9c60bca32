"""JavaScript and CSS of the page, a file for each subject."""

from pathlib import Path


def asset(name: str) -> str:
    """Return the text of a file of this folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8").removesuffix("\n")


def stylesheet(name: str) -> str:
    """Return CSS of this folder as an element of HTML."""
    return f"<style>\n{asset(name)}\n</style>"


CLONING, JOINING = (f"<script>{asset(name)}</script>" for name in ("cloning.js", "joining.js"))
"""HTML: a faster `structuredClone`, and events that neither get lost nor overtake each other."""
CLICKS = asset("clicks.js")
"""JavaScript: a click on a point of a trace with `figures.opens` follows its link."""
LISTS = asset("lists.js")
"""JavaScript: Gradio 6.31 opens the list that Tab leaves once more, as it does for every key but Escape."""
HISTORY = asset("history.js")
"""JavaScript of the address bar: every tab, run and case has an address, to which Back and Forward return.

`rewardlabHistory.go(query)` writes an address; another tab, run or case is a step of the history.
"""
COPYING = asset("copying.js")
"""JavaScript: `button.csv` copies the table beside it, `button.copy` the text before it; `rewardlabCopy` any text."""
