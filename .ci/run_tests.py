"""Run make targets of tests; a failed test runs again once, alone: `python .ci/run_tests.py test test-all`.

One unsteady test must not sink the run, and must not hide either: tests that pass on the second try are listed, and
more than five of them fail the run. A run that ends without naming a failed test (a crash, a usage error) fails.
"""

import json
import subprocess
import sys
from pathlib import Path

MOST_SECOND_TRIES = 5
FAILED = Path(".pytest_cache/v/cache/lastfailed")
"""Node ids of failed tests, as pytest's cache plugin writes them."""
PYTEST = [".venv/bin/python", "-m", "pytest"]


def failed_tests(target: str) -> list[str]:
    """Run `make TARGET` and return the node ids of its failed tests; exit where it failed without naming any."""
    FAILED.unlink(missing_ok=True)
    status = subprocess.run(["make", target]).returncode
    failed = [*json.loads(FAILED.read_text())] if FAILED.exists() else []
    if status and not failed:
        sys.exit(f"make {target} failed (exit {status}), and no test did: see its output above")
    return failed


def passes_alone(test: str) -> bool:
    """Run one test by itself and return whether it passes."""
    return subprocess.run([*PYTEST, "-p", "no:cacheprovider", test]).returncode == 0


def main(targets: list[str]) -> int:
    """Run the targets and then their failed tests again; return the exit status."""
    failed = [test for target in targets for test in failed_tests(target)]
    if len(failed) > MOST_SECOND_TRIES:
        print(f"{len(failed)} tests failed; at most {MOST_SECOND_TRIES} run again:", *failed, sep="\n  ")
        return 1
    failed_twice = [test for test in failed if not passes_alone(test)]
    for title, tests in (
        ("passed on the second try", [test for test in failed if test not in failed_twice]),
        ("failed twice", failed_twice),
    ):
        if tests:
            print(f"{title}:", *tests, sep="\n  ")
    return 1 if failed_twice else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
