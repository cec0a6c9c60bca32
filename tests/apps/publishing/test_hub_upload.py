"""Complete folders are uploaded to the Hub, whose stand-in records what it is given; results take others' formats."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries
from rewardlab.apps.cli import main
from rewardlab.apps.runs.run_folder import training_recipe
from rewardlab.rm.training.trainer import RewardArguments

PAIRS = [{"id": str(n), "prompt": f"q{n}", "chosen": "good " * (n + 1), "rejected": "bad"} for n in range(8)]


class Hub:
    """Stand-in of `HfApi`: requests by order, with the files that an upload finds."""

    def __init__(self) -> None:
        self.requests: list[tuple] = []
        self.refusal: dict[str, Exception] = {}

    def __call__(self, token=None):
        return self

    def create_repo(self, name, *, private, exist_ok):
        self._answer("create")
        self.requests.append(("create", name, private, exist_ok))
        return SimpleNamespace(repo_id=name)

    def upload_folder(self, *, repo_id, folder_path, allow_patterns, **options):
        self._answer("upload")
        files = {path.relative_to(folder_path).as_posix() for path in Path(folder_path).rglob("*") if path.is_file()}
        self.requests.append(("upload", repo_id, files, allow_patterns))
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    def _answer(self, request: str) -> None:
        if request in self.refusal:
            raise self.refusal[request]


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Hub:
    monkeypatch.chdir(tmp_path)
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    stand_in = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", stand_in)
    return stand_in


def train(*words: str) -> int:
    return main(["train", "--kind", "linear", "--data", "pairs.jsonl", "--output", "rm", *words])


UPLOAD = ("--push_to_hub", "True", "--hub_model_id", "org/rm")


def test_a_trained_model_is_uploaded_when_its_folder_is_complete(hub, capsys):
    assert train(*UPLOAD, "--hub_private_repo", "True") == 0
    assert json.loads(capsys.readouterr().out)["commit"] == "https://hub/org/rm/commit/1"
    assert [request[:3] for request in hub.requests[:1]] == [("create", "org/rm", True)]
    (kind, name, files, only) = hub.requests[1]
    assert (kind, name, only) == ("upload", "org/rm", None) and {"scoring.json", "manifest.json"} <= files


def test_a_missing_login_is_found_before_the_training(hub, capsys):
    hub.refusal["create"] = OSError("Token is required")
    assert train(*UPLOAD) == 2
    assert "Token is required" in capsys.readouterr().err and not Path("rm").exists()


def test_a_refused_upload_leaves_the_folder_and_names_the_command(hub, capsys):
    hub.refusal["upload"] = OSError("502")
    assert train(*UPLOAD) == 3
    assert "hf upload org/rm rm" in capsys.readouterr().err and Path("rm/scoring.json").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(UPLOAD[:2], "add --hub_model_id org/name"), ((), "")],
)
def test_without_a_repository_nothing_is_asked_of_the_hub(hub, capsys, words, sentence):
    assert train(*words) == (2 if words else 0)
    assert sentence in capsys.readouterr().err and hub.requests == []


def test_an_upload_is_no_setting_that_a_resumed_run_repeats():
    arguments = RewardArguments(output_dir="x", push_to_hub=True, hub_model_id="org/rm", hub_private_repo=True)
    assert training_recipe({"kind": "scalar"}, arguments) == {"kind": "scalar"}


@pytest.fixture
def evaluated(hub, capsys) -> Path:
    """A run of a model on pairs whose manifest says that they are from the Hub."""
    assert train() == 0
    words = ["--model", "rm", "--data", "pairs.jsonl", "--baselines", "none", "--bootstrap_samples", "50"]
    assert main(["eval", *words, "--output", "runs/pairs"]) == 0
    path = Path("runs/pairs/manifest.json")
    commit = {"hub": {"org/pairs:test": "a" * 40}, "data": {"org/pairs:test": None}}
    path.write_text(json.dumps(json.loads(path.read_text()) | commit))
    capsys.readouterr()
    return path.parent


def test_a_card_has_the_hubs_results_beside_it_and_both_are_uploaded(evaluated, hub, capsys):
    words = ["--push_to_hub", "True", "--hub_model_id", "org/rm"]
    assert main(["card", "rm", "--runs", str(evaluated), *words]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["results"] == ["rm/.eval_results/pairs.yaml"]
    (entry,) = parse_eval_result_entries(yaml.safe_load(Path(summary["results"][0]).read_text()))
    assert (entry.dataset_id, entry.dataset_revision, entry.value) == ("org/pairs", "a" * 40, 1.0)
    assert "95 % interval [0." in str(entry.notes)
    assert hub.requests[-1][3] == ["README.md", ".eval_results/*"]


def test_results_on_files_are_in_the_card_alone(evaluated, capsys):
    path = evaluated / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data": {"pairs.jsonl": "0"}}))
    assert main(["card", "rm", "--runs", str(evaluated)]) == 0
    assert json.loads(capsys.readouterr().out)["results"] == [] and not Path("rm/.eval_results").exists()


def test_a_leaderboard_writes_records_of_every_eval_ever(evaluated, capsys):
    words = ["board", "runs", "--output", "board", "--every_eval_ever", "True", "--overwrite"]
    assert main(words) == 2 and "add --organization NAME" in capsys.readouterr().err
    for _ in range(2):
        assert main([*words, "--organization", "A lab"]) == 0
    (path,) = Path("board/data/pairs").rglob("*.json")
    record = json.loads(path.read_text())
    required = ("schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info")
    assert {*required, "eval_library", "evaluation_results", "evaluation_timestamp"} == record.keys()
    assert record["source_metadata"]["evaluator_relationship"] == "third_party"
    (result,) = [row for row in record["evaluation_results"] if row["evaluation_name"] == "pairs"]
    assert result["source_data"] == {"dataset_name": "pairs", "source_type": "hf_dataset", "hf_repo": "org/pairs"}
    details = result["score_details"]
    interval = details["uncertainty"]["confidence_interval"]
    assert details["score"] == 1.0 and details["uncertainty"]["num_samples"] == 8
    assert interval["lower"] < 1.0 <= interval["upper"] and interval["confidence_level"] == 0.95
