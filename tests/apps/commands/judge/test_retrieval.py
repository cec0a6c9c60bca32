"""`rewardlab judge` with examples and rubrics that are retrieved for each case."""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest
from rewardlab.judges.retrieval.encoder import new_encoder
from rewardlab.judges.retrieval.open import distinct_cases, open_index
from rewardlab.judges.retrieval.settings import EncoderSettings
from rewardlab.judges.types import Case
from rewardlab.rm.types import user_turn
from rewardlab.tests.stand_ins.chat_server import ChatServer

from tests.apps.judging import lengths, longer, shown, write

WORDS = ("roses", "bees", "moss", "ponds", "frost", "herbs", "birds", "mulch")


@pytest.fixture
def asked():
    return []


@pytest.fixture
def run(judge, tmp_path, asked):
    """A judge behind a server that remembers what it was asked, over eight questions."""

    def answer(body):
        asked.append(body)
        return longer(body)

    texts = [(f"a long answer on {word}", f"no {word}") for word in WORDS]
    rows = [{"id": f"p{n}", "prompt": f"Tell me about {word}", "chosen": texts[n][0], "rejected": texts[n][1]}
            for n, word in enumerate(WORDS)]  # fmt: skip
    data = write(tmp_path / "pairs.jsonl", rows)

    def run(*words, output="run"):
        with ChatServer(answer=answer) as world:
            code, facts, err, folder = judge(*words, data=data, at=world, output=output)
        rows = pq.read_table(folder / "judgments.parquet").to_pylist() if code == 0 else []
        return code, facts, err, {row["case"]: row["retrieved"] for row in rows}

    return run


def labelled(tmp_path) -> str:
    rows = ({"id": f"e{n}", "prompt": f"What is good for {word} here", "chosen": f"sun for {word}", "rejected": "rain"}
            for n, word in enumerate(WORDS))  # fmt: skip
    return write(tmp_path / "labelled.jsonl", rows)


def test_examples_of_a_run_never_include_the_case_itself_but_the_oracle_does(run, tmp_path):
    assert run(output="before")[0] == 0
    code, _, err, retrieved = run("--examples", "retrieved", "--examples_from", tmp_path / "before", output="after")
    assert code == 0, err
    assert all(case not in ids and len(ids) == 3 for case, ids in retrieved.items())
    code, _, err, drawn = run("--examples", "random", "--examples_from", tmp_path / "before", output="random")
    assert code == 0 and all(case not in ids and len(ids) == 3 for case, ids in drawn.items()), err
    assert drawn != retrieved and len(Counter(id for ids in drawn.values() for id in ids)) > 3
    code, _, err, own = run("--examples", "oracle", "--examples_from", tmp_path / "before", output="own")
    assert code == 0 and own == {f"p{n}": [f"p{n}"] for n in range(8)}, err
    assert "(these are of the case's own prompt)" in (tmp_path / "own" / "report.md").read_text()


def rubrics(tmp_path) -> str:
    kept = [{"principles": [{"id": word, "description": f"Speaks of {word}."}]} for word in WORDS]
    rows = [{"case": f"r{n}", "prompt": f"What is good for {word} here", "rubric": kept[n]}
            for n, word in enumerate(WORDS)]  # fmt: skip
    return write(tmp_path / "rubrics.jsonl", rows)


def test_the_rubric_of_the_nearest_prompt(run, tmp_path, asked):
    words = ["--kind", "rubric", "--rubric", "retrieved", "--rubrics_from", rubrics(tmp_path)]
    code, facts, err, retrieved = run(*words, "--score", "weighted", "--retriever", "bm25")
    assert code == 0, err
    assert retrieved == {f"p{n}": [f"r{n}"] for n in range(8)}
    assert all(word in shown(body, "rubric") for body in asked for word in WORDS if word in shown(body, "instruction"))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert "Rubrics are retrieved by" in manifest["notes"][-1] and facts["judges"]["qwen rubric"]["coverage"] == 1.0


def test_an_encoder_retrieves_and_its_vectors_are_stored(run, tmp_path):
    settings = EncoderSettings(facets=2, width=8, max_length=32)
    encoder = new_encoder(settings, None, WORDS * 9, hidden=16, layers=1, vocabulary=300)
    encoder.save(tmp_path / "encoder")
    words = ["--examples", "retrieved", "--examples_from", labelled(tmp_path), "--retriever", tmp_path / "encoder"]
    words += ["--retriever_index", tmp_path / "index"]
    code, _, err, first = run(*words)
    assert code == 0 and all(len(ids) == 3 for ids in first.values()), err
    names = {path.name for path in (tmp_path / "index").iterdir()}
    assert names == {"vectors.safetensors", "texts.jsonl", "index.json"}
    assert run(*words, output="again")[3] == first
    assert open_index(str(tmp_path / "encoder"), ["a"], ["x"]).ids == ["a"]


def test_examples_with_one_id_are_numbered_and_repetitions_left_out():
    cases = [Case("a", user_turn(prompt), ("x", "y")) for prompt in ("p", "p", "q")]
    assert [case.id for case in distinct_cases(cases)] == ["a", "a#2"]


def test_settings_that_contradict_are_refused_before_any_request(run, tmp_path, asked):
    for words, message in (
        (["--examples", "retrieved"], "--examples_from is missing"),
        (["--examples_from", "x.jsonl"], "--examples_from belongs to --examples"),
        (["--examples", "nearest", "--examples_from", "x"], "--examples must be one of retrieved, random, oracle"),
        (
            ["--examples", "retrieved", "--examples_from", "x", "--retriever", "none"],
            "--retriever must be tfidf, bm25 or a",
        ),
        (
            ["--examples", "retrieved", "--examples_from", "x", "--retriever_index", "i"],
            "--retriever_index needs an encoder",
        ),
        (["--rubric", "retrieved"], "--rubrics_from is missing"),
        (["--rubrics_from", "x.jsonl"], "--rubrics_from requires --rubric"),
        (["--rubric", "random", "--rubrics_from", "none.jsonl"], "'none.jsonl' is not a file of rubrics"),
        (["--kind", "rubric", "--examples", "random", "--examples_from", "{own}"], "pairwise and pointwise judges"),
    ):
        own = write(tmp_path / "own.jsonl", lengths(3))
        code, _, err, _ = run(*[word.format(own=own) for word in words])
        assert code == 2 and message in err and not asked, words
