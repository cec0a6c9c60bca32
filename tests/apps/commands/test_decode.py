"""`rewardlab decode` as a user sees it."""

import errno
import io
import json
import shutil
import sys

import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.runs.resumable_rows import ResumableRows
from rewardlab.rm.adapters.adapter import WEIGHTS
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from safetensors.torch import load_file, save_file

from tests.apps.commands.conftest import save_policy

NAMES = ("helpful", "harmless")
PROMPTS = "tell me about bees\n\nhow do i start with herbs\nfriend describe ponds\n"


def save_arm(base, folder, **changes) -> str:
    import torch

    settings = AdapterSettings(**{"kind": "moslora", "objectives": NAMES, "embedding": "random"} | changes)
    model = load_autoregressive(base, beta=0.1, adapter=settings)
    torch.manual_seed(3)
    for key, value in model.adapter.state().items():
        if "objectives" not in key and not key.endswith(".A"):
            value.add_(0.2 * torch.randn_like(value))
    model.save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    return save_policy(tmp_path_factory.mktemp("decode") / "base")


@pytest.fixture(scope="module")
def arm(base, tmp_path_factory) -> str:
    return save_arm(base, tmp_path_factory.mktemp("decode") / "arm")


@pytest.fixture
def prompts(tmp_path) -> str:
    (tmp_path / "prompts.txt").write_text(PROMPTS)
    return str(tmp_path / "prompts.txt")


def run(capsys, *words):
    code = main(["decode", "--max_new_tokens", "8", *words])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.strip().split("\n") if line.startswith("{")], err


def test_a_single_prompt_from_stdin_streams_as_text(arm, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("tell me about bees\n"))
    assert main(["decode", "--arm", arm, "--preference", "helpful=1,harmless=0", "--max_new_tokens", "6"]) == 0
    first, last = capsys.readouterr().out.strip().split("\n")
    assert json.loads(last)["completions"] == 1 and not first.startswith("{")


def test_several_completions_are_text_on_a_terminal_and_json_lines_elsewhere(arm, prompts, capsys, monkeypatch):
    words = ["--arm", arm, "--preference", "helpful=0.25,harmless=0.75", "--data", prompts]
    code, lines, _ = run(capsys, *words)
    assert code == 0 and len(lines) == 4
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["decode", "--max_new_tokens", "8", *words]) == 0
    out = capsys.readouterr().out
    assert (
        '{"id"' not in out and f"[{lines[0]['id']}, helpful 0.25, harmless 0.75]\n{lines[0]['completion']}\n\n" in out
    )
    assert run(capsys, *words, "--json")[1][:-1] == lines[:-1]


