"""Figures of evaluations in experiment trackers."""

import importlib.util
import json
import sys
from types import SimpleNamespace

import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.runs.trackers import log_figures
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.apps.judging import lengths, write


@pytest.fixture
def evaluate(tmp_path, capsys):
    """`rewardlab eval` of stored scores: four cases, one wrong and one without scores."""
    data = write(tmp_path / "pairs.jsonl", lengths(4))
    rows = [{"id": f"p{i}", "score_chosen": float(i != 1), "score_rejected": 0.5} for i in range(3)]
    scores = write(tmp_path / "my model.jsonl", rows)

    def run(*words):
        folder = tmp_path / "run"
        named = ["--scores", scores, "--data", data, "--output", str(folder), "--baselines", "longest"]
        code = main(["eval", *named, "--bootstrap_samples", "20", *words])
        return code, folder, capsys.readouterr().err

    return run


@pytest.fixture
def client(monkeypatch):
    """A stand-in for wandb or trackio: the arguments of `init`, the scalars, and whether the run was finished."""

    def install(name, error=None):
        calls = SimpleNamespace(init={}, scalars=[], finished=0)

        def init(**options):
            if error:
                raise error
            calls.init = options
            return SimpleNamespace(log=calls.scalars.append, finish=finish)

        def finish():
            calls.finished += 1

        spec = importlib.util.spec_from_loader(name, loader=None)
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(init=init, __spec__=spec))
        return calls

    return install


def overall(folder):
    return json.loads((folder / "summary.json").read_text())["rows"][0]["overall"]


def test_tensorboard_has_the_figures_of_every_scorer_and_the_settings(evaluate):
    code, folder, err = evaluate("--report_to", "tensorboard")
    assert code == 0, err
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    figures = {name: events.Scalars(name) for name in events.Tags()["scalars"]}
    assert all(len(points) == 1 for points in figures.values())
    model = {"accuracy", "accuracy_low", "accuracy_high", "abstentions"}
    names = {f"pairs/{scorer}/{name}" for scorer in ("my_model", "longest") for name in model}
    assert {*figures} == names | {"pairs/cases"}
    values = [figures[f"pairs/my_model/{name}"][0].value for name in ("accuracy", "accuracy_low", "accuracy_high")]
    assert values == pytest.approx(overall(folder))
    assert figures["pairs/my_model/abstentions"][0].value == 1 and figures["pairs/cases"][0].value == 4
    settings = json.loads(events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0])
    assert settings["benchmark"] == "pairs" and settings["bootstrap_samples"] == 20


@pytest.mark.parametrize("package", ["wandb", "trackio"])
def test_a_client_logs_the_figures_once_under_the_project_of_its_variable(evaluate, client, monkeypatch, package):
    calls = client(package)
    monkeypatch.setenv(f"{package.upper()}_PROJECT", "mine")
    code, folder, err = evaluate("--report_to", package)
    assert code == 0, err
    assert calls.init["project"] == "mine" and calls.init["name"] == "run"
    assert calls.init["config"]["benchmark"] == "pairs" and calls.finished == 1
    (figures,) = calls.scalars
    assert figures["pairs/my_model/accuracy"] == pytest.approx(overall(folder)[0])
    assert {type(value) for value in figures.values()} == {float}


def test_a_judge_has_coverage_agreement_and_cost(client, judge):
    calls = client("wandb")
    code, facts, err, _ = judge("--report_to", "wandb", "--prompt_price", 1, "--completion_price", 10)
    assert code == 0, err
    (figures,), account = calls.scalars, facts["judges"]["qwen pairwise"]
    for name, value in (("coverage", 1.0), ("agreement", 1.0), ("cost", account["cost"]), ("accuracy", 1.0)):
        assert figures[f"pairs/qwen_pairwise/{name}"] == pytest.approx(value), name
    assert account["cost"] > 0 and "pairs/longest/cost" not in figures
    assert calls.init["project"] == "rewardlab" and calls.init["config"]["kind"] == ["pairwise"]


def test_keys_in_settings_are_not_sent(client, tmp_path):
    calls = client("wandb")
    settings = {"kind": ["pairwise(api_key=xyz, n=1)"], "chat": {"endpoint": "http://u:p@host/v1"}, "limit": 3}
    log_figures("wandb", tmp_path / "run", {"pairs/cases": 1.0}, settings)
    redacted = {"kind": ["pairwise(api_key=***, n=1)"], "chat": {"endpoint": "http://***@host/v1"}, "limit": 3}
    assert calls.init["config"] == redacted


def test_a_missing_package_an_unknown_tracker_and_a_failed_client_are_one_sentence(evaluate, client, monkeypatch):
    code, folder, err = evaluate("--report_to", "mlflow")
    assert code == 2 and "--report_to must be one of none, tensorboard, wandb, trackio" in err and not folder.exists()
    monkeypatch.setattr("rewardlab.apps.settings.preflight.find_spec", lambda name: None)
    code, folder, err = evaluate("--report_to", "trackio")
    assert code == 2 and "--report_to trackio needs the package trackio, which is not installed" in err
    assert not folder.exists()
    monkeypatch.undo()
    client("wandb", RuntimeError("not logged in"))
    code, folder, err = evaluate("--report_to", "wandb")
    assert code == 2 and "run is complete, but --report_to wandb failed (not logged in)" in err
    assert (folder / "report.md").exists()


def test_a_run_without_figures_is_refused(judge, tmp_path):
    for words in (["--audit"], ["--dry_run"]):
        code, _, err, folder = judge("--report_to", "tensorboard", *words)
        assert code == 2 and "with --audit, --dry_run or --fit_route, leave it out" in err and not folder.exists()
