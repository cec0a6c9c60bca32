"""JavaScript and CSS files of the page, and functions that load them.

`store.js` reads and writes the address and fills the tabs, `board.js` sorts and filters leaderboards, `copying.js`
copies tables and texts, and `lists.js` prevents Gradio 6.31 from reopening a drop-down list that loses focus.
"""

from pathlib import Path


def asset(name: str) -> str:
    """Return the text of a file of this folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8").removesuffix("\n")


def stylesheet(name: str) -> str:
    """Return a CSS file of this folder as a `<style>` element."""
    return f"<style>\n{asset(name)}\n</style>"


def script(name: str) -> str:
    """Return a JavaScript file of this folder as a `<script>` element."""
    return f"<script>{{\n{asset(name)}\n}}</script>"
