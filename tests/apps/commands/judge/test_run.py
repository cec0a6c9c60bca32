"""What `rewardlab judge` costs, how it is resumed, and what it refuses."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rewardlab.tests.stand_ins.chat_server import ChatServer

from tests.apps.judging import call, lengths, longer, write

PRICED = ["--prompt_price", 1, "--completion_price", 10]


def test_a_dry_run_asks_nobody_and_tells_calls_tokens_and_cost(judge, server):
    before = len(server.requests)
    code, facts, err, folder = judge("--dry_run", "--max_tokens", 100, *PRICED)
    assert code == 0 and len(server.requests) == before and not folder.exists()
    told = facts["models"]["qwen"]
    assert told["calls"] == 16 and told["most_completion_tokens"] == 1600
    assert told["most"] == pytest.approx((told["prompt_tokens"] + 10 * 1600) / 1e6) == facts["cost_at_most"]
    assert "qwen: 16 calls" in err
    code, facts, err, _ = judge("--dry_run")
    assert code == 0 and facts["cost_at_most"] is None and facts["models"]["qwen"]["most"] is None
    assert "no cost without prices; give them with --prompt_price and --completion_price, or with --prices" in err


def test_cases_of_a_single_response_are_left_out_of_an_audit_and_of_comparisons_with_the_reason(judge, tmp_path):
    rows = [
        {"id": n, "instruction": f"question {n}", "dataset": "d", "candidates": ["a long answer", "short"][: n + 1]}
        | {"gpt4_preference_vs_reference": [1.9, 1.1][: n + 1]}
        for n in (0, 1, 1 + 1)
    ]
    data = write(tmp_path / "candidates.jsonl", rows)
    code, facts, err, _ = judge("--benchmark", "best_of_16", data=data)
    reason = "a single response, which nothing is compared with"
    assert code == 0 and facts["judges"]["qwen pairwise"]["reasons"] == {reason: 1}, err
    words = ["--benchmark", "best_of_16", "--kind", "pointwise", "pairwise", "--together", "cascade(gap=1)"]
    code, facts, err, _ = judge(*words, data=data, output="cascade")
    assert code == 0 and next(iter(facts["judges"].values()))["answered"] == 3, err
    code, _, err, folder = judge("--benchmark", "best_of_16", "--audit", data=data, output="audit")
    assert code == 0 and json.loads((folder / "audit.json").read_text())["qwen pairwise"]["pairs"] == 2, err
    notes = json.loads((folder / "manifest.json").read_text())["notes"]
    assert "1 of 3 cases have a single response and are left out of the audit." in notes


def test_a_limit_of_cost_ends_the_run_and_a_second_one_goes_on_where_it_stopped(judge, server):
    limits = ["--concurrency", 1, "--max_tokens", 20, *PRICED, "--max_cost"]
    server.asked.clear()
    code, _, err, folder = judge(*limits, 0.004)
    assert code == 3 and "the cost limit 0.004 is reached" in err and "--resume" in err
    first = server.asked.total()
    assert 0 < first < 16 and not folder.exists()
    assert "continue it with --resume" in judge("--max_tokens", 20)[2]
    code, facts, err, folder = judge(*limits, 1, "--resume")
    assert code == 0 and set(server.asked.values()) == {1} and server.asked.total() == 16, err
    assert facts["models"]["qwen"]["calls"] == 16 and facts["judges"]["qwen pairwise"]["cost"] > 0.001
    whole = judge(*limits, 1, output="whole")[3]
    for name in ("scores.parquet", "items.parquet"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    rows = [pq.read_table(one / "judgments.parquet").drop_columns("seconds").to_pylist() for one in (folder, whole)]
    assert rows[0] == rows[1]  # criteria, replies, tokens and cost survive


def test_requests_without_a_reply_can_be_abstentions_and_a_run_of_nothing_else_leaves_nothing(judge, tmp_path):
    with ChatServer(faults=0.3, kinds=("failing",), seed=4, answer=longer) as world:
        code, _, err, folder = judge(at=world)
        assert code == 3 and "requests have no reply, such as: " in err and not folder.exists()
        code, facts, err, _ = judge("--on_fault", "abstain", at=world, output="other")
    judged = facts["judges"]["qwen pairwise"]
    assert code == 0 and 0 < judged["coverage"] < 1 and set(judged["reasons"]) == {"no reply"}, err
    assert facts["models"]["qwen"]["without_reply"] > 0
    before = {*tmp_path.iterdir()}
    with ChatServer(key="right", answer=longer) as world:
        code, _, err, _ = judge(at=world, output="nothing")
    assert code == 3 and "16 of 16 requests have no reply" in err and {*tmp_path.iterdir()} == before


def test_empty_replies_that_were_billed_before_a_resume_are_counted_after_it(judge):
    """Of 16 requests the two about question 1 have an empty reply at first, and are sent again."""
    with ChatServer() as world:
        world.answer = lambda asked: "" if world.asked.total() <= 16 and "question 1" in str(asked) else longer(asked)
        code, _, err, _ = judge(*PRICED, "--concurrency", 1, at=world)
        assert code == 3 and "2 of 16 requests have no reply" in err
        code, facts, err, folder = judge(*PRICED, "--resume", at=world)
    assert code == 0 and world.asked.total() == 18, err
    model, judged = facts["models"]["qwen"], facts["judges"]["qwen pairwise"]
    assert model["calls"] == judged["requests"] == 18 and model["estimated"] == judged["estimated"] == 0
    lines = [json.loads(line) for line in (folder / "replies" / "replies.jsonl").read_text().splitlines()]
    assert model["cost"] == pytest.approx(sum(line["cost"] for line in lines)) == pytest.approx(judged["cost"])
    rows = pq.read_table(folder / "judgments.parquet").to_pylist()
    assert sorted(row["requests"] for row in rows) == [2] * 7 + [4]


def test_what_cannot_be_run_is_told_in_a_sentence(judge, server):
    for words, message in (
        (["--kind", "pairwize"], "no 'pairwize' in judges.kinds; did you mean 'pairwise'"),
        (["--kind", "pairwise(flop=tie)"], "no argument 'flop'; did you mean 'flip'"),
        (["--kind", "pairwise(prompt=pear)"], "no instructions 'pear'"),
        (["--kind", "pairwise(chat=x)"], "no argument 'chat'"),
        (["--kind", "rubric"], "rubric: this kind of judge needs a file; give it with --rubric"),
        (["--kind", "checklist"], "give it with --checklist"),
        (["--fit_route", "run"], "--fit_route takes two runs, the cheap judge's and the strong judge's, got run"),
        (["--encoder", "e"], "--encoder belongs to --fit_route; add --fit_route"),
        (["--kind", "reward_model"], "write reward_model(model=FOLDER)"),
        (["--rubric", "direct_answre"], "no rubric file 'direct_answre'; did you mean 'direct_answer'"),
        (["--score", "best"], "--score must be one of gated, weighted"),
        (["--together", "pairwise"], "--together must be panel, cascade, route or consistent, got 'pairwise'"),
        (["--together", "cascade(gap=1)"], "combines 2 judges (cheap, strong), got 1: qwen pairwise"),
        (["--max_cost", "1"], "--max_cost 1 needs prices; give --prompt_price and --completion_price, or --prices"),
        (
            ["--completion_price", "1"],
            "--prompt_price and --completion_price must be used together; give both, with 0 for a price of zero",
        ),
        ([*map(str, PRICED), "--max_cost", "1e-9"], "--max_cost 1e-09 is too low: a single request may cost up to"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--levels", "none.toml"], "'none.toml' is no file of levels with criteria and score1_description"),
        (["--names", "qwen=gpt"], "--names belongs to --audit; add --audit"),
        (["--audit", "--other_author", "gpt"], "--other_author belongs to --names; add --names"),
        (["--audit", "--names", "gpt"], "--names must be MODEL=AUTHOR or JUDGE=AUTHOR, got 'gpt'"),
        (["--audit", "--names", "qwen=gpt"], "no author besides 'gpt' to compare with; name one with"),
        (["--audit", "--names", "qwn=gpt", "--other_author", "l"], "no judge 'qwn'; there is qwen pairwise"),
        (["--audit", "--chance", "luck"], "--chance must be one of bradley_terry, shares, got 'luck'"),
    ):
        before = len(server.requests)
        code, _, err, folder = judge(*words)
        assert code in (2, 3) and message in err, err
        assert not folder.exists() and len(server.requests) == before, words


def test_a_model_needs_an_endpoint_and_a_judge_a_model(capsys, tmp_path):
    data = write(tmp_path / "pairs.jsonl", lengths(2))
    for words, message in (
        (["--model", "qwen"], "give the server's address with --endpoint"),
        ([], "needs a language model"),
        (["--endpoint", "http://127.0.0.1:9"], "give it with --model"),
    ):
        code, _, err = call(capsys, "judge", "--data", data, *words, "--output", tmp_path / "run")
        assert code == 2 and message in err, words


def test_no_key_stands_in_the_run_folder(judge, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with ChatServer(key="sk-very-secret", answer=longer) as world:
        code, _, err, folder = judge(at=world)
    assert code == 0, err
    assert not any(b"sk-very-secret" in path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())
