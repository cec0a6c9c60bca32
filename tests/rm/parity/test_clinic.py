"""Every page of docs/clinic: its code gives other scores than the model, and `parity` names the cause."""

import json
import re
from pathlib import Path

import pytest
from rewardlab.apps.cli import main

from tests.rm.spread_models import LIMIT, examples, make

CLINIC = Path(__file__).resolve().parents[3] / "docs" / "clinic"
PAGES = sorted(page for page in CLINIC.glob("*.md") if page.name != "index.md")


def code_of(page: Path) -> str:
    (block,) = re.findall(r"^```\{code-block\} python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return block


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model in runs/rm whose template writes BOS."""
    monkeypatch.chdir(tmp_path)
    made = make(bos=True)
    made.save(Path("runs/rm"))
    return made


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_gives_two_numbers_and_parity_names_its_cause(page, model, capsys):
    long = page.stem == "truncation_side"
    conversations = [one for one in examples() if long or model.encoder.encode(one).length <= LIMIT]
    turns = [[*one.prompt, {"role": "assistant", "content": one.completion}] for one in conversations]
    lines = [json.dumps({"messages": messages}) + "\n" for messages in turns]
    Path("conversations.jsonl").write_text("".join(lines), encoding="utf-8")
    names: dict = {}
    exec(compile(code_of(CLINIC / "index.md"), "index", "exec"), names)
    exec(compile(code_of(page), page.stem, "exec"), names)
    theirs = [json.loads(line)["score"] for line in Path("theirs.jsonl").read_text(encoding="utf-8").splitlines()]
    ours = model.rate(conversations)[:, 0]
    assert abs(ours - theirs).max() > 1e-4 * ours.std()
    assert main(["parity", "runs/rm", "--against", "theirs.jsonl", "--fresh", "False"]) == 5
    cause = re.search(r"says: \*\*(.*?)\*\*", page.read_text(encoding="utf-8"))
    assert cause and cause[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "code"),
    [(None, 0), ({"prompt": "a", "completion": "b"}, 3), ({"prompt": "a", "completion": "b", "score": "x"}, 3)],
)
def test_the_models_own_scores_agree_and_bad_ones_are_refused(row, code, model, capsys):
    scores = model.rate(examples())[:, 0]
    rows = [
        {"prompt": list(example.prompt), "completion": example.completion, "reward": float(score)}
        for example, score in zip(examples(), scores, strict=True)
    ]
    Path("theirs.jsonl").write_text("\n".join(map(json.dumps, [*rows, *([row] if row else [])])), encoding="utf-8")
    assert main(["parity", "runs/rm", "--against", "theirs.jsonl", "--fresh", "False"]) == code, capsys.readouterr().err
