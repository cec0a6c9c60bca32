"""The second run at a GPU, after mending: guided decoding, training and scoring of real sizes, and torch.compile."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .run1 import COMPILED
from .steps import TESTS, Run, Step, execute, parser

TINY = '{"layers": 1, "hidden": 64, "vocabulary": 300, "limit": 200, "groups": 2, "words": 40, "repeats": 2}'
RUN = Run(
    "run2",
    370,
    (
        Step("tests", TESTS, 45),
        Step("sampling", "kernels", 42, ("--tables", "A", "--ways", f"^(?!{COMPILED})")),
        Step("decoding-8b", "decoding", 90, ("--backbone", "8b", "--cases", "variants"), ("--backbone", "toy")),
        Step("decoding-1b", "decoding", 45, ("--backbone", "1b", "--cases", "variants"), ("--backbone", "toy")),
        Step("training", "training", 40, (), ("--tiny",)),
        Step("scoring", "scoring", 30, (), ("--size", TINY)),
        Step("compile", "kernels", 75, ("--tables", "B,A", "--cases", "trained|nothing cut", "--ways", "compile")),
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps; `--first` names the first run's facts, whose failed tests are run again."""
    options = parser(RUN)
    options.add_argument("--first", type=Path, help="run1.json: its failed tests are run again")
    chosen = options.parse_args(arguments)
    rows = json.loads(chosen.first.read_text())["steps"] if chosen.first else []
    return execute(RUN, chosen, [name for row in rows for name in row.get("failed", [])])


if __name__ == "__main__":
    sys.exit(main())
