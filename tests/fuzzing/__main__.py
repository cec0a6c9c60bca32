"""`python -m tests.fuzzing --seconds 600`: bent files for every loader; exit code 5 where one broke the law.

The law: what opens a bent file ends in time and in little memory, with what the file says or with a sentence of ours
(`rm.errors`), and writes no file, opens no connection and starts no program.
"""

import argparse
import faulthandler
import json
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzzing.running import Tally, fuzz, targets
from tests.fuzzing.target import Target
from tests.run_facts import run_facts


def main(argv: Sequence[str] | None = None, find: Callable[[Sequence[str]], list[Target]] = targets) -> int:
    """Print a line for each target, write the JSON; 5 where a target failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of all targets together")
    parser.add_argument("--only", nargs="*", default=[], help="targets whose names begin so")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first file, as a failure tells it")
    parser.add_argument("--executions", type=int, help="files for each target, instead of a time")
    parser.add_argument("--output", type=Path, help="a JSON file with what was done")
    asked = parser.parse_args(argv)
    began = run_facts()
    with TemporaryDirectory(prefix="rewardlab-fuzzing-") as folder:
        counts = {"seconds": asked.seconds, "start": asked.start, "executions": asked.executions}
        tallies = fuzz(find(asked.only), Path(folder), seed=asked.seed, **counts)
    print(table(tallies))
    failures = [failure for tally in tallies for failure in tally.failures.values()]
    if asked.output:
        found = {tally.target.name: tally.as_json() for tally in tallies}
        result = {"run": began, "seed": asked.seed, "targets": found, "failures": [one.told() for one in failures]}
        result["executions"] = sum(tally.executions for tally in tallies)
        asked.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 5 if failures else 0


def quiet() -> None:
    """What libraries say of bent files is not looked at, and names in them are not looked up on the Hub."""
    from huggingface_hub import constants
    from transformers.utils import logging as transformers

    constants.HF_HUB_OFFLINE = True
    transformers.set_verbosity(logging.CRITICAL)
    transformers.disable_progress_bar()
    warnings.simplefilter("ignore")


def table(tallies: Sequence[Tally]) -> str:
    lines = [f"{'target':<34}{'files':>9}{'opened':>9}{'refused':>9}{'failed':>8}{'a second':>10}"]
    for one in tallies:
        read = f"{one.executions:>9}{one.kinds['opened']:>9}{one.kinds['refused']:>9}{len(one.failures):>8}"
        lines.append(f"{one.target.name:<34}{read}{one.executions / max(one.seconds, 1e-9):>10.0f}")
    total = sum(one.executions for one in tallies)
    return "\n".join([*lines, f"{total} files, {sum(len(one.failures) for one in tallies)} places that failed"])


if __name__ == "__main__":
    faulthandler.enable()
    quiet()
    sys.exit(main())
