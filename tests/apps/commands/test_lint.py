"""`rewardlab lint` as a user runs it, on a file with every defect planted."""

import datetime
import json
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rewardlab.apps.cli import main
from rewardlab.rm.data import lint
from rewardlab.rm.data.pairs import load_pairs

from tests.apps.conftest import write

WORDS = [f"{a}{b}" for a in ("ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "su") for b in "bcdfghklmnprstvwz"]
BENCHMARK = "tell me in a few words how the tall ships of the northern fleet were built and sailed"


def text(draw: random.Random, n: int) -> str:
    return " ".join(draw.choices(WORDS, k=n))


def rows(n: int, seed: int = 0) -> list[dict]:
    draw = random.Random(seed)
    return [
        {"id": str(i), "prompt": text(draw, 12), "chosen": text(draw, draw.randint(20, 60)), "rejected": text(draw, 40)}
        for i in range(n)
    ]


def planted() -> tuple[list[dict], dict[str, set[int]]]:
    """Rows with every defect, and the numbers (from 0) of the rows that have it."""
    given = rows(40)
    given[1]["rejected"], given[2]["rejected"] = "  ", given[2]["chosen"]
    given[3]["rejected"] = given[3]["chosen"].upper() + "!"
    given[4] |= {"score_chosen": 3.0, "score_rejected": 3.0}
    given[6] = given[5] | {"id": "6"}
    given[7] |= {"prompt": given[8]["prompt"], "chosen": given[8]["rejected"], "rejected": given[8]["chosen"]}
    given[9]["chosen"] += " <|im_end|>"
    given[10]["prompt"], given[11]["prompt"] = BENCHMARK.title() + "?", BENCHMARK.replace("northern", "southern")
    where = {lint.UNUSABLE: {1, 2}, lint.NEAR_IDENTICAL: {3}, lint.TIE: {4}, lint.REPEATED: {6}}
    where |= {lint.CONTRADICTED: {7, 8}, lint.MARKUP: {9}, lint.OVERLAP: {10}, lint.NEAR_OVERLAP: {11}}
    return given, where


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory) -> str:
    row = {"prompt": BENCHMARK, "chosen": "a", "rejected": "b", "subset": "alpacaeval-easy", "id": 1}
    return write(tmp_path_factory.mktemp("bench") / "rewardbench.jsonl", [row])


def found_in(folder: Path) -> dict[str, set[int]]:
    """Reason -> rows from 0, as findings.jsonl names them by line."""
    found: dict[str, set[int]] = {}
    for line in (folder / "findings.jsonl").read_text().splitlines():
        one = json.loads(line)
        found.setdefault(one["reason"], set()).add(int(one["place"].rpartition(":")[2]) - 1)
    return found


def test_every_planted_defect_is_found_and_fix_writes_what_is_left_and_a_list_of_the_rest(tmp_path, benchmark, capsys):
    given, where = planted()
    data, out, clean = write(tmp_path / "pairs.jsonl", given), tmp_path / "lint", tmp_path / "clean.jsonl"
    words = ["lint", data, "--against", f"rewardbench={benchmark}"]
    assert main([*words, "--output", str(out)]) == 5
    assert found_in(out) == where
    told, report = capsys.readouterr().err, (out / "report.md").read_text()
    assert "near-identical completions 1" in told and "--fix FILE writes the rows without findings" in told
    assert "| rewardbench | 1 | 1 | 1 | 1 |" in report and f"| {lint.OVERLAP} | 1 | line " in report
    assert "No word, position or length predicts the label." in report
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["rows"] == 40 and set(manifest["data"]) == {data, benchmark} and manifest["seed"] is None
    assert main([*words, "--fix", str(clean)]) == 0
    facts = json.loads(capsys.readouterr().out)
    gone = set().union(*(own for reason, own in where.items() if reason != lint.TIE))
    kept = [json.loads(line) for line in clean.read_text().splitlines()]
    assert kept == [row for place, row in enumerate(given) if place not in gone]
    left_out = [json.loads(line) for line in (tmp_path / "clean.left_out.jsonl").read_text().splitlines()]
    assert {int(one["place"].rpartition(":")[2]) - 1 for one in left_out} == gone
    assert all(one["row"] == given[int(one["place"].rpartition(":")[2]) - 1] for one in left_out)
    assert facts["kept"] + facts["dropped"] == 40 and facts["dropped"] == len(gone)
    assert main([*words, "--fix", str(clean)]) == 2 and "--overwrite" in capsys.readouterr().err
    words[1] = str(clean)
    assert main([*words, "--fix", str(tmp_path / "2.jsonl")]) == 0
    assert json.loads(capsys.readouterr().out)["dropped"] == 0  # the ties alone are left, and stay


def test_a_repeated_id_is_unusable_and_what_fix_writes_can_be_loaded(tmp_path, capsys):
    given = rows(4)
    given[2]["id"] = given[0]["id"]
    data, clean = write(tmp_path / "pairs.jsonl", given), str(tmp_path / "clean.jsonl")
    assert main(["lint", data]) == 5
    assert "line 3 (duplicate id: '0' is the id of line 1 too)" in capsys.readouterr().err
    assert main(["lint", data, "--fix", clean]) == 0
    assert [pair.id for pair in load_pairs(clean)[0]] == ["0", "1", "3"]
    assert main(["lint", data, clean]) == 5, "ids of different files may be the same"
    assert json.loads((tmp_path / "clean.left_out.jsonl").read_text())["row"] == given[2]


def test_the_report_names_a_path_once_and_escapes_for_html_in_the_file_alone(tmp_path, capsys):
    given = [row | {"chosen": f"{row['chosen']} </s>"} for row in rows(3)] + [{"prompt": "a"}] * 2
    data, out = write(tmp_path / "pairs.jsonl", given), tmp_path / "lint"
    assert main(["lint", data, "--output", str(out)]) == 5
    report, shown = (out / "report.md").read_text(), capsys.readouterr().err.partition("rewardlab lint:")[0]
    cells = "| template tokens in the text | 3 | line 1, line 2, line 3 ('</s>' in chosen) |"
    assert cells in shown and cells.replace("</s>", "&lt;/s>") in report
    assert "| unusable | 2 | line 4, line 5 (no column 'chosen'" in shown and shown.count(str(tmp_path)) == 1
    other = write(tmp_path / "more.jsonl", given[-1:])
    assert main(["lint", data, other]) == 5
    assert "pairs.jsonl, line 4, pairs.jsonl, line 5, more.jsonl, line 1 (no column" in capsys.readouterr().err


def test_fix_writes_dates_as_text_and_decimals_as_numbers_and_refuses_binary_data(tmp_path, capsys):
    day, moment = datetime.date(2024, 1, 2), datetime.datetime(2024, 1, 2, 3, 4, 5)
    more = {"day": day, "created": moment, "margin": Decimal("1.5"), "took": datetime.timedelta(seconds=90)}
    given = [row | more for row in rows(3)]
    pq.write_table(pa.Table.from_pylist(given), tmp_path / "pairs.parquet")
    assert main(["lint", str(tmp_path / "pairs.parquet"), "--fix", str(tmp_path / "clean.jsonl")]) == 0
    written = [json.loads(line) for line in (tmp_path / "clean.jsonl").read_text().splitlines()]
    stated = {"day": "2024-01-02", "created": "2024-01-02T03:04:05", "margin": 1.5, "took": "0:01:30"}
    assert written == [row | stated for row in rows(3)]
    pq.write_table(pa.Table.from_pylist([row | {"raw": b"\xff"} for row in rows(3)]), tmp_path / "raw.parquet")
    assert main(["lint", str(tmp_path / "raw.parquet"), "--fix", str(tmp_path / "raw.jsonl")]) == 3
    assert "binary data cannot be written as JSON: b'\\xff'; remove its column" in capsys.readouterr().err
    assert not [*tmp_path.glob("raw*.jsonl")]


def test_fix_writes_half_characters_of_unread_columns_and_no_column_of_its_own(tmp_path, capsys):
    """The first ended in an error that was not foreseen, and the second had `completions[].score: true`."""
    given = [row | {"note": "cut \ud83d"} for row in rows(2)]
    clean = str(tmp_path / "clean.jsonl")
    assert main(["lint", write(tmp_path / "half.jsonl", given), "--fix", clean]) == 0
    assert [json.loads(line) for line in Path(clean).read_text().splitlines()] == given
    ranked = [{"rank": rank, "completion": f"answer {rank}", "score": 1.5} for rank in range(2)]
    data = write(tmp_path / "ranked.jsonl", [{"context": "Why?", "completions": ranked}])
    assert main(["lint", data, "--fix", clean, "--overwrite"]) == 0
    assert json.loads(Path(clean).read_text()) == {"prompt": "Why?", "chosen": "answer 0", "rejected": "answer 1"}
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["ignored"] == {"completions[].score": 1}


def test_clean_data_pass_and_a_planted_leak_fails_the_check(tmp_path, capsys):
    clean = rows(300)
    assert main(["lint", write(tmp_path / "pairs.jsonl", clean)]) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 300, "reasons": {}, "leaks": []}
    leak = [row | {"chosen": row["chosen"] + " indeed"} for row in clean]
    first = [{"prompt": row["prompt"], "answers": [row["chosen"], row["rejected"]], "best": 0} for row in clean]
    for given, sentence in (
        (leak, "the chosen completion ends with 'indeed': right in 100.0% of 300 pairs"),
        (first, "the first completion is chosen: right in 100.0% of 300 pairs"),
    ):
        assert main(["lint", write(tmp_path / "given.jsonl", given)]) == 5
        assert sentence in capsys.readouterr().err


