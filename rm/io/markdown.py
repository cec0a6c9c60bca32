"""Tables for reports in Markdown."""

from collections.abc import Container, Sequence

from .escaping import inert


def table(header: Sequence[str], lines: Sequence[Sequence[str]], *, right: Container[str] | None = None) -> str:
    r"""A Markdown table; bars in cells are escaped, line ends in them are blanks, HTML and images are text.

    `right` names the columns that are set to the right, as numbers are; without it all but the first.

    >>> print(table(["model", "score"], [["a|b", "1"]]))
    | model | score |
    | --- | ---: |
    | a\|b | 1 |
    """
    cells = [[inert(str(cell)).replace("|", "\\|") for cell in line] for line in [header, *lines]]
    to_the_right = header[1:] if right is None else right
    rule = ["---:" if name in to_the_right else "---" for name in header]
    return "\n".join(f"| {' | '.join(line)} |" for line in [cells[0], rule, *cells[1:]])
