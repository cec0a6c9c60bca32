"""Run a study of a claim: `python -m rewardlab.research.studies NAME --output RUN`, or `NAME --help`."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from ...apps.runs.run_folder import to_json_types
from ...rm.registry import names
from .._command import exit_code
from ._run import run_study


def arguments_of(words: Sequence[str] | None) -> dict:
    """Parse the arguments of `run_study`; those that are not there keep its defaults."""
    parser = ArgumentParser(prog="python -m rewardlab.research.studies", description=__doc__)
    parser.add_argument("name", help=f"one of: {', '.join(names('research.studies'))}")
    parser.add_argument("--output", required=True, help="run folder for its tables, figures and per-item scores")
    parser.add_argument("--data", help="folder with the data of a study that reads some")
    parser.add_argument("--cache", help="folder of trained models; ~/.cache/rewardlab by default")
    parser.add_argument("--seed", type=int, help="seed of all random number generators; 0 by default")
    parser.add_argument("--workers", type=int, help="number of single-threaded worker processes; 2 by default")
    parser.add_argument("--rows", type=int, help="truncate every dataset to this many rows, for a quick trial")
    parser.add_argument("--only", nargs="+", help="recipes of a study that has several, by name")
    parser.add_argument("--overwrite", action="store_true", help="replace the run folder")
    return {name: value for name, value in vars(parser.parse_args(words)).items() if value is not None}


def main(words: Sequence[str] | None = None) -> int:
    """Run a study, print its overall results as JSON, and return the exit code."""
    arguments = arguments_of(words)
    return exit_code("studies", lambda: print(json.dumps(to_json_types(run_study(**arguments)), ensure_ascii=False)))


if __name__ == "__main__":
    sys.exit(main())