def test_the_same_seed_gives_the_same_answer_whatever_else_is_asked(arm, prompts, tmp_path, capsys):
    (tmp_path / "one.txt").write_text("tell me about bees\n")
    asked = ("--arm", arm, "--preference", "helpful=0.5,harmless=0.5", "--data")
    alone, together = (run(capsys, *asked, source)[1] for source in (str(tmp_path / "one.txt"), prompts))
    assert together[-1]["completions"] == together[-1]["decoded"] == 3 and together[0]["finished"] in ("length", "eos")
    assert together[-1]["forwards"] <= 8  # one backbone for base and guide
    _, lines, _ = run(capsys, *asked, prompts, "--output", str(tmp_path / "all.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["1", "3", "4"] and lines[-1]["decoded"] == 3
    assert alone[-1]["tokens"] == len(rows[0]["tokens"])
    assert {line["id"]: line["completion"] for line in together[:-1]} == {row["id"]: row["completion"] for row in rows}
    assert len(rows[0]["base"]) == len(rows[0]["guide"]) == len(rows[0]["mixed"]) == len(rows[0]["tokens"])
    assert len(rows[0]["pieces"]) == len(rows[0]["tokens"])
    assert "".join(rows[0]["pieces"]).startswith(rows[0]["completion"])
    assert {row["weight"] for row in rows} == {1.0}


def test_a_cut_off_output_is_continued_to_the_same_file(arm, prompts, tmp_path, capsys, monkeypatch):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    asked = ("--arm", arm, "--sweep", "3", "--data", prompts, "--output")
    assert run(capsys, *asked, str(whole))[0] == 0
    rows = [json.loads(line) for line in whole.read_text().splitlines()]
    assert [rows[end]["preference"] for end in (0, -1)] == [{"helpful": n, "harmless": 1 - n} for n in (0, 1)]
    monkeypatch.setattr("rewardlab.apps.commands.decode.run.ResumableRows.finish", lambda *_: sys.exit("killed"))
    with pytest.raises(SystemExit, match="killed"):
        run(capsys, *asked, str(cut))
    monkeypatch.undo()
    partial = tmp_path / ".cut.jsonl.partial"
    partial.write_text(partial.read_text()[:-2000])
    kept = partial.read_text().count("\n")
    assert 0 < kept < 9
    code, lines, _ = run(capsys, *asked, str(cut), "--resume")
    assert code == 0 and lines[-1]["decoded"] == 9 - kept
    completions = [json.loads(line)["completion"] for line in cut.read_text().splitlines()]
    assert completions == [row["completion"] for row in rows]
    assert not partial.exists()
    assert run(capsys, *asked, str(cut))[0] == 2  # never replaced unasked


def test_a_cut_off_output_is_only_dropped_when_told_and_its_last_line_decoded_again(base, prompts, tmp_path, capsys):
    partial, output = tmp_path / ".out.jsonl.partial", tmp_path / "out.jsonl"
    partial.write_text('{"key": "a"}\n')
    asked = ("--base", base, "--data", prompts, "--output", str(output))
    code, _, err = run(capsys, *asked)
    assert code == 2 and "continue it with --resume, or start over with --overwrite" in err
    assert partial.read_text() == '{"key": "a"}\n'
    assert run(capsys, *asked, "--overwrite")[0] == 0 and not partial.exists()
    output.unlink()
    partial.write_bytes('{"key": "a", "completion": "é'.encode()[:-1])  # cut off within a character
    code, lines, _ = run(capsys, *asked, "--resume")
    assert code == 0 and lines[-1]["decoded"] == 3 and len(output.read_text().splitlines()) == 3


def test_completions_of_other_weights_are_never_mixed_in(arm, prompts, tmp_path, capsys, monkeypatch):
    folder, output = tmp_path / "arm", tmp_path / "out.jsonl"
    shutil.copytree(arm, folder)
    asked = ("--preference", "helpful=1,harmless=0", "--data", prompts, "--output", str(output))
    monkeypatch.setattr("rewardlab.apps.commands.decode.run.ResumableRows.finish", lambda *_: sys.exit("killed"))
    with pytest.raises(SystemExit, match="killed"):
        run(capsys, "--arm", str(folder), *asked)
    monkeypatch.undo()
    tensors = load_file(folder / WEIGHTS)
    name = next(name for name in tensors if name.endswith(".B"))
    save_file(tensors | {name: tensors[name] + 0.1}, folder / WEIGHTS)
    code, _, err = run(capsys, "--arm", str(folder), *asked, "--resume")
    assert code == 2 and "3 of its 3 completions come from other weights, prompts or settings" in err
    code, lines, _ = run(capsys, "--arm", arm, *asked, "--resume")  # the same weights in another folder
    assert code == 0 and lines[-1]["decoded"] == 0


def test_a_guide_per_objective_shares_the_bases_weights(base, prompts, tmp_path, capsys):
    arms = [save_arm(base, tmp_path / name, kind="lora", objectives=(name,)) for name in NAMES]
    named = [f"{name}={folder}" for name, folder in zip(NAMES, arms, strict=True)]
    asked = ("--data", prompts, "--temperature", "0")
    code, lines, _ = run(capsys, "--base", base, "--arm", *named, "--preference", "helpful=0.5,harmless=0.5", *asked)
    assert code == 0 and lines[-1]["forwards"] % 3 == 0
    code, lines, _ = run(capsys, "--base", base, "--arm", *named, "--preference", "helpful=1,harmless=0", *asked)
    assert lines[-1]["forwards"] % 2 == 0  # the other guide is not read
    _, _, err = run(capsys, "--base", base, "--arm", *arms, *asked)
    assert "several reward models must be given as OBJECTIVE=FOLDER each" in err


def test_unguided_completions_have_weight_0_and_no_preference(base, prompts, capsys):
    code, lines, _ = run(capsys, "--base", base, "--data", prompts)
    assert code == 0 and {(line["weight"], line["preference"]) for line in lines[:-1]} == {(0.0, None)}
    code, _, err = run(capsys, "--base", base, "--data", prompts, "--preference", "helpful=1")
    assert code == 2 and "--preference belongs to --arm; add --arm" in err


def test_bad_input_gets_one_sentence(arm, prompts, capsys):
    for words, sentence in (
        (["--preference", "helpful=0.5,harmless=0.6"], "sums to 1.1"),
        (["--preference", "helpful"], "a preference is name=share"),
        (["--preference", "helpful=1,harmless=0", "--sweep", "3"], "remove one of the two settings"),
        (["--preference", "helpful=1,harmless=0", "--temperature", "-1"], "--temperature must be at least 0 and"),
        (["--preference", "helpful=1,harmless=0", "--output", "answers.txt"], "--output must end with .jsonl"),
        (["--preference", "helpful=1,harmless=0", "--data", "nowhere.txt"], "--data: no file nowhere.txt"),
    ):
        data = [] if "--data" in words else ["--data", prompts]
        code, _, err = run(capsys, "--arm", arm, *words, *data)
        assert code == 2 and sentence in err and "Traceback" not in err, words


def test_prompts_that_are_too_long_or_missing_are_refused_before_anything_is_decoded(base, tmp_path, capsys):
    (tmp_path / "long.txt").write_text(f"describe bees\ntell me about {'bees ' * 5000}\n")
    asked = ("--data", str(tmp_path / "long.txt"), "--output", str(tmp_path / "out.jsonl"), "--batch_size", "1")
    code, _, err = run(capsys, "--base", base, *asked)
    assert code == 3 and "shorten it to" in err and "(the prompt with id 2)" in err
    assert [path.name for path in tmp_path.iterdir()] == ["long.txt"]
    (tmp_path / "empty.txt").write_text("\n\n")
    code, _, err = run(capsys, "--base", base, "--data", str(tmp_path / "empty.txt"))
    assert code == 3 and "no prompt in" in err
    assert run(capsys, "--data", str(tmp_path / "empty.txt"))[0] == 2
    for text, sentence in ((" ", "empty prompt"), ("bees \ud800", "an unpaired surrogate")):
        (tmp_path / "p.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in ("bees", text)))
        code, _, err = run(capsys, "--base", base, "--data", str(tmp_path / "p.jsonl"))
        assert code == 3 and f"p.jsonl:2: {sentence}" in err, err


def test_on_a_full_disk_the_completions_stay_and_the_run_goes_on(base, prompts, tmp_path, capsys, monkeypatch):
    words, append = ["--base", base, "--data", prompts, "--output", str(tmp_path / "a.jsonl")], ResumableRows.append

    def full(rows: ResumableRows, *row) -> None:
        if rows.partial.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        append(rows, *row)

    monkeypatch.setattr(ResumableRows, "append", full)
    code, _, err = run(capsys, *words)
    assert code == 3 and "a.jsonl.partial: no space left on device" in err and "go on with --resume" in err
    monkeypatch.setattr(ResumableRows, "append", append)
    code, (summary,), _ = run(capsys, *words, "--resume")
    assert (code, summary["completions"], summary["decoded"]) == (0, 3, 2)
