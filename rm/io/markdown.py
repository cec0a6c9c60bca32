"""Markdown tables for reports."""

from collections.abc import Container, Sequence

from .escaping import escape_markdown


def table(header: Sequence[str], lines: Sequence[Sequence[str]], *, right: Container[str] | None = None) -> str:
    r"""Return a Markdown table; bars in cells are escaped, line ends become blanks, HTML and images become text.

    `right` names the right-aligned columns, such as numbers; by default all but the first.

    >>> print(table(["model", "score"], [["a|b", "1"]]))
    | model | score |
    | --- | ---: |
    | a\|b | 1 |
    """
    cells = [[escape_markdown(str(cell)).replace("|", "\\|") for cell in line] for line in [header, *lines]]
    to_the_right = header[1:] if right is None else right
    rule = ["---:" if name in to_the_right else "---" for name in header]
    return "\n".join(f"| {' | '.join(line)} |" for line in [cells[0], rule, *cells[1:]])
