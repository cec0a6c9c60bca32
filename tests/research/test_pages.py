import re

import pytest
from rewardlab.rm.registry import names

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "kernels/README.md"]
PAGES += [page for folder in ("docs", "research") for page in (ROOT / folder).rglob("*.md")]
COMMAND = re.compile(r"python3? -m rewardlab\.research\.(studies|speed|gpu)[ .](\w+)([^`\n]*)")
FILE = re.compile(r"`(research/[\w/.*-]+)`|\]\(\.\./(research/[\w/.-]+)\)")


def source(folder: str, name: str) -> str:
    """The code that reads a command's arguments: a speed script's modules, or the command of all studies."""
    patterns = (f"{name}.py", f"{name}/*.py") if folder == "speed" else ("*.py",)
    return "".join(file.read_text() for glob in patterns for file in (ROOT / "research" / folder).glob(glob))


@pytest.mark.parametrize("folder", ["studies", "speed", "gpu"])
def test_commands_in_pages_name_a_script_and_its_flags(folder):
    named = [match for page in PAGES for match in COMMAND.findall(page.read_text()) if match[0] == folder]
    known = {"gpu": ("plan", "prepare", "run1", "run2")}.get(folder) or names(f"research.{folder}")
    assert named
    for _, name, words in named:
        assert name in (*known, "NAME"), name
        for flag in re.findall(r"--\w+", words):
            assert name == "NAME" or f'"{flag}"' in source(folder, name) + source("speed", "_scripts"), (name, flag)


def test_files_of_research_in_pages_exist():
    for page in PAGES:
        for path in map("".join, FILE.findall(page.read_text())):
            assert "NAME" in path or list(ROOT.glob(path)), f"{page}: {path}"


def test_every_figure_of_results_has_its_file():
    for section in re.split(r"^## ", (ROOT / "docs/results.md").read_text(), flags=re.M)[1:]:
        studies = [name for folder, name, _ in COMMAND.findall(section) if folder == "studies"]
        assert studies or "research/results/" in section, section.partition("\n")[0]
        for name in studies:
            assert (ROOT / "research/results" / name / "report.md").exists(), name


def test_the_page_of_research_lists_every_study_and_speed_script():
    page = (ROOT / "research/README.md").read_text()
    for name in (*names("research.studies"), *names("research.speed")):
        assert f"`{name}`" in page or f"[{name}]" in page or f" {name}`" in page, name
