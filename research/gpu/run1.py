"""The first run at a GPU: whether the kernels are right, and how fast beside other libraries."""

import sys
from collections.abc import Sequence

from .steps import TESTS, Run, Step, execute, parser

COMPILED = "torch.compile|Liger"
"""Variants that are compiled for a minute: they come last."""
RUN = Run(
    "run1",
    270,
    (
        Step("tests", TESTS, 66),
        Step("head", "kernels", 62, ("--tables", "B", "--ways", f"^(?!{COMPILED})")),
        Step("sampling", "kernels", 42, ("--tables", "A", "--ways", f"^(?!{COMPILED})")),
        Step("sequences", "kernels", 44, ("--tables", "lora,C")),
        Step("liger", "kernels", 56, ("--tables", "B", "--cases", "trained", "--ways", "3 products|Liger")),
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps."""
    return execute(RUN, parser(RUN).parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
