"""Models, runs and files that commit 1820637 wrote load, and have the scores that they had.

What an accepted difference refuses is refused with the sentence that a user then reads.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import rewardlab as rl
from rewardlab.apps.cli import main
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.tabs.judgments.queries import Filter, lines, open_run
from rewardlab.apps.inspector.tabs.overview.queries import overview
from rewardlab.apps.inspector.tabs.playground.decoded import read_answers
from rewardlab.apps.inspector.tabs.training.log import damaged_lines, read_steps
from rewardlab.judges.retrieval.encoder import load_encoder
from rewardlab.judges.rubrics.files import read_rubrics
from rewardlab.judges.store import read_replies
from rewardlab.rm.errors import CheckFailed, DataError
from rewardlab.rm.load import load_reward_model

from tests.inventory.artefacts import MODELS, r2m_rewards, unpack, vectors

ARCHIVE = Path(__file__).with_name("artefacts_1820637.zip")
RUNS = ("eval_1", "eval_2", "judge_1", "judge_2")


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """The artefacts in a folder, as they were written."""
    folder = tmp_path_factory.mktemp("stored")
    unpack(ARCHIVE, folder)
    return folder


@pytest.fixture(autouse=True)
def there(stored, monkeypatch):
    """Names of models in artefacts are relative to the folder."""
    monkeypatch.chdir(stored)


def rows_of(path: str) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


# ---- models ----


def test_a_model_has_the_scores_that_it_had(tmp_path):
    for name in (*MODELS, "merged", "implicit"):
        options = {"cache": tmp_path / "embeddings.sqlite"} if name == "embedding" else {}
        rows, scores = rows_of("conversations.jsonl"), rows_of(f"{name}.jsonl")
        model = rl.load(name, check=False, **options)  # members of ensembles compute their golden scores
        rewards = model.rate([row["prompt"] for row in rows], [row["completion"] for row in rows])
        expected = [[row[objective] for objective in model.objectives] for row in scores]
        np.testing.assert_allclose(rewards, expected, rtol=0, atol=1e-6, err_msg=name)


def test_golden_scores_of_an_earlier_column_are_compared(tmp_path):
    rl.load("linear")
    changed = Path(shutil.copytree("linear", tmp_path / "linear"))
    row, *_ = rows_of("linear/golden.jsonl")
    (changed / "golden.jsonl").write_text(json.dumps(row | {"rewards": [row["rewards"][0] + 1]}), encoding="utf-8")
    with pytest.raises(CheckFailed, match="golden"):
        rl.load(changed)


def test_r2m_and_the_retriever_compute_the_numbers_that_they_had():
    expected = json.loads(Path("expected.json").read_text())
    np.testing.assert_allclose(r2m_rewards(load_reward_model("r2m")), expected["r2m"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(vectors(load_encoder("retriever")), expected["retriever"], rtol=0, atol=1e-6)


def test_guided_decoding_writes_the_completions_that_it_wrote():
    prompts = [row["prompt"] for row in rows_of("prompts.jsonl")]
    decoded = rl.decode("uniarm", prompts, preference={"helpful": 0.5, "harmless": 0.5}, max_new_tokens=4)
    for row, before in zip(decoded.rows, rows_of("decoded.jsonl"), strict=True):
        assert (row["completion"], row["tokens"]) == (before["answer"], before["tokens"])
        np.testing.assert_allclose(row["mixed"], before["mixed"], rtol=0, atol=1e-6)


# ---- runs ----


def test_every_run_is_verified(capsys):
    for run in RUNS:
        assert main(["verify", f"runs/{run}"]) == 0, capsys.readouterr().err


def test_runs_are_compared_as_they_were_and_listed_by_the_leaderboard(tmp_path, capsys):
    before = json.loads(Path("comparison/comparison.json").read_text())["areas"]["overall"]
    overall = rl.compare("runs/eval_1", "runs/eval_2").facts.areas["overall"]
    assert (overall.first, overall.second) == (before["first"], before["second"])
    assert overall.difference.value == pytest.approx(before["difference"][0])
    assert main(["board", "runs", "--output", str(tmp_path / "board")]) == 0, capsys.readouterr().err
    board = (tmp_path / "board/board.md").read_text()
    assert all(name in board for name in ("linear", "scalar", "m pairwise", "m pointwise", "reward_model"))


def test_the_inspector_lists_every_run_and_reads_its_judgments():
    listed = overview(open_root("runs"))
    assert {standing.run for board in listed.boards for standing in board.standings} == {*RUNS}
    assert not listed.unreadable and not listed.jobs
    for run in RUNS:
        opened = open_run(f"runs/{run}")
        assert all(len(lines(opened, Filter(scorer.name), 0, 20)) == 12 for scorer in opened.scorers)


def test_rubrics_stored_replies_and_the_steps_of_a_policy_training_are_read():
    listed = overview(open_root("trained_policy"))
    assert [training.step for training in listed.trainings] == [1] and not listed.unreadable
    assert read_steps(Path("trained_policy")) and not damaged_lines(Path("trained_policy"))
    assert read_rubrics(Path("rubrics_build/rubrics.jsonl")).keys() == {
        row["case"] for row in rows_of("rubrics_build/rubrics.jsonl")
    }
    for path in Path().rglob("replies.jsonl"):
        store = read_replies(path)
        assert len(store.replies) == len(rows_of(str(path)))


# ---- refusals ----


def test_decoded_completions_of_an_earlier_column_are_refused():
    with pytest.raises(DataError, match="completion"):
        read_answers(Path("decoded.jsonl"))
