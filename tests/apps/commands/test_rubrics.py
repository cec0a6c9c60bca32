"""`rewardlab rubrics`: the whole path on the world of checks, with a simulated teacher and judge behind a server."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.rubrics.files import read_rubrics, rubric_row
from rewardlab.rm.data.pairs import pair_row
from rewardlab.tests.stand_ins import check_models
from rewardlab.tests.stand_ins.chat_server import ChatServer
from rewardlab.tests.stand_ins.simulated_judge import Biases, SimulatedJudge, rubric_of
from rewardlab.tests.stand_ins.simulated_teacher import SimulatedTeacher
from rewardlab.tests.stand_ins.verifiable_prompts import items

from tests.apps.judging import call, write

PRICES = ["--prompt_price", 0, "--completion_price", 5]
PRICED = ["--prompt_price", 1, "--completion_price", 0]
PEOPLE = {"teacher": SimulatedTeacher(seed=1), "judge": SimulatedJudge(Biases(failure=0.0), seed=2)}


def simulated(asked) -> str:
    return PEOPLE[asked["model"]].ask([Ask(asked["messages"])])[0].text


@pytest.fixture(scope="module")
def server():
    with ChatServer(answer=simulated) as world:
        yield world


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    rows = [pair_row(item.pair(0, 0)) for item in items(10, 0)]
    return write(tmp_path_factory.mktemp("checks") / "pairs.jsonl", rows)


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    words = check_models.tokenizer()
    check_models.causal_lm(words).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture
def rubrics(capsys, tmp_path, server):
    def run(action, *words, output="run", at=server):
        asked = [] if action == "train" or at is None else ["--endpoint", at.url, "--model", "teacher"]
        code, facts, err = call(capsys, "rubrics", action, *asked, *words, "--output", tmp_path / output)
        return code, facts, err, tmp_path / output

    return run


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_build_keeps_rubrics_and_says_what_was_dropped_and_why(rubrics, pairs):
    code, facts, err, folder = rubrics("build", "--data", pairs, "--judge", "judge", *PRICES)
    assert code == 0, err
    kept, dropped = lines(folder / "rubrics.jsonl"), lines(folder / "dropped.jsonl")
    assert len(kept) == facts["kept"] > 1 and len(dropped) == sum(facts["dropped"].values()) > 0
    assert len(kept) + len(dropped) == facts["pairs"] == 10
    assert {one["case"] for one in kept}.isdisjoint({one["case"] for one in dropped})
    assert all(one["reason"] for one in dropped) and all(one["rubric"]["rules"] for one in kept)
    assert {one["preferred"] for one in kept} == {"A", "B"} and all(len(one["diagnoses"]) == 2 for one in kept)
    generator, judged = lines(folder / "generator.jsonl"), lines(folder / "judge.jsonl")
    assert len(generator) == 2 * len(kept) and len(judged) == facts["judge_records"]
    report = (folder / "report.md").read_text()
    assert all(f"| {reason} | {count} |" in report for reason, count in facts["dropped"].items())
    assert facts["models"]["teacher"]["calls"] > 10 * 2 and facts["models"]["judge"]["cost"] > 0
    assert set(read_rubrics(folder / "rubrics.jsonl")) == {one["case"] for one in kept}


def test_a_judge_finds_the_rubrics_of_a_build_on_the_same_pairs(rubrics, tmp_path, capsys, server):
    made = enumerate(items(10, 0))
    rows = [pair_row(item.pair(0, 0)) | {"id": str(n % 5), "subset": f"s{n // 5}"} for n, item in made]
    data = write(tmp_path / "subsets.jsonl", rows)
    code, facts, err, folder = rubrics("build", "--data", data, "--judge", "judge")
    assert code == 0, err
    kept = {row["case"] for row in lines(folder / "rubrics.jsonl")}
    assert kept <= {f"s{subset}/{n}" for subset in range(2) for n in range(5)} and len(kept) == facts["kept"] > 0
    asked = ["--endpoint", server.url, "--model", "judge", "--bootstrap_samples", 20, "--output", tmp_path / "judged"]
    words = ["--data", data, "--kind", "pairwise", "--rubric", folder / "rubrics.jsonl", *asked]
    code, judged, err = call(capsys, "judge", *words)
    assert code == 0, err
    assert judged["judges"]["judge pairwise"]["reasons"].get("no rubric", 0) == 10 - facts["kept"]


def test_a_build_that_was_cut_off_asks_nothing_twice_and_ends_as_if_it_had_not_been(rubrics, pairs, server):
    start = server.asked.total()
    whole = rubrics("build", "--data", pairs, "--judge", "judge", output="whole")
    all_calls = server.asked.total() - start
    start, limit = server.asked.total(), ["--concurrency", 1, *PRICED, "--max_cost"]
    code, _, err, folder = rubrics("build", "--data", pairs, "--judge", "judge", *limit, 0.008)
    cut = server.asked.total() - start
    assert code == 3 and "--resume" in err and 0 < cut < all_calls and not folder.exists()
    code, _, err, folder = rubrics("build", "--data", pairs, "--judge", "judge", *limit, 9, "--resume")
    assert code == 0 and server.asked.total() - start == all_calls, err
    for name in ("rubrics.jsonl", "dropped.jsonl", "generator.jsonl", "judge.jsonl"):
        assert (folder / name).read_bytes() == (whole[3] / name).read_bytes()


def test_a_dry_run_of_build_asks_nobody(rubrics, pairs, server, reader, capsys):
    before = server.asked.total()
    code, facts, err, folder = rubrics("build", "--data", pairs, "--dry_run")
    assert code == 0 and facts["models"]["teacher"]["calls"] == 20 and server.asked.total() == before, err
    assert "up to nine more requests" in err and not folder.exists()
    assert facts["cost_of_diagnoses"] is None and "no cost without prices; give them with --prompt_price" in err
    assert rubrics("build", "--data", pairs, "--dry_run", *PRICES)[1]["cost_of_diagnoses"] == 20 * 2048 * 5 / 1e6
    named = ["--local", reader, "--endpoint", server.url, "--judge", "judge"]  # a local writer, and a judge behind it
    code, facts, err = call(capsys, "rubrics", "build", "--data", pairs, *named, "--dry_run")
    assert code == 0 and set(facts["models"]) == {reader.name, "judge"}, err
    assert call(capsys, "rubrics", "build", "--data", pairs, *named[:4], "--dry_run")[0] == 2


def test_apply_tells_in_the_manifest_what_it_left_out(rubrics, tmp_path):
    three = {"id": "three", "prompt": "q", "answers": ["a", "b", "c"], "best": 0}
    data = write(tmp_path / "cases.jsonl", [pair_row(item.pair(0, 2)) for item in items(2, 5)] + [three])
    code, _, err, folder = rubrics("apply", "--data", data)
    told = json.loads((folder / "manifest.json").read_text())["notes"]
    assert code == 0 and told == ["1 of 3 cases do not have two answers and are left out."], err
    code, facts, _, _ = rubrics("apply", "--data", data, "--judge", "judge", "--dry_run", output="dry")
    assert code == 0 and "cost_without_rubrics" in facts


def test_a_generator_is_trained_on_a_build_and_applied(rubrics, pairs, reader):
    """After two steps it writes hardly a rubric; a case without one is counted with the reason."""
    built = rubrics("build", "--data", pairs, "--judge", "judge", output="built")[3]
    steps = ["--steps", 2, "--batch", 2, "--accumulate", 1, "--max_length", 256]
    code, facts, err, trained = rubrics("train", "--data", built, "--base", reader, *steps, output="generator")
    assert code == 0 and facts["records"] == len(lines(built / "generator.jsonl")), err
    assert (trained / "model.safetensors").is_file() and (trained / "manifest.json").is_file()
    asked = ["--local", trained, "--batch_size", 4]
    few = write(built.parent / "few.jsonl", [pair_row(item.pair(0, 0)) for item in items(2, 7)])
    code, facts, err, _ = rubrics("apply", "--data", few, *asked, output="applied", at=None)
    assert code == 0 and facts["cases"] == 2, err
    assert facts["rubrics"] + sum(facts["without_rubric"].values()) == 2


def test_rubrics_are_written_for_cases_and_judged_under(rubrics, tmp_path):
    data = write(tmp_path / "cases.jsonl", [pair_row(item.pair(0, 2)) for item in items(5, 5)])
    code, facts, err, folder = rubrics("apply", "--data", data, "--judge", "judge")
    assert code == 0, err
    told = facts["judges"]["judge with rubrics of teacher"]
    assert told["cases"] == 5 and sum(facts["judged_without_rubric"].values()) == 5 - facts["rubrics"]
    assert facts["models"]["teacher"]["calls"] == 5 and facts["models"]["judge"]["calls"] == 10
    assert len(lines(folder / "rubrics.jsonl")) == facts["rubrics"] > 0
    assert pq.read_table(folder / "judgments.parquet").num_rows == 5


def test_lint_tells_what_is_doubtful_and_fails_for_what_is_no_rubric(capsys, tmp_path):
    rule = {"id": "r1", "type": "must", "criterion": "Is good and short.", "test": "Read it."}
    (tmp_path / "mine.json").write_text(json.dumps({"rules": [rule]}))
    code, facts, err = call(capsys, "rubrics", "lint", tmp_path / "mine.json", "direct_answer")
    assert code == 0 and facts == {"files": 2, "rubrics": 2, "findings": 3}, err
    assert "mine.json: rule 'r1' looks compound; split it" in err and "'r1' is vague: 'good'" in err
    (tmp_path / "bad.toml").write_text('[[rules]]\nid = "r1"\ntype = "should"\ncriterion = "c"\ntest = "t"\n')
    rows = write(tmp_path / "twice.jsonl", [rubric_row("a", rubric_of(["number"]))] * 2)
    code, _, err = call(capsys, "rubrics", "lint", tmp_path / "bad.toml", rows, "direct_answer")
    assert code == 5 and "2 of 3 files cannot be read as rubrics" in err
    assert "bad.toml: rule 'r1': the type must be 'must' or 'forbid', got 'should'" in err
    assert "twice.jsonl" in err and "no other row has, got 'a'" in err


def test_what_cannot_be_run_is_told_in_a_sentence(capsys):
    for words, message in (
        (["grow"], "--action must be one of build, train, lint, apply, got 'grow'"),
        (["lint"], "--action lint FILE is missing"),
        (["build"], "--data is missing"),
        (["build", "x", "--data", "y"], "rubrics build takes no 'x'; files are given with --data"),
        (["train", "--data", "y", "--output", "o"], "--base is missing"),
        (["train", "--data", "y", "--output", "o", "--base", "b"], "y: neither a folder of rewardlab rubrics build"),
        (["build", "--data", "y", "--output", "o"], "rubrics build takes one writer, got 0"),
    ):
        code, _, err = call(capsys, "rubrics", *words)
        assert code == 2 and message in err, err
