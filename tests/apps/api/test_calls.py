"""Calls of the Python API: what becomes of their inputs, and what they leave behind."""

import json
import sys
import threading
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import rewardlab as rl_api
import torch
from datasets import Dataset, DatasetDict
from rewardlab.apps.api.calls import parse_settings
from rewardlab.apps.api.inputs import data_source
from rewardlab.apps.api.results import Labelled, Sampled, TrainedPolicy
from rewardlab.apps.cli import main
from rewardlab.benchmarks.scorers import FunctionModel

PAIRS = [{"prompt": f"Plant {n}?", "chosen": f"Water it {n} times.", "rejected": "No."} for n in range(12)]
QUICK = {"bootstrap_samples": 20, "baselines": "none"}


def longer(completions):
    return [len(text) for text in completions]


def test_rows_of_an_objective_for_training_and_for_evaluation_are_two_files(tmp_path):
    files = {name: {"helpful": [{"id": name}]} for name in ("data", "eval_data")}
    sources = {name: data_source(rows, tmp_path, name, by_objective=True) for name, rows in files.items()}
    for name, (source,) in sources.items():
        assert json.loads(Path(source.removeprefix("helpful=")).read_text()) == {"id": name}


def test_data_of_another_form_is_refused_with_what_it_is():
    row, frame = PAIRS[0], pd.DataFrame([["a", "b", "c"]], columns=["prompt", "chosen", "chosen"])
    splits = DatasetDict(train=Dataset.from_list(PAIRS), test=Dataset.from_list(PAIRS))
    for data, message in (
        (splits, r"data has the splits train, test; give one of them, such as data\['train'\]"),
        (row, "got a mapping of prompt, chosen, rejected; give a list of rows"),
        ({"prompt": ["a"], "chosen": ["b"], "rejected": ["c"]}, "got a mapping of prompt, chosen, rejected"),
        ({"a/b": PAIRS}, "an objective is a name of letters, digits, '_', '.' and '-', got 'a/b'"),
        (frame, "two columns of the data are called 'chosen'"),
        ([row, 3], "got a list of <class 'int'>"),
        ([{("a", 1): 2}], "a row cannot be written as JSON"),
    ):
        with pytest.raises(rl_api.UsageError, match=message):
            rl_api.train(data, kind="linear", output="none")
    with pytest.raises(rl_api.UsageError, match="got a mapping of helpful; give a list of rows"):
        rl_api.lint({"helpful": PAIRS})
    with pytest.raises(rl_api.UsageError, match="score takes a reward model, got a function"):
        rl_api.score(longer, PAIRS)
    with pytest.raises(rl_api.UsageError, match="was not loaded from a folder; give its folder, or a function"):
        rl_api.evaluate([FunctionModel(longer, "longer")], PAIRS)


def test_settings_of_transformers_that_are_dictionaries_stay_dictionaries():
    settings = {"lr_scheduler_kwargs": {"num_cycles": 2}, "accelerator_config": {"split_batches": True}}
    *_, arguments = parse_settings("train", settings | {"use_cpu": True})
    assert arguments.lr_scheduler_kwargs == {"num_cycles": 2} and arguments.accelerator_config.split_batches
    *_, arguments = parse_settings("rl", {"generation_kwargs": {"no_repeat_ngram_size": 2}, "use_cpu": True})
    assert arguments.generation_kwargs == {"no_repeat_ngram_size": 2}
    (decoding,) = parse_settings("decode", {"preference": {"helpful": 0.7, "harmless": 0.3}})
    assert decoding.preference == "helpful=0.7,harmless=0.3"


def test_a_value_that_is_given_twice_is_refused(tmp_path):
    for call, message in (
        (lambda: rl_api.decode("arm", ["a"], data="b.jsonl"), "decode takes prompts or data, got both"),
        (lambda: rl_api.decode("arm", ["a"], arm="other"), "decode takes model or arm, got both"),
        (lambda: rl_api.compare("a", "b", runs=["c", "d"]), "compare takes both runs as first and second"),
        (lambda: rl_api.decode("arm"), "prompts is empty"),
        (lambda: rl_api.decode("arm", data=str(tmp_path / "no.jsonl")), "no.jsonl"),
    ):
        with pytest.raises(rl_api.UsageError, match=message):
            call()


