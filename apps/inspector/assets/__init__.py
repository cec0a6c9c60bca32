"""JavaScript and CSS files of the page, and functions that load them."""

from pathlib import Path


def asset(name: str) -> str:
    """Return the text of a file of this folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8").removesuffix("\n")


def stylesheet(name: str) -> str:
    """Return a CSS file of this folder as a `<style>` element."""
    return f"<style>\n{asset(name)}\n</style>"


CLONING, JOINING = (f"<script>{asset(name)}</script>" for name in ("cloning.js", "joining.js"))
"""HTML scripts: a faster `structuredClone`, and delivery of events in order without loss."""
CLICKS = asset("clicks.js")
"""JavaScript: a click on a point of a trace with `figures.opens` follows its link."""
LISTS = asset("lists.js")
"""JavaScript: keep a list closed when Tab moves the focus away. Gradio 6.31 opens it again."""
HISTORY = asset("history.js")
"""JavaScript of the address bar: every tab, run and case has an address, and Back and Forward work.

`rewardlabHistory.go(query)` writes an address. A change of tab, run or case adds an entry to the browser's history.
"""
COPYING = asset("copying.js")
"""JavaScript: `button.csv` copies the table beside it, `button.copy` the text before it, `rewardlabCopy` any text."""
