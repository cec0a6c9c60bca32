"""`rewardlab score` and `eval`: every row by file and row; what a model does not read is refused or counted."""

import json
from pathlib import Path

import numpy as np
import pytest
import rewardlab as rl
from rewardlab.apps.cli import main
from rewardlab.apps.commands.score import run as score_run
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, user_turn

from tests.apps.conftest import write
from tests.rm.backbones.test_omitted_texts import NO_THOUGHT

TEXTS = [f"the quick brown fox number {number} jumps over the lazy dog" for number in range(60)]
ROW = {"prompt": "the fox", "completion": "the dog"}
LONG = {"prompt": "the quick brown fox " * 40, "completion": "the dog"}
PAIR = {"prompt": "the fox", "chosen": "the quick dog", "rejected": "the lazy dog"}
LONG_PAIR = {"prompt": "the fox", "chosen": "lazy " + "dog " * 60, "rejected": "quick " + "dog " * 60}
THOUGHT = PAIR | {"chosen": "<think>moss</think>the dog", "rejected": "<think>fern</think>the dog"}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A random scalar model that reads 32 tokens."""
    words = small_tokenizer(TEXTS, 300)
    folder = tmp_path_factory.mktemp("model") / "rm"
    scalar_from_config(small_config(words), words, max_length=32).save(folder)
    return folder


@pytest.fixture
def score(model, tmp_path, capsys):
    """A run of the verb: its exit code, its last line, what it said, and its rows."""

    def run(*words: str):
        output = tmp_path / "scores.jsonl"
        code = main(["score", "--model", str(model), "--output", str(output), "--overwrite", *words])
        out, err = capsys.readouterr()
        rows = [json.loads(line) for line in output.read_text().splitlines()] if code == 0 else []
        return code, json.loads(out) if code == 0 else {}, err, rows

    return run


def test_equal_rows_without_ids_are_joined_back_by_file_and_row(score, tmp_path):
    first, second = write(tmp_path / "a.jsonl", [ROW, ROW]), write(tmp_path / "b.jsonl", [ROW])
    Path(first).write_text(Path(first).read_text().replace("\n", "\n\n"))
    for words in (["--data", first, second], ["--data", first, "--data", second]):
        code, facts, _, rows = score(*words)
        assert (code, facts["rows"], facts["truncated"]) == (0, 3, 0)
        assert [(row["file"], row["row"]) for row in rows] == [(first, 1), (first, 3), (second, 1)]
        assert len({row["id"] for row in rows}) == 1 and not any(row["truncated"] for row in rows)


def test_a_conversation_beyond_max_length_is_refused_or_cut_and_counted(score, model, tmp_path):
    data = write(tmp_path / "a.jsonl", [ROW, LONG])
    code, _, err, _ = score("--data", data)
    assert code == 3 and "1 of 2 conversations are longer than the 32 tokens" in err
    assert f"the first in {data}, row 2" in err and "--on_long truncate" in err
    code, facts, err, rows = score("--data", data, "--on_long", "truncate")
    assert (code, facts["truncated"]) == (0, 1) and "1 of 2 conversations exceed" in err
    assert [row["truncated"] for row in rows] == [False, True]
    examples = [Example(user_turn(row["prompt"]), row["completion"]) for row in (ROW, LONG)]
    own = load_reward_model(str(model)).rate(examples)
    assert [row["reward"] for row in rows] == pytest.approx(own[:, 0].tolist(), abs=1e-6)
    with pytest.warns(UserWarning, match="50% of the rated completions are longer than the model reads"):
        assert rl.load(model).rate(examples) == pytest.approx(own, abs=1e-6)


def test_what_the_template_leaves_out_is_counted_and_rows_that_differ_in_it_alone_are_refused(score, tmp_path):
    words = small_tokenizer(TEXTS, 300)
    words.chat_template = NO_THOUGHT
    scalar_from_config(small_config(words), words, max_length=64).save(tmp_path / "rm")
    moss, fern = (ROW | {"completion": f"<think>{text}</think>\nthe dog"} for text in ("moss", "fern"))
    one = write(tmp_path / "one.jsonl", [moss, ROW | {"prompt": "a fox"}])
    both = write(tmp_path / "b.jsonl", [moss, fern])
    code, facts, err, _ = score("--model", str(tmp_path / "rm"), "--data", one)
    assert (code, facts["omitted"]) == (0, 1) and "leaves out text of 1 of 2 rows: 'moss'" in err
    code, _, err, _ = score("--model", str(tmp_path / "rm"), "--data", both)
    assert code == 3 and f"{both}, row 1 has the same tokens as {both}, row 2" in err and "leaves out 'moss'" in err


def test_an_objective_named_like_a_column_has_a_column_of_its_own(score, tmp_path):
    words = small_tokenizer(TEXTS, 300)
    rated = scalar_from_config(small_config(words), words, max_length=32, objectives=("row", "helpful"))
    rated.save(tmp_path / "two")
    data = write(tmp_path / "a.jsonl", [ROW])
    code, _, _, (row,) = score("--model", str(tmp_path / "two"), "--data", data)
    expected = rated.rate([Example(user_turn(ROW["prompt"]), ROW["completion"])])[0]
    assert code == 0 and row["row"] == 1
    assert [row["reward_row"], row["helpful"]] == pytest.approx(expected.tolist(), abs=1e-6)


def test_lists_given_twice_add_up_and_flags_replace_the_list_of_a_file(tmp_path):
    from rewardlab.apps.cli import VERBS, parse

    (tmp_path / "x.yaml").write_text("data: [old.jsonl]\n")
    (config, *_) = parse("lint", VERBS["lint"], ["--config", str(tmp_path / "x.yaml"), "--data", "a", "--data", "b"])
    assert config.data == ["a", "b"]
    (config, *_) = parse("lint", VERBS["lint"], ["a", "--keep", "tie", "--data", "b", "c", "--keep", "leak"])
    assert (config.data, config.keep) == (["a", "b", "c"], ["tie", "leak"])


@pytest.fixture
def evaluated(tmp_path, capsys):
    """Run eval with a model of 32 tokens whose template leaves thoughts out; return exit code, output and folder."""
    words = small_tokenizer(TEXTS, 300)
    words.chat_template = NO_THOUGHT
    scalar_from_config(small_config(words), words, max_length=32).save(tmp_path / "rm")

    def run(*rows, flags=()):
        data = write(tmp_path / "pairs.jsonl", [row | {"id": str(index)} for index, row in enumerate(rows)])
        words = ["--model", str(tmp_path / "rm"), "--data", data, "--baselines", "none", "--bootstrap_samples", "20"]
        code = main(["eval", *words, "--output", str(tmp_path / "run"), "--overwrite", *flags])
        return code, capsys.readouterr(), tmp_path / "run"

    return run


def test_cut_pairs_are_counted_and_equal_ones_abstain(evaluated):
    code, output, folder = evaluated(PAIR, LONG_PAIR)
    assert code == 0 and json.loads(output.out)["truncated"] == {"rm": 1}
    report, manifest = (folder / "report.md").read_text(), json.loads((folder / "manifest.json").read_text())
    assert "rm: 1 of 2 cases exceed the maximum length and were truncated." in report
    assert "a tie is wrong" not in report and manifest["truncated"] == {"rm": 1}
    (row,) = json.loads((folder / "summary.json").read_text())["rows"]
    assert (row["truncated"], row["unscored"], row["ties"]) == (1, 1, 0)
    assert main(["verify", str(folder)]) == 0
    code, output, _ = evaluated(PAIR, LONG_PAIR, flags=("--on_long", "refuse"))
    assert code == 3 and "case '1' is longer than the 32 tokens" in output.err


def test_pairs_that_differ_in_what_the_template_leaves_out_are_refused(evaluated):
    code, output, _ = evaluated(PAIR, THOUGHT)
    assert code == 3 and "response of case '1' have the same tokens" in output.err and "'moss'" in output.err
    code, output, folder = evaluated(PAIR, THOUGHT, flags=("--on_bad_row", "skip"))
    assert code == 0 and json.loads(output.out)["omitted"] == {"rm": 1}
    assert "leaves out text of 1 of 2 cases, such as 'moss'" in (folder / "report.md").read_text()
    assert main(["verify", str(folder)]) == 0


def test_raters_scores_calibrate_an_interval_beside_the_same_rewards(score, model, tmp_path):
    data = write(tmp_path / "a.jsonl", [ROW])
    rows = [ROW | {"id": str(n), "completion": f"the quick dog {n}"} for n in range(19)]
    rewards = load_reward_model(str(model)).rate([Example(user_turn("the fox"), row["completion"]) for row in rows])
    rated = [row | {"reward": reward + n} for n, (row, reward) in enumerate(zip(rows, rewards[:, 0], strict=True))]
    _, plain, _, (before,) = score("--data", data)
    code, facts, _, (row,) = score("--data", data, "--calibrate", write(tmp_path / "rated.jsonl", rated))
    assert code == 0 and facts == plain and before == {name: row[name] for name in before}
    # the residuals are 0 to 18, and k is 1 of 19
    assert row["low"] == pytest.approx(row["reward"], abs=1e-5)
    assert row["high"] == pytest.approx(row["reward"] + 18, abs=1e-5)
    code, _, err, _ = score("--data", data, "--calibrate", write(tmp_path / "few.jsonl", rated[:9]))
    assert code == 2 and "an interval of level 0.9 needs at least 19 calibration scores, got 9" in err
    assert score("--data", data, "--level", "0.5")[0] == 2, "level needs calibrate"
    cut = write(tmp_path / "cut.jsonl", [*rated, LONG | {"id": "long", "reward": 1.0}])
    code, _, err, _ = score("--data", data, "--calibrate", cut)
    assert code == 3 and "calibrate: 1 of 20 conversations exceed the model's max_length, first 'long'" in err
    code, _, err, _ = score("--data", data, "--calibrate", cut, "--on_long", "truncate")
    assert code == 0 and "calibrate: 1 of 20 conversations exceed the model's max_length and were truncated" in err


def test_rows_without_a_score_are_null_and_counted(score, tmp_path, monkeypatch):
    def rate(self, examples):
        return np.array([[np.nan if "none" in example.text else 1.0] for example in examples])

    monkeypatch.setattr(Lengths, "rate", rate)
    monkeypatch.setattr(score_run, "open_model", lambda *_, **__: Lengths())
    rows = [{"prompt": "p", "completion": text} for text in ("a", "none", "b", "none")]
    code, _, err, rows = score("--data", write(tmp_path / "a.jsonl", rows))
    assert code == 0 and [row["words"] for row in rows] == [1.0, None, 1.0, None]
    assert "data: 2 of 4 rows have no score" in err


class Lengths:
    """A model of two members, whose rewards are the number of words, and differ from it by as much for `long` ones."""

    contract = ScoringContract(kind="ensemble", objectives=("words",))

    def rate(self, examples):
        return np.array([[float(len(example.text.split()))] for example in examples])

    def spread(self, examples):
        half = np.array([[2.0 if "long" in example.text else 1.0] for example in examples])
        return np.stack([self.rate(examples) - half, self.rate(examples) + half])


def test_an_interval_is_wider_where_the_members_of_an_ensemble_disagree(score, tmp_path, monkeypatch):
    monkeypatch.setattr(score_run, "open_model", lambda *_, **__: Lengths())
    rated = [{"prompt": "p", "completion": f"a b{n}", "words": 2 + error} for n, error in enumerate([-1, 3, 0])]
    rated.append({"prompt": "p", "completion": "long", "words": 1 + 2 * 2})
    data = write(tmp_path / "a.jsonl", [{"prompt": "p", "completion": text} for text in ("a b c", "long c")])
    _, _, _, rows = score("--data", data, "--level", "0.5", "--calibrate", write(tmp_path / "rated.jsonl", rated))
    # residuals -1, 3, 0 and 2 in units of the spread; k = ⌊5 · 0.5 / 2⌋ = 1
    columns = [[row[name] for row in rows] for name in ("words", "spread", "low", "high")]
    assert columns == [[3, 2], [1, 2], [2, 0], [6, 8]]
