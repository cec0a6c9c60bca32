"""Complete folders are uploaded to the Hub, whose stand-in records what it is given; results take others' formats."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import DatasetCard, parse_eval_result_entries
from rewardlab.apps.cli import main
from rewardlab.apps.runs.run_folder import training_recipe
from rewardlab.judges.backends.chat import Ask
from rewardlab.rm.data.pairs import pair_row
from rewardlab.rm.training.trainer import RewardArguments
from rewardlab.tests.stand_ins.chat_server import ChatServer
from rewardlab.tests.stand_ins.simulated_teacher import SimulatedTeacher
from rewardlab.tests.stand_ins.verifiable_prompts import items

from tests.apps.commands.conftest import save_policy
from tests.apps.judging import longer

PAIRS = [{"id": str(n), "prompt": f"q{n}", "chosen": "good " * (n + 1), "rejected": "bad"} for n in range(8)]


class Hub:
    """Stand-in of `HfApi`: requests by order, with the files that an upload finds."""

    def __init__(self) -> None:
        self.requests: list[tuple] = []
        self.refusal: dict[str, Exception] = {}

    def __call__(self, token=None):
        return self

    def create_repo(self, name, *, private, exist_ok, repo_type):
        self._answer("create")
        self.requests.append(("create", name, private, exist_ok, repo_type))
        return SimpleNamespace(repo_id=name)

    def upload_folder(self, *, repo_id, folder_path, allow_patterns, **options):
        self._answer("upload")
        files = {path.relative_to(folder_path).as_posix() for path in Path(folder_path).rglob("*") if path.is_file()}
        self.requests.append(("upload", repo_id, files, allow_patterns))
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    def create_commit(self, *, repo_id, repo_type, operations, **options):
        self._answer("commit")
        files = {}
        for operation in operations:
            with operation.as_file() as file:
                files[operation.path_in_repo] = file.read()
        self.requests.append(("commit", repo_id, repo_type, files))
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
    assert hub.requests[0] == ("create", "org/rm", True, True, "model")
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


def test_a_card_of_another_name_is_not_uploaded(hub, capsys):
    assert main(["card", "rm", "--output", "CARD.md", *UPLOAD]) == 2
    assert (
        "--push_to_hub needs an --output named README.md, got CARD.md" in capsys.readouterr().err and hub.requests == []
    )


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


# ---- data sets ----

DATA_SET = ("--push_to_hub", "True", "--hub_model_id", "org/pairs")


def header(card: str) -> dict:
    """The YAML header of a data card, as the Hub reads it."""
    data = DatasetCard(card).data
    configs = MetadataConfigs.from_dataset_card_data(data)
    assert [row["config_name"] for row in data.to_dict()["configs"]] == [*configs]
    return data.to_dict() | {"configs": {name: config["data_files"] for name, config in configs.items()}}


def test_cleaned_pairs_are_uploaded_as_a_data_set_with_a_card(hub, capsys):
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*PAIRS, {"prompt": "q"}]))
    words = ["lint", "pairs.jsonl", "--fix", "clean.jsonl", *DATA_SET]
    assert main([*words, "--hub_license", "cc-by-4.0"]) == 0
    assert json.loads(capsys.readouterr().out)["commit"] == "https://hub/org/pairs/commit/1"
    create, (kind, name, repo_type, files) = hub.requests
    assert create == ("create", "org/pairs", False, True, "dataset") and repo_type == "dataset"
    assert (kind, name) == ("commit", "org/pairs") and {*files} == {"README.md", "clean.jsonl"}
    assert files["clean.jsonl"] == Path("clean.jsonl").read_bytes() and not Path("README.md").exists()
    card = files["README.md"].decode()
    assert header(card) == {"license": "cc-by-4.0", "configs": {"default": "clean.jsonl"}, "tags": ["rewardlab"]}
    assert "# org/pairs" in card and "8 of 9 rows of pairs.jsonl" in card and "unusable (1)" in card
    assert main([*words, "--overwrite"]) == 0 and "license" not in header(hub.requests[-1][-1]["README.md"].decode())


def test_a_missing_login_is_found_before_the_data_are_read(hub, capsys):
    hub.refusal["create"] = OSError("Token is required")
    Path("pairs.jsonl").write_text("{")
    assert main(["lint", "pairs.jsonl", "--fix", "clean.jsonl", *DATA_SET]) == 2
    assert "log in with hf auth login" in capsys.readouterr().err and not Path("clean.jsonl").exists()


def test_a_refused_data_set_names_the_command_that_uploads_it(hub, capsys):
    hub.refusal["commit"] = OSError("502")
    assert main(["lint", "pairs.jsonl", "--fix", "clean.jsonl", *DATA_SET]) == 3
    assert "hf upload org/pairs clean.jsonl --repo-type dataset" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lint", "pairs.jsonl"], "uploads the file of --fix; add --fix"),
        (["decode", "--base", "b"], "uploads the file of --output; add --output"),
        (["judge", "--data", "pairs.jsonl", "--dry_run"], "uploads judgments; leave --dry_run, --audit and"),
        (["rubrics", "lint", "pairs.jsonl"], "the rubrics of build and apply; leave it out with lint"),
    ],
)
def test_an_upload_of_nothing_is_refused_before_anything_is_asked_of_the_hub(hub, capsys, words, sentence):
    assert main([*words, *DATA_SET]) == 2
    assert sentence in capsys.readouterr().err and hub.requests == []


def test_decoded_completions_are_uploaded_with_the_models_in_the_card(hub, capsys):
    base = save_policy(Path("base"))
    Path("prompts.txt").write_text("tell me about bees\n")
    words = ["decode", "--base", base, "--data", "prompts.txt", "--max_new_tokens", "4", "--output", "decoded.jsonl"]
    assert main([*words, *DATA_SET]) == 0
    files = hub.requests[-1][-1]
    assert {*files} == {"README.md", "decoded.jsonl"} and b'"completion"' in files["decoded.jsonl"]
    card = files["README.md"].decode()
    assert "1 completions of the prompts in prompts.txt" in card and "base model base, temperature 1" in card


def test_judgments_are_uploaded_with_their_run_folder_and_a_resumed_run_may_upload(hub, capsys):
    with ChatServer(answer=longer) as server:
        words = ["judge", "--data", "pairs.jsonl", "--endpoint", server.url, "--model", "qwen", "--output", "judged"]
        assert main([*words, "--bootstrap_samples", "20", *DATA_SET]) == 0
    files = hub.requests[-1][-1]
    assert {"README.md", "manifest.json", "summary.json", "replies/replies.jsonl"} <= files.keys()
    tables = {name: f"{name}.parquet" for name in ("judgments", "scores", "items")}
    assert header(files["README.md"].decode())["configs"] == tables and {*tables.values()} <= files.keys()
    assert "hub_model_id" not in Path("judged/config.yaml").read_text()


def test_rubrics_are_uploaded_with_their_run_folder(hub, capsys):
    teacher = SimulatedTeacher(seed=1)
    Path("checks.jsonl").write_text("".join(json.dumps(pair_row(item.pair(0, 0))) + "\n" for item in items(2, 0)))
    with ChatServer(answer=lambda asked: teacher.ask([Ask(asked["messages"])])[0].text) as server:
        words = ["rubrics", "apply", "--data", "checks.jsonl", "--endpoint", server.url, "--model", "teacher"]
        assert main([*words, "--output", "rubrics", *DATA_SET]) == 0
    files = hub.requests[-1][-1]
    card = files["README.md"].decode()
    assert header(card)["configs"] == {"default": "rubrics.jsonl"} and "rubrics.jsonl" in files
    assert "Rubrics for checks.jsonl by teacher" in card


def test_help_has_the_settings_of_an_upload_behind_those_of_the_verb(capsys):
    assert main(["lint", "--help-all"]) == 0
    page = capsys.readouterr().out
    assert page.index("--against") < page.index("Hub:") < page.index("--push_to_hub") < page.index("--hub_license")