def test_calls_in_two_threads_leave_stdout_as_it_was():
    """The second call begins within the first one, and ends after it."""
    before, first_ended, within = sys.stdout, threading.Event(), threading.Barrier(2)

    def one(completions):
        within.wait(60)
        return longer(completions)

    def two(completions):
        within.wait(60)
        first_ended.wait(60)
        return longer(completions)

    threads = [threading.Thread(target=rl_api.evaluate, args=(f, PAIRS), kwargs=QUICK) for f in (one, two)]
    for thread in threads:
        thread.start()
    threads[0].join(60)
    first_ended.set()
    threads[1].join(60)
    assert sys.stdout is before and not any(thread.is_alive() for thread in threads)


def test_a_manifest_names_the_command_line_that_ran_and_none_for_a_call_from_python(tmp_path):
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    words = ["eval", "--model", f"{__name__}:longer", "--data", str(tmp_path / "pairs.jsonl"), "--baselines", "none"]
    words += ["--bootstrap_samples", "20", "--output", str(tmp_path / "command")]
    assert main(words) == 0
    rl_api.evaluate(longer, PAIRS, output=tmp_path / "call", **QUICK)
    commands = [json.loads((tmp_path / name / "manifest.json").read_text())["command"] for name in ("command", "call")]
    assert commands == [["rewardlab", *words], None]


def test_results_have_short_names_paths_and_exact_numbers(tmp_path):
    row = {"prompt": "a", "chosen": "b", "rejected": "c"}
    assert [repr(kind([row])) for kind in (Sampled, Labelled)] == ["Sampled(1 rows)", "Labelled(1 rows)"]
    assert [*Sampled([row])] == [row] and rl_api.lint(Labelled([row])).ok
    plan = rl_api.plan("7b", output=str(tmp_path / "plan"))
    assert plan.path == tmp_path / "plan" and repr(plan) == f"MemoryPlan(path='{tmp_path / 'plan'}')"
    steps = [{"step": 1, "loss": 0.1 + 0.2, "eval_reward": None}, {"step": 2, "loss": -1 / 3, "eval_reward": 1e-7}]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    frame = TrainedPolicy({}, tmp_path).to_pandas()
    assert frame.loss.tolist() == [0.1 + 0.2, -1 / 3] and frame.eval_reward.isna().tolist() == [True, False]


def test_random_numbers_of_the_caller_do_not_depend_on_calls(rl_world, tmp_path):
    small = {"model": rl_world / "start", "max_steps": 1, "use_cpu": True, "disable_tqdm": True}
    adapter = rl_api.train(PAIRS, output=tmp_path / "lora", lora=True, **small)
    torch.manual_seed(7)
    expected = torch.randn(3)
    for load in (
        lambda: rl_api.load(rl_world / "rm"),
        lambda: rl_api.load(adapter),
        lambda: rl_api.score(rl_world / "rm", PAIRS),
        lambda: rl_api.evaluate(rl_world / "rm", PAIRS, read_as="scalar", **QUICK),
    ):
        torch.manual_seed(7)
        load()
        assert torch.equal(torch.randn(3), expected)


def test_partials_and_objects_are_losses(rl_world, tmp_path, recwarn):
    def hinge(pairs, margin=1.0):
        return (margin - pairs.gap).clamp(min=0)

    class Hinge:
        def __call__(self, pairs):
            return hinge(pairs, 2.0)

    small = {"model": rl_world / "start", "max_steps": 1, "use_cpu": True, "disable_tqdm": True}
    losses = [
        rl_api.train(PAIRS, output=tmp_path / str(number), loss=loss, **small).metrics["train_loss"]
        for number, loss in enumerate((partial(hinge, margin=2.0), Hinge()))
    ]
    assert losses[0] == losses[1] == pytest.approx(2, abs=0.3)  # gaps are about 0
    assert not [warning for warning in recwarn if issubclass(warning.category, FutureWarning)]


def test_settings_of_libraries_warn_nobody(recwarn):
    with pytest.raises(rl_api.UsageError, match="no file nowhere"):
        rl_api.reinforce("start", "nowhere.jsonl", reward=longer, output="none", use_cpu=True)
    assert not [warning for warning in recwarn if issubclass(warning.category, FutureWarning)]
