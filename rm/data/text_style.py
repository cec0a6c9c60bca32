"""Markdown of a text."""

import re

FENCED = re.compile(r"^[ \t]*```.*?(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
MARKS = re.compile(r"^#{1,6}[ \t]|^[ \t]*(?:[-*+]|\d+[.)])[ \t]|\*\*[^*\n]+\*\*", re.MULTILINE)


def markdown_marks(text: str) -> int:
    """Count headers, list items, bold words and blocks of code; the contents of a block of code are not counted.

    >>> markdown_marks("# Title\\n- **one**\\n- two\\n```python\\n# no header\\n```")
    5
    """
    rest, blocks = FENCED.subn("", text)
    return blocks + len(MARKS.findall(rest))
