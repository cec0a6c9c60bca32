"""README and documentation: commands, Python blocks and the notebook run; flags, links and targets exist."""

import ast
import json
import os
import re
import shlex
from functools import cache, partial
from pathlib import Path
from statistics import median

import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.settings.parser import ALIASES, IMPLIED, SPLITS, SettingsParser
from rewardlab.apps.verbs import VERBS, split_verb
from rewardlab.benchmarks.garden.models import pretrain
from rewardlab.rm.registry import names

from tests.pretrained.conftest import fetched_folder

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RESEARCH = ROOT / "research"  # a copy of the product alone lacks it
NOTEBOOKS = ROOT / "docs" / "notebooks"
OWN_CODE = ROOT / "docs" / "guides" / "own_code.md"


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def commands(block: str) -> list[list[str]]:
    """The words of every `rewardlab` command, without comments; lines that end with a backslash go on."""
    lines = block.replace("\\\n", " ").splitlines()
    split = [shlex.split(os.path.expandvars(line), comments=True) for line in lines if "rewardlab " in line]
    return [words[words.index("rewardlab") + 1 :] for words in split if "rewardlab" in words]


RUN = [page for page in PAGES if blocks(page, "bash") or blocks(page, "python")]


@pytest.fixture(scope="module", autouse=True)
def short_pretraining():
    """A start policy of 10 steps instead of 600: pages are to run, not to learn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rewardlab.apps.commands.world.run.pretrain", partial(pretrain, steps=10))
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "world"
    assert main(["world", "--output", str(folder), "--pairs", "200", "--test", "60"]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=named)
def test_the_blocks_of_a_page_run_in_order(page, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    if not any("rewardlab world" in block for block in blocks(page, "bash")):
        (tmp_path / "runs" / "world").symlink_to(world)
    for name, target in (("pairs", world / "train"), ("test", world / "test")):
        (tmp_path / f"{name}.jsonl").symlink_to(f"{target}.jsonl")
    (tmp_path / "apps").symlink_to(ROOT / "apps")
    text = page.read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(bash|python)\n(.*?)^```", text, flags=re.M | re.S):
        if "$MINILM" in block:
            monkeypatch.setenv("MINILM", fetched_folder("minilm"))
        if language == "python":
            exec(compile(block, named(page), "exec"), {"__name__": "__main__"})
            continue
        for words in commands(block):
            assert main(words) == 0, words


def test_verbs_and_flags_in_pages_exist():
    for page in PAGES:
        for block in [block for language in ("bash", "console") for block in blocks(page, language)]:
            for verb, words in map(split_verb, commands(block)):
                assert verb in VERBS, (named(page), verb, words)
                unknown = {word for word in words if word.startswith("--")} - known_flags(verb)
                assert not unknown, (named(page), verb, unknown)


@cache
def known_flags(verb: str) -> set[str]:
    parser = SettingsParser(VERBS[verb].settings, add_help=False)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    of_others = {f"--{name}" for name in (*ALIASES, *IMPLIED, *SPLITS)}
    return flags | of_others | {"--config", "--json", "--help", "--help-all"}


def test_the_guide_of_policy_training_lists_all_formulas():
    page = (ROOT / "docs/guides/policy_training.md").read_text()
    for folder in {*re.findall(r"^\| `--\w+` \| `policy/(\w+)` \|", page, re.M)}:
        choices = " ".join(re.findall(rf"^\| `--\w+` \| `policy/{folder}` \|.*", page, re.M))
        assert not [name for name in names(f"policy.{folder}") if not re.search(rf"`{name}\b", choices)], folder


def test_links_make_targets_and_source_files_in_pages_exist():
    targets = (ROOT / "Makefile").read_text()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            elsewhere = target.startswith(("http", "mailto")) or ("research/" in target and not RESEARCH.exists())
            assert elsewhere or (page.parent / target).exists(), (named(page), target)
        for target in re.findall(r"`make ([\w-]+)`", text):
            assert re.search(rf"^{target}:", targets, flags=re.M), (named(page), target)
        for path in re.findall(r"`((?:rm|policy|judges|kernels|apps|benchmarks|tests)/[\w/.-]+)`", text):
            elsewhere = path.startswith("tests/research") and not RESEARCH.exists()
            assert elsewhere or re.search(r"NAME|my_", path) or (ROOT / path).exists(), (named(page), path)


def test_the_readme_is_short_own_code_is_not_long_and_every_page_is_in_a_table_of_contents():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
    for block in blocks(OWN_CODE, "{code-block} python"):
        assert len(block.splitlines()) <= 12
    listed = set()
    for page in PAGES[1:]:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"```\{toctree\}\n(.*?)```", text, flags=re.S):
            entries = [line.strip() for line in block.splitlines() if line.strip() and not line.startswith(":")]
            listed |= {(page.parent / f"{entry}.md").resolve() for entry in entries}
    assert {page.resolve() for page in PAGES[1:]} - listed == {(ROOT / "docs" / "index.md").resolve()}


def methods(page: str) -> list[list[str]]:
    """The rows of implemented methods in a page of the catalogue."""
    text = (ROOT / "docs" / "methods" / page).read_text(encoding="utf-8").partition("## Not implemented")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if row[0] not in ("paper", "---")]


def test_every_method_of_the_catalogue_has_all_columns_and_its_tests_exist():
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for row in [*methods("catalogue.md"), *methods("catalogue_rewards.md")]:
        assert len(row) == 8 and all(row), row
        assert {*re.findall(r"\w+\.py", row[4])} <= tests and re.match(r"(PARM: )?(yes|no)\b|none|–", row[5]), row


def test_a_method_of_rewards_prompts_and_searches_is_a_small_file():
    """Without those that are an option of a file of several methods."""
    named = [path for row in methods("catalogue_rewards.md") for path in re.findall(r"`([\w/]+\.py)`", row[3])]
    sizes = [
        len((ROOT / path).read_text(encoding="utf-8").splitlines())
        for path in {*named}
        if not path.startswith("policy/decoding/")
    ]
    assert len(sizes) >= 20 and median(sizes) <= 40 and max(sizes) <= 120


@pytest.mark.slow
def test_the_notebook_runs_and_shows_tables_and_a_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = code_cells(NOTEBOOKS / "quickstart.ipynb")
    assert sum(len([line for line in cell.splitlines() if line]) for cell in cells) <= 15
    names: dict[str, object] = {"__name__": "__main__"}
    shown = [shown_by(cell, names) for cell in cells]
    assert all("<table" in page for page in shown)
    assert "data:image/png;base64," in shown[2] and "95 % intervals" in shown[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["guided_decoding", "own_reward"])
def test_every_cell_of_a_notebook_runs_and_shows_a_table(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    assert all("<table" in shown_by(cell, names) for cell in code_cells(NOTEBOOKS / f"{name}.ipynb"))


def code_cells(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def shown_by(cell: str, names: dict[str, object]) -> str:
    """Run a cell as a notebook does, and return the HTML of its last expression."""
    *statements, last = ast.parse(cell).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return value._repr_html_()


@pytest.mark.slow
def test_the_functions_of_the_page_on_own_code_work_in_its_commands(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = None
    for block in blocks(OWN_CODE, r"\{code-block\} python"):
        if header := re.match(r"# (my_\w+\.py)\n", block):
            path = tmp_path / header[1]
        assert path is not None
        path.write_text((path.read_text() if path.exists() else "") + block + "\n\n")
    prompts = [{"prompt": f"What is {index}?", "answer": str(index)} for index in range(8)]
    cases = [{"question": row["prompt"], "good": "short", "bad": ["long text"], "topic": "x"} for row in prompts]
    for name, rows in (("prompts", prompts), ("cases", cases)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = "--max_steps 1 --per_device_train_batch_size 8 --disable_tqdm True"
    formulas = "--advantage my_formulas.py:centred(scale=2) --loss my_formulas.py:soft_clipped"
    transforms = "--reward_transform my_formulas.py:halved --advantage_transform my_formulas.py:positive"
    for command in (
        f"rl --model {world}/policy --data prompts.jsonl --reward my_rewards.py:exact short=my_rewards.py:brevity "
        f"{formulas} {transforms} {small} --num_generations 4 --max_completion_length 8 --output policy",
        f"train --model {world}/policy --data {world}/train.jsonl --loss my_formulas.py:hinge(margin=2) {small} "
        "--output rm",
        f"judge --data {world}/test.jsonl --kind my_judges.py:longer --bootstrap_samples 20 --output judged",
        "eval --benchmark my_suites.py:best_of --model my_rewards.py:brevity --data cases.jsonl --bootstrap_samples 20 "
        "--baselines none --output eval",
    ):
        assert main(command.split()) == 0, command
    overall = json.loads((tmp_path / "eval" / "summary.json").read_text())["rows"][0]["overall"]
    assert overall[0] == 1.0  # the shorter response is the right one in every case
