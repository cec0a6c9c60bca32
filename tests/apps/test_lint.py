"""`rewardlab lint` as a user runs it, on a file with every defect planted."""

import json
import random
import time
from pathlib import Path

import pytest
from rewardlab.apps.cli import main
from rewardlab.rm.lint import (
    CONTRADICTED,
    MARKUP,
    NEAR_IDENTICAL,
    NEAR_OVERLAP,
    OVERLAP,
    REPEATED,
    SAME_WHEN_CUT,
    TIE,
    TOO_LONG,
    UNUSABLE,
)

WORDS = [f"{a}{b}" for a in ("ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "su") for b in "bcdfghklmnprstvwz"]
BENCHMARK = "tell me in a few words how the tall ships of the northern fleet were built and sailed"


def write(path: Path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def text(draw: random.Random, n: int) -> str:
    return " ".join(draw.choices(WORDS, k=n))


def rows(n: int, seed: int = 0) -> list[dict]:
    draw = random.Random(seed)
    return [
        {"id": str(i), "prompt": text(draw, 12), "chosen": text(draw, draw.randint(20, 60)), "rejected": text(draw, 40)}
        for i in range(n)
    ]


def planted(n: int) -> tuple[list[dict], dict[str, set[int]]]:
    """Rows with 20 of each defect, and the numbers (from 0) of the rows that have it."""
    given, where, free = rows(n), {}, iter(random.Random(1).sample(range(n), n))

    def take(reason: str, k: int = 20) -> list[int]:
        own = [next(free) for _ in range(k)]
        where.setdefault(reason, set()).update(own)
        return own

    for row in take(UNUSABLE):
        given[row]["rejected"] = given[row]["chosen"] if row % 2 else "  "
    for row in take(NEAR_IDENTICAL):
        given[row]["rejected"] = given[row]["chosen"].upper() + "!"
    for row in take(TIE):
        given[row] |= {"score_chosen": 3.0, "score_rejected": 3.0}
    for row, other in zip(take(REPEATED), take("the first of twins"), strict=True):
        first, second = sorted((row, other))
        where[REPEATED] = where[REPEATED] - {first} | {second}
        given[second] = given[first] | {"id": str(second)}
    pair = take(CONTRADICTED, 40)
    for row, other in zip(pair[::2], pair[1::2], strict=True):
        given[row] |= {"prompt": given[other]["prompt"], "chosen": given[other]["rejected"]}
        given[row]["rejected"] = given[other]["chosen"]
    for row in take(MARKUP):
        given[row]["chosen"] += " <|im_end|>"
    for row in take(OVERLAP):
        given[row]["prompt"] = BENCHMARK.title() + "?"
    for row in take(NEAR_OVERLAP):
        given[row]["prompt"] = BENCHMARK.replace("northern", "southern")
    del where["the first of twins"]
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


def test_every_planted_defect_of_20_000_pairs_is_found_and_nothing_else(tmp_path, benchmark, capsys):
    given, where = planted(20_000)
    data, out, began = write(tmp_path / "pairs.jsonl", given), tmp_path / "lint", time.process_time()
    assert main(["lint", data, "--against", f"rewardbench={benchmark}", "--output", str(out)]) == 5
    assert time.process_time() - began < 60 * 4  # a bound on this machine's worst hour; seconds stand in the notes
    assert found_in(out) == where
    told = capsys.readouterr().err
    assert "near-identical answers 20" in told and "--fix FILE writes the rows without findings" in told
    report = (out / "report.md").read_text()
    assert f"| {OVERLAP} | 20 | {data}:" in report and "No word, position or length tells the label." in report


def test_fix_writes_what_is_left_and_a_list_of_the_rest(tmp_path, benchmark, capsys):
    given, where = planted(400)
    data, clean = write(tmp_path / "pairs.jsonl", given), tmp_path / "clean.jsonl"
    words = ["lint", data, "--against", f"rewardbench={benchmark}", "--fix", str(clean)]
    assert main(words) == 0
    out = json.loads(capsys.readouterr().out)
    gone = set().union(*(own for reason, own in where.items() if reason != TIE))
    kept = [json.loads(line) for line in clean.read_text().splitlines()]
    assert kept == [row for place, row in enumerate(given) if place not in gone]
    left_out = [json.loads(line) for line in (tmp_path / "clean.left_out.jsonl").read_text().splitlines()]
    assert {int(one["place"].rpartition(":")[2]) - 1 for one in left_out} == gone
    assert all(one["row"] == given[int(one["place"].rpartition(":")[2]) - 1] for one in left_out)
    assert out["kept"] + out["dropped"] == 400 and out["dropped"] == len(gone)
    assert main(words) == 2 and "--overwrite" in capsys.readouterr().err
    assert main(["lint", str(clean), "--against", f"rewardbench={benchmark}", "--fix", str(tmp_path / "2.jsonl")]) == 0
    assert json.loads(capsys.readouterr().out)["dropped"] == 0  # the ties alone are left, and stay


def test_clean_data_pass(tmp_path, capsys):
    assert main(["lint", write(tmp_path / "pairs.jsonl", rows(300))]) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 300, "reasons": {}, "leaks": []}


def test_a_planted_leak_fails_the_check(tmp_path, capsys):
    given = [row | {"chosen": row["chosen"] + " indeed"} for row in rows(300)]
    assert main(["lint", write(tmp_path / "pairs.jsonl", given)]) == 5
    assert "the chosen answer ends with 'indeed': right in 100.0% of 300 pairs" in capsys.readouterr().err


def test_rows_of_cases_tell_where_the_right_answer_stood(tmp_path, capsys):
    given = [{"prompt": row["prompt"], "answers": [row["chosen"], row["rejected"]], "best": 0} for row in rows(100)]
    assert main(["lint", write(tmp_path / "cases.jsonl", given)]) == 5
    assert "the first answer is chosen: right in 100.0% of 100 pairs" in capsys.readouterr().err


def test_a_models_truncation_counts(tmp_path, capsys):
    given = rows(40)
    model, data = tmp_path / "rm", write(tmp_path / "train.jsonl", given)
    words = ["train", "--data", data, "--small_hidden", "32", "--small_vocabulary", "300", "--max_steps", "1"]
    assert main([*words, "--disable_tqdm", "True", "--output", str(model)]) == 0
    given[7] |= {"chosen": " ".join(["baba"] * 900), "rejected": " ".join(["baba"] * 901)}
    out = tmp_path / "lint"
    data = write(tmp_path / "pairs.jsonl", given)
    assert main(["lint", data, "--model", str(model), "--max_length", "128", "--output", str(out)]) == 5
    found = found_in(out)
    assert 7 in found[TOO_LONG]
    assert found.get(SAME_WHEN_CUT, set()) <= {7}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--against", "rewardbnch"], "did you mean 'rewardbench'"),
        (["--against", "llmbar"], "--against llmbar: it has no data set of its own on the Hub; write llmbar=FILE"),
        (["--max_length", "9"], "name it with --model"),
        (["--near", "2"], "--near is a share in (0, 1], got 2.0"),
        (["--fix", "x.csv"], "--fix ends with .jsonl"),
    ],
)
def test_bad_settings_are_told(tmp_path, words, sentence, capsys):
    assert main(["lint", write(tmp_path / "pairs.jsonl", rows(5)), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_overlaps_of_shared_data_with_rewardbench(shared_data):
    """Unique first user turns of the training sets that RewardBench has too."""
    from rewardlab.apps.linting import _benchmark, read_pairs
    from rewardlab.rm.data import first_turn
    from rewardlab.rm.overlap import overlaps

    _, known = _benchmark(f"rewardbench={shared_data / 'rewardbench_v1/filtered-00000-of-00001.parquet'}")
    found = {}
    for name in ("hh_rlhf/harmless_base_test.public.jsonl.gz", "ultrafeedback_sample/train.jsonl.gz"):
        pairs = read_pairs([str(shared_data / name)]).pairs
        same = [one for one in overlaps([p.prompt[:1] for p in pairs], {"rewardbench": known}) if one.likeness == 1]
        found[name.partition("/")[0]] = len({first_turn(pairs[one.row].prompt) for one in same})
    assert found == {"hh_rlhf": 1, "ultrafeedback_sample": 1}
