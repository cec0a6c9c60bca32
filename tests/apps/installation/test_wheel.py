"""The wheel: its files, its metadata, and that each module imports from it alone."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from tests.conftest import ROOT
from tests.test_house import IMPORTABLE, LEVELS

ROOT_FILES = ("LICENSE", "README.md", "__init__.py", "__main__.py", "py.typed", "pyproject.toml", "setup.py")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

pytestmark = pytest.mark.slow


class Wheel(NamedTuple):
    """A wheel that was unpacked."""

    names: list[str]
    site: Path
    info: Path
    """The folder of its metadata."""

    def message(self, name: str) -> Message:
        """Parse a file of the metadata that is written like the head of a mail."""
        return message_from_bytes((self.info / name).read_bytes())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Wheel:
    """The wheel of a copy of the checkout, without files of earlier builds."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "source").mkdir()
    for name in (*LEVELS, "tests", "examples", *ROOT_FILES):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / "source" / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    built = subprocess.run([*command, str(folder / "source")], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (file,) = folder.glob("*.whl")
    assert file.name == f"rewardlab-{PROJECT['version']}-py3-none-any.whl"
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "site")
        (info,) = (folder / "site").glob("*.dist-info")
        return Wheel(archive.namelist(), folder / "site", info)


def test_the_wheel_has_every_file_of_the_product_and_no_other(wheel):
    levels = [level for level in LEVELS if level != "research"]
    paths = [path for level in levels for path in (ROOT / level).rglob("*") if path.is_file()]
    product = {path.relative_to(ROOT).as_posix() for path in paths if path.suffix not in (".pyc", ".md")}
    assert {".css", ".html", ".js", ".json", ".py", ".sh", ".toml", ".txt", ".yaml"} == {
        Path(name).suffix for name in product
    }
    expected = {f"rewardlab/{name}" for name in (*product, "__init__.py", "__main__.py", "py.typed")}
    outside = [name for name in wheel.names if not name.startswith(f"{wheel.info.name}/")]
    assert {*outside} == expected and len(outside) == len(expected)


def test_data_files_have_the_bytes_of_the_checkout(wheel):
    for name in wheel.names:
        if name.startswith("rewardlab/") and not name.endswith(".py"):
            assert (wheel.site / name).read_bytes() == (ROOT / name.removeprefix("rewardlab/")).read_bytes(), name


def test_the_metadata_are_those_of_the_project(wheel):
    metadata = wheel.message("METADATA")
    assert (metadata["Name"], metadata["Version"]) == ("rewardlab", PROJECT["version"])
    assert metadata["Summary"] == PROJECT["description"] and metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata.get_all("Classifier") == PROJECT["classifiers"] and "Typing :: Typed" in PROJECT["classifiers"]
    assert metadata["Keywords"] == ",".join(PROJECT["keywords"])
    assert metadata["License-Expression"] == "Apache-2.0" and metadata.get_all("License-File") == ["LICENSE"]
    assert (wheel.info / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload(decode=True).decode().strip() == (ROOT / "README.md").read_text("utf-8").strip()
    assert metadata.get_all("Provides-Extra") == [*PROJECT["optional-dependencies"]]
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
    base = {str(requirement) for requirement in requirements if not requirement.marker}
    assert base == {str(Requirement(text)) for text in PROJECT["dependencies"]}


def test_the_wheel_is_pure_and_installs_one_command_and_one_package(wheel):
    assert wheel.message("WHEEL")["Root-Is-Purelib"] == "true"
    assert (wheel.info / "top_level.txt").read_text().split() == ["rewardlab"]
    lines = (wheel.info / "entry_points.txt").read_text().split("\n")
    assert [line for line in lines if line] == ["[console_scripts]", "rewardlab = rewardlab.apps.cli:main"]


def test_each_module_imports_from_the_wheel(wheel):
    modules = [".".join(["rewardlab", *path.relative_to(ROOT).with_suffix("").parts]) for path in IMPORTABLE]
    modules = [module.removesuffix(".__init__") for module in modules]
    script = (
        "import importlib, sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f).lower()];"
        f"sys.path.insert(0, {str(wheel.site)!r});"
        f"found = [importlib.import_module(name).__file__ or '' for name in {modules!r}];"
        f"assert all(file.startswith({str(wheel.site)!r}) for file in found if file), found"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=wheel.site)
