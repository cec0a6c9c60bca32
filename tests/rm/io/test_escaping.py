import csv
import io
import json
import re
from contextvars import ContextVar

import pytest
from rewardlab.apps.inspector.tabs.judgments.export import COLUMNS, _write_csv
from rewardlab.apps.inspector.tabs.studies.queries import report_html
from rewardlab.apps.inspector.texts.rendering import HEADINGS, TAGS
from rewardlab.apps.publishing.model_card import text as card_text
from rewardlab.apps.runs import run_folder as runs
from rewardlab.benchmarks import compare
from rewardlab.benchmarks import leaderboard as board
from rewardlab.benchmarks import report as render
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.scorers import StoredScores
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.types import Case
from rewardlab.rm.data import lint
from rewardlab.rm.io.escaping import CONTROL, escape_formula, escape_markdown, escape_terminal, redact, terminal_json
from rewardlab.rm.io.markdown import table
from rewardlab.rm.types import PreferencePair, user_turn

from tests.apps.inspector.payloads import PAYLOADS

RAW = re.compile(r"<(?=[A-Za-z/!?])")
SPREADSHEET = [*PAYLOADS, "=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1", "\r=1+1", " =cmd|' /C calc'!A0", "\n=1"]


def quiet_markdown(text: str) -> bool:
    """No raw HTML, no images, no links that run something, nothing for a terminal."""
    image = re.search(r"(?<!\\)!\[", text)
    script = re.search(r"(?<!\\)\][(:]\s*(javascript|data):", text, re.IGNORECASE)
    return not (RAW.search(text) or image or script or CONTROL.search(text))


def test_a_terminal_is_given_nothing_to_obey_and_json_the_same_values(capsys):
    for payload in PAYLOADS:
        runs.log(payload)
        said = capsys.readouterr().err
        assert not CONTROL.search(said) and said.count("\n") == payload.count("\n") + 1
        line = terminal_json(json.dumps({"name": payload}, ensure_ascii=False))
        assert json.loads(line) == {"name": payload} and not CONTROL.search(line)
    assert escape_terminal("a\tb\nc\u200d") == "a\tb\nc\u200d", "line ends and tabs stay"


def test_a_message_of_an_error_is_told_without_escapes(tmp_path, capsys):
    from rewardlab.apps.cli import main

    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"\x1b[2J\u202e": 1}) + "\n")
    assert main(["lint", str(path)]) == 5
    assert main(["\x1b[31mevil"]) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and "\u202e" not in out + err and "no command '\ufffd[31mevil'" in err


def test_a_table_keeps_its_columns_and_runs_nothing():
    for payload in PAYLOADS:
        lines = table(["model", payload], [[payload, "1"], ["b", "2"]]).split("\n")
        assert len(lines) == 4 and {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}, payload
        assert all(map(quiet_markdown, lines)), payload
        assert quiet_markdown(card_text(payload)) and "\n" not in card_text(payload)
    assert escape_markdown("p < 0.05, `a`, **b**, [c](d.md)") == "p < 0.05, `a`, **b**, [c](d.md)"


@pytest.fixture(scope="module")
def evaluations():
    areas = PAYLOADS[:3] * len(PAYLOADS)
    named = zip(PAYLOADS, areas, strict=False)
    cases = [Case(one, user_turn(one), (one, f"{one} B"), (0,), area) for one, area in named]
    first = {case.id: (1.0, 0.0) for case in cases}
    second = first | {PAYLOADS[0]: (0.0, 1.0), PAYLOADS[6]: PAYLOADS[1]}
    scorers = [StoredScores(PAYLOADS[6], first, contract=PAYLOADS[7]), StoredScores(PAYLOADS[16], second)]
    return cases, evaluate(pairs(), cases, scorers, notes=PAYLOADS, samples=20)


def test_a_report_is_inert_in_a_file_and_on_the_page_of_the_inspector(evaluations):
    report = evaluations[1].report
    text = render.markdown(report)
    assert all(map(quiet_markdown, text.split("\n")))
    tags = {*re.findall(r"<([A-Za-z!?][^\s>]*)", report_html(text))}
    assert tags <= TAGS | HEADINGS and "img" not in tags
    assert len([line for line in text.split("\n") if line.startswith("- ")]) == 1 + len(PAYLOADS + [*report.findings])


def test_a_comparison_a_board_and_findings_of_the_linter_are_inert(evaluations):
    cases, found = evaluations
    (first, before), (second, after) = found.judgments.items()
    compared = compare.compare(pairs(), cases, (first, before), (second, after), samples=20, seed=0)
    assert all(map(quiet_markdown, compare.markdown(compared).split("\n"))) and len(compared.flips) == 1
    judged = {name: ("model", judgments) for name, judgments in found.judgments.items()}
    made = board.board(pairs(), cases, judged)
    assert all(map(quiet_markdown, board.markdown([made]).split("\n")))
    rows = list(csv.reader(io.StringIO(board.as_csv([made]))))
    assert len(rows) == 3 and all(not cell.startswith(("=", "@")) for row in rows for cell in row)
    made = [PreferencePair(one, user_turn(one), one, f"{one} {one}") for one in PAYLOADS]
    text = lint.markdown(lint.lint(made), lambda place: made[place].id, len(made))
    assert all(map(quiet_markdown, text.split("\n")))


def test_no_cell_is_a_formula(tmp_path):
    for payload in SPREADSHEET:
        row = dict.fromkeys(COLUMNS) | {"case": payload, "note": payload, "margin": -1.5}
        assert _write_csv(tmp_path / "a.csv", iter([row])) == 1, payload
        with (tmp_path / "a.csv").open(newline="") as file:
            (found,) = csv.DictReader(file)
        assert not found["note"].lstrip().startswith(("=", "+", "-", "@")) and found["margin"] == "-1.5", payload
        assert found["note"] in (payload, f"'{payload}") and escape_formula(payload) == found["case"]


def test_a_manifest_holds_no_secret_and_what_only_sounds_like_one_stays(tmp_path, monkeypatch):
    for words in [
        ["serve", "--token", "s3cret-value"],
        ["serve", "--token=s3cret-value"],
        ["rl", "--reward", "judge(endpoint=http://h/v1, api_key=s3cret-value, kind=pairwise)"],
        ["judge", "--api-key", "s3cret-value", "--model", "m"],
        ["judge", "--endpoint", "http://me:s3cret-value@host/v1"],
        ["score", "--model", "x", "hf_s3cret0value0s3cret0value"],
        ["eval", "--data", "http://h/a?token=s3cret-value&b=1"],
    ]:
        monkeypatch.setattr(runs, "COMMAND", ContextVar("command", default=("rewardlab", *words)))
        runs.write_manifest(tmp_path, data=[], seed=0, started=0.0)
        told = (tmp_path / "manifest.json").read_text()
        assert "s3cret" not in told and "***" in told and words[0] in told
    words = ["--max_tokens", "512", "--batch_tokens=4096", "--tokenizer", "org/words", "--token_env", "MY_TOKEN", "n=1"]
    assert redact(words) == words
