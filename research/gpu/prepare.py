"""Download the libraries that a GPU's image lacks or has too old, to be carried with the checkout."""

import hashlib
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from ..speed._scripts import write
from .steps import MANIFEST, ROOT

WHEELS = (
    "transformers==5.23.0",
    *("trl==1.16.0", "datasets==5.2.0", "dill==0.4.1", "multiprocess==0.70.19"),
    *("pydantic==2.14.3", "pydantic-core==2.50.4", "annotated-types==0.8.0", "typing-inspection==0.4.5"),
    *("liger-kernel==0.8.5", "cut-cross-entropy==25.1.1", "beartype==0.23.1"),
)
"""Transformers, which in an image may be too old for training; TRL and pydantic with what they need; other libraries of
an output head; the checks of shapes in tests."""
PYTHON, PLATFORM = "3.12", "manylinux_2_17_x86_64"
"""Of the image."""
MOST = 64 * 2**20
"""Bytes that may travel with a call: the checkout's files and the wheels."""


def hashes(folder: Path) -> dict[str, dict[str, int | str]]:
    """Return bytes and SHA-256 of every wheel in a folder."""
    return {
        wheel.name: {"bytes": wheel.stat().st_size, "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}
        for wheel in sorted(folder.glob("*.whl"))
    }


def checkout_bytes(root: Path = ROOT) -> int:
    """Return the bytes of all files that git knows or does not ignore."""
    words = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\0")
    return sum((root / name).lstat().st_size for name in {*names} - {""} if (root / name).exists())


def main(arguments: Sequence[str] | None = None) -> int:
    """Download the wheels, record their hashes, and print what travels; exit code 5 if that is too much."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "runs/wheels", help="a folder that git ignores")
    folder = parser.parse_args(arguments).output
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    image = "--python-version", PYTHON, "--platform", PLATFORM
    subprocess.run([*words, *image, "--dest", str(folder), *WHEELS], check=True)
    write(wheels := hashes(folder), folder / MANIFEST)
    carried, checkout = sum(int(wheel["bytes"]) for wheel in wheels.values()), checkout_bytes()
    print(f"{len(wheels)} wheels of {carried:,} bytes, a checkout of {checkout:,}: {carried + checkout:,} of {MOST:,}")
    return 5 if carried + checkout > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