def test_a_models_truncation_counts(tmp_path):
    given = rows(40)
    model, data = tmp_path / "rm", write(tmp_path / "train.jsonl", given)
    words = ["train", "--data", data, "--small_hidden", "32", "--small_vocabulary", "300", "--max_steps", "1"]
    assert main([*words, "--disable_tqdm", "True", "--output", str(model)]) == 0
    given[7] |= {"chosen": " ".join(["baba"] * 900), "rejected": " ".join(["baba"] * 901)}
    out = tmp_path / "lint"
    data = write(tmp_path / "pairs.jsonl", given)
    assert main(["lint", data, "--model", str(model), "--max_length", "128", "--output", str(out)]) == 5
    found = found_in(out)
    assert 7 in found[lint.TOO_LONG] and found[lint.SAME_WHEN_CUT] == {7}  # 128 tokens of its end are the same word


def test_a_benchmark_of_several_files_counts_whole(tmp_path, benchmark, capsys):
    """The second file of the name has a prompt that nobody asks."""
    row = {"prompt": "never asked", "chosen": "a", "rejected": "b", "subset": "alpacaeval-easy", "id": 2}
    other = write(tmp_path / "other.jsonl", [row])
    data = write(tmp_path / "pairs.jsonl", [rows(1)[0] | {"prompt": BENCHMARK}])
    both = [f"rewardbench={benchmark}", f"rewardbench={other}"]
    assert main(["lint", data, "--against", *both]) == 5 and main(["lint", data, "--against", *both[::-1]]) == 5
    assert capsys.readouterr().err.count("| rewardbench | 1 | 1 | 1 | 0 |") == 2


def test_bad_settings_are_told(tmp_path, capsys):
    for words, sentence in (
        (["--max_length", "9"], "--max_length belongs to --model"),
        (["--encoder", "e"], "--encoder belongs to --against"),
        (["--fix", "x.csv"], "--fix must end with .jsonl"),
        (
            ["--keep", "tie", "ties"],
            "--keep must be one of near-identical completions, identical after truncation, tie, ",
        ),
        (["--keep", "unusable"], "got 'unusable'"),
    ):
        assert main(["lint", write(tmp_path / "pairs.jsonl", rows(5)), *words]) == 2, words
        assert sentence in capsys.readouterr().err, words
