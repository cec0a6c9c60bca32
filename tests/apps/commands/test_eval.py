"""`rewardlab eval`: what a model does not read of a benchmark is in the report, the summary and the manifest."""

import json

import pytest
from rewardlab.apps.cli import main
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.models.scalar import scalar_from_config

from tests.apps.commands.test_score import TEXTS
from tests.apps.conftest import write
from tests.rm.backbones.test_omitted_texts import NO_THOUGHT

PAIR = {"prompt": "the fox", "chosen": "the quick dog", "rejected": "the lazy dog"}
LONG = {"prompt": "the fox", "chosen": "lazy " + "dog " * 60, "rejected": "quick " + "dog " * 60}
THOUGHT = PAIR | {"chosen": "<think>moss</think>the dog", "rejected": "<think>fern</think>the dog"}


@pytest.fixture
def evaluated(tmp_path, capsys):
    """Run eval with a model of 32 tokens whose template leaves thoughts out; return exit code, output and folder."""
    words = small_tokenizer(TEXTS, 300)
    words.chat_template = NO_THOUGHT
    scalar_from_config(small_config(words), words, max_length=32).save(tmp_path / "rm")

    def run(*rows, flags=()):
        data = write(tmp_path / "pairs.jsonl", [row | {"id": str(index)} for index, row in enumerate(rows)])
        words = ["--model", str(tmp_path / "rm"), "--data", data, "--baselines", "none", "--samples", "20"]
        code = main(["eval", *words, "--output", str(tmp_path / "run"), "--overwrite", *flags])
        return code, capsys.readouterr(), tmp_path / "run"

    return run


def test_cut_pairs_are_counted_and_equal_ones_abstain(evaluated):
    code, output, folder = evaluated(PAIR, LONG)
    assert code == 0 and json.loads(output.out)["truncated"] == {"rm": 1}
    report, manifest = (folder / "report.md").read_text(), json.loads((folder / "manifest.json").read_text())
    assert "rm: 1 of 2 cases are longer than the model reads, and were cut." in report
    assert "a tie is wrong" not in report and manifest["truncated"] == {"rm": 1}
    (row,) = json.loads((folder / "summary.json").read_text())["rows"]
    assert (row["truncated"], row["unscored"], row["ties"]) == (1, 1, 0)
    assert main(["verify", str(folder)]) == 0
    code, output, _ = evaluated(PAIR, LONG, flags=("--on_long", "refuse"))
    assert code == 3 and "case '1' is longer than the 32 tokens" in output.err


def test_runs_from_before_the_counts_are_verified_as_ever(evaluated):
    _, _, folder = evaluated(PAIR)
    summary = json.loads((folder / "summary.json").read_text())
    for row in summary["rows"]:
        del row["truncated"], row["omitted"]
    (folder / "summary.json").write_text(json.dumps(summary))
    assert main(["verify", str(folder)]) == 0


def test_pairs_that_differ_in_what_the_template_leaves_out_are_refused(evaluated):
    code, output, _ = evaluated(PAIR, THOUGHT)
    assert code == 3 and "response of case '1' are the same tokens" in output.err and "'moss'" in output.err
    code, output, folder = evaluated(PAIR, THOUGHT, flags=("--on_bad_row", "skip"))
    assert code == 0 and json.loads(output.out)["omitted"] == {"rm": 1}
    assert "leaves out text of 1 of 2 cases, such as 'moss'" in (folder / "report.md").read_text()
    assert main(["verify", str(folder)]) == 0
