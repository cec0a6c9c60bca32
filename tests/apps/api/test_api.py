"""The Python API: the verbs as functions, their results and errors."""

import inspect
import json
import subprocess
import sys
from datetime import date

import numpy as np
import pandas as pd
import pytest
import rewardlab as rl_api
import yaml
from rewardlab.apps.api.results import Scores
from rewardlab.apps.cli import main
from rewardlab.apps.verbs import VERBS
from rewardlab.rm.errors import UsageError
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.registry.settings import Settings
from rewardlab.rm.types import Example, user_turn

from tests.apps.conftest import write

FUNCTIONS = {"evaluate": "eval", "reinforce": "rl", "train_judge": "judge train"}
QUESTION, ANSWER = "How do I water plant {}?", "With {} cups of rain."
QUICK = {"bootstrap_samples": 20, "baselines": "none"}
PAIRS = [{"prompt": QUESTION.format(n), "chosen": ANSWER.format(n), "rejected": "No."} for n in range(12)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A linear reward model, trained from rows in a list."""
    return rl_api.train(PAIRS, kind="linear", output=tmp_path_factory.mktemp("api") / "rm")


def test_importing_the_package_loads_no_library():
    code = (
        "import sys, rewardlab; assert set(rewardlab.__all__) <= set(dir(rewardlab)); rewardlab.__version__; "
        "print([name for name in ('torch', 'transformers', 'numpy', 'gradio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "[]"


def test_plan_lint_and_chats_load_neither_pytorch_nor_transformers(tmp_path, script):
    write(tmp_path / "pairs.jsonl", PAIRS)
    code = (
        "from rewardlab.apps.cli import main; main(['plan', '--model', '7b']); main(['lint', 'pairs.jsonl']); "
        "from rewardlab.judges.backends import local_model, openai_endpoint; import rewardlab.judges.store; "
        "sys.exit(', '.join({'torch', 'transformers', 'sklearn', 'openai'} & {*sys.modules}) or 0)"
    )
    done = subprocess.run(script(code), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_function_has_the_settings_of_its_verb():
    for name in {name for name in rl_api.__all__ if name.islower() and not name.startswith("_")} - {"load"}:
        parameters = inspect.signature(getattr(rl_api, name)).parameters
        groups = [group for group in VERBS[FUNCTIONS.get(name, name)].settings if issubclass(group, Settings)]
        own = {field for group in groups for field in group.__dataclass_fields__} - {"arm", "run", "runs"}
        assert own <= {*parameters}, name
    assert {"lora", "loss"} <= {*inspect.signature(rl_api.train).parameters}
    assert {"endpoint", "local", "shots"} <= {*inspect.signature(rl_api.judge).parameters}


def test_a_model_rates_strings_messages_rows_and_examples_as_the_loaded_model_does(model):
    expected = load_reward_model(str(model.path)).rate([Example(user_turn("Hi?"), "With rain.")])
    pair = {"prompt": "Hi?", "chosen": "With wine.", "rejected": "Not.", "messages": []}
    for prompt in ("Hi?", [{"role": "user", "content": "Hi?"}], {"prompt": "Hi?", "source": "x"}, pair):
        for completion in ("With rain.", [{"role": "assistant", "content": "With rain."}]):
            assert np.array_equal(model.rate([prompt], [completion]), expected)
    examples = [Example(user_turn("Hi?"), "With rain.")]
    assert np.array_equal(rl_api.load(model.path).rate(examples), expected)
    assert np.array_equal(model.rate(example for example in examples), expected), "a generator is read once"
    assert model.objectives == ("reward",) and "linear" in model._repr_html_()
    assert [row["reward"] for row in rl_api.score(model, prompts=[pair], completions=["With rain."])] == expected[0]
    with pytest.raises(rl_api.DataError, match=r"prompts\[1\] and completions\[1\]: empty completion: 'completion'"):
        model.rate(["Hi?", "Hi?"], ["With rain.", " "])


def test_scores_are_those_of_the_verb_and_count_what_the_template_leaves_out(model, tmp_path):
    write(tmp_path / "pairs.jsonl", PAIRS)
    scores = rl_api.score(model, tmp_path / "pairs.jsonl").to_pandas()
    assert rl_api.score(model.model, PAIRS).to_pandas().reward.tolist() == scores["reward"].tolist()
    words = ["--model", str(model.path), "--data", str(tmp_path / "pairs.jsonl"), "--output", str(tmp_path / "s.jsonl")]
    assert main(["score", *words]) == 0
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert scores["reward"].tolist() == [row["reward"] for row in rows] and len(scores) == 24
    assert "leaves out text of 1 of 2 rows" in Scores([{"reward": 1.0}, {"reward": 2.0}], omitted=1)._repr_html_()
    assert "leaves out" not in Scores([{"reward": 1.0}])._repr_html_()


def test_rows_may_hold_line_separators_dates_and_missing_cells(model):
    for separator in ("\u2028", "\x85", "\x0b", "\r"):
        row = {"id": f"x{separator}y", "prompt": "Hi?", "completion": f"With{separator}rain."}
        scores = rl_api.score(
            model, pd.DataFrame([row | {"day": date(2025, 5, 2), "time": pd.Timestamp("2025-05-02")}])
        )
        assert [scored["id"] for scored in scores.rows] == [row["id"]], separator
        assert scores[0]["reward"] == model.rate([row["prompt"]], [row["completion"]])[0, 0], separator
    rows = [
        {"prompt": "a", "chosen": "with rain", "rejected": "no", "id": "one", "subset": "s", "margin": 1.0},
        {"prompt": "b", "chosen": "cups", "rejected": "not", "wins": {"overall": 0.9}},
        {"prompt": "c", "chosen": "rain", "rejected": "none", "system": "Be kind."},
    ]
    frame = pd.DataFrame(rows)
    assert frame.isna().to_numpy().sum() == 10
    of_frame, of_rows = (rl_api.evaluate(model, data, **QUICK).to_pandas() for data in (frame, rows))
    pd.testing.assert_frame_equal(of_frame, of_rows)
    assert "nan" not in set(of_frame.area)


def test_a_result_is_one_short_line_in_a_console_and_a_table_when_it_is_printed(model, tmp_path):
    path = tmp_path / "scores.jsonl"
    scores, evaluation = rl_api.score(model, PAIRS, output=path), rl_api.evaluate(model, PAIRS, **QUICK)
    assert repr(model) == f"TrainedModel(path='{model.path}')" and repr(scores) == f"Scores(24 rows, path='{path}')"
    assert repr(evaluation) == "Evaluation(pairs, 12 cases)" and "rm" in str(evaluation)
    assert repr(rl_api.lint(PAIRS)).startswith("LintReport(") and repr(rl_api.plan("7b")) == "MemoryPlan()"
    assert repr(rl_api.compare(evaluation, evaluation)) == "Comparison(run/rm minus run/rm, 12 cases)"


def test_an_evaluation_has_intervals_a_table_and_a_figure_and_a_comparison_is_checked_by_its_gate(model, tmp_path):
    evaluation = rl_api.evaluate(model, PAIRS, bootstrap_samples=50, output=tmp_path / "run")
    frame = evaluation.to_pandas()
    overall = frame[(frame.kind == "overall") & (frame.scorer == "rm")].iloc[0]
    assert (overall.value, overall.low, overall.high) == evaluation.overall["rm"] and 0 <= overall.low <= overall.value
    assert {"model", "baseline"} == set(frame.role)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["rows"][0]["overall"] == pytest.approx(list(evaluation.overall["rm"]))
    page = evaluation._repr_html_()
    assert str(evaluation.overall["rm"]) in page and "data:image/png;base64," in page
    kept = rl_api.evaluate(model, PAIRS, bootstrap_samples=50)
    assert kept.path is None and kept.overall == evaluation.overall
    comparison = rl_api.compare(evaluation, evaluation)
    assert comparison.to_pandas().difference.abs().max() == 0 and "12 cases" in comparison._repr_html_()

    def longer(completions):
        return [len(text) for text in completions]

    def shorter(completions):
        return [-len(text) for text in completions]

    runs = [rl_api.evaluate(rate, PAIRS, output=tmp_path / rate.__name__, **QUICK) for rate in (longer, shorter)]
    gate = tmp_path / "gate.yaml"
    gate.write_text("- {area: overall, max_drop: 0.5, even_if_noise: true}\n")
    better = rl_api.compare(*runs[::-1], bootstrap_samples=40, gate=gate, output=tmp_path / "better")
    assert better.facts.areas["overall"].difference.value == 1 and (tmp_path / "better" / "comparison.md").is_file()
    with pytest.raises(rl_api.CheckFailed, match="overall fell by 100.0 points, more than 50.0"):
        rl_api.compare(*runs, bootstrap_samples=40, gate=gate)
    with pytest.raises(rl_api.UsageError, match="no_rules.yaml"):
        rl_api.compare(*runs, gate=tmp_path / "no_rules.yaml")


def test_lint_returns_findings_plan_its_phases_and_results_print_as_short_tables(model):
    report = rl_api.lint([*PAIRS, {"prompt": "a", "chosen": "same", "rejected": "same"}])
    assert not report.ok and len(report) == 1 and ":13" in report[0]["location"] and "identical" in report._repr_html_()
    assert rl_api.lint(PAIRS[:2]).ok
    leaking = rl_api.lint([{**PAIRS[0], "prompt": f"Question {n}?", "chosen": f"Yes, it is {n}."} for n in range(40)])
    assert not leaking.ok and leaking.leaks[0] in str(leaking), "the longer one is always chosen"
    plan = rl_api.plan("7b", gpus=8, strategy="fsdp", lora_r=16)
    assert plan["gpus"] == 8 and plan.to_pandas()["weights"].iloc[0] > 1 and "data:image/png" in plan._repr_html_()
    evaluation = rl_api.evaluate(model, PAIRS, bootstrap_samples=20, baselines=["longest"])
    lines = str(evaluation).splitlines()
    assert lines[0] == "pairs: accuracy in % with 95 % intervals, 12 cases" and lines[1].startswith("rm ")
    assert str(evaluation.overall["rm"]) in lines[1] and len(lines) == 1 + len(evaluation.report.rows)
    comparison = str(rl_api.compare(evaluation, evaluation, bootstrap_samples=40)).splitlines()
    assert "12 cases" in comparison[0] and comparison[1].split()[:3] == ["kind", "area", "first"]
    scores = str(rl_api.score(model, [*PAIRS, *PAIRS])).splitlines()
    assert "48 rows" in scores[0] and "reward" in scores[1] and scores[-1] == "..." and len(scores) == 43
    plan = str(rl_api.plan("7b", gpus=8))
    assert "gpus" in plan and "(" not in plan.splitlines()[-1] and max(map(len, plan.splitlines())) < 160


def test_a_wrong_call_is_one_sentence_in_the_words_of_python(tmp_path, monkeypatch):
    for call, message in (
        (lambda: rl_api.train("nowhere.jsonl", output="out"), "data: no file nowhere.jsonl"),
        (lambda: rl_api.train(PAIRS, output="out", learning_rte=1), "did you mean 'learning_rate'?"),
        (lambda: rl_api.train(PAIRS, output="out", lora="maybe"), "lora: input should be a valid boolean"),
        (lambda: rl_api.train(PAIRS, output="out", golden=1), "golden must be at least 2"),
        (lambda: rl_api.decode("arm", "one prompt"), "prompts must be a list of prompts"),
        (
            lambda: rl_api.decode("arm", [{"question": "?"}]),
            "a row of prompts needs a column 'prompt', it has question",
        ),
        (lambda: rl_api.score("rm", prompts=["a"], completions=["b", "c"]), "1 prompts and 2 completions"),
        (lambda: rl_api.score("rm", PAIRS, prompts=["a"], completions=["b"]), "score takes data, or prompts and"),
        (lambda: rl_api.score("rm", prompts=["a"], completions="b"), "completions must be a list of completions"),
        (lambda: rl_api.score("rm", prompts=["a\ud800"], completions=["b"]), "an unpaired surrogate, '\\ud800'"),
        (lambda: rl_api.score("rm", [{"prompt": "a", "completion": "b", "x": b"y"}]), "a row holds b'y'"),
        (lambda: rl_api.train([1, 2], output="out"), "data must be a path, a list of paths or rows"),
        (lambda: rl_api.evaluate("rm", 3), "data must be a path, a list of paths or rows with named columns, got 3"),
        (lambda: rl_api.decode("arm", 3), "prompts must be a list of prompts, got 3"),
        (lambda: rl_api.score("rm", prompts=["a"], completions=3), "completions must be a list of completions, got 3"),
        (lambda: rl_api.decode("nowhere", ["a prompt"]), "arm nowhere: no such folder here; check the path"),
    ):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(rl_api.UsageError, match="^[^-]") as raised:
            call()
        assert message in str(raised.value) and "--" not in str(raised.value)
        assert not (tmp_path / "out").exists(), message
    with pytest.raises(rl_api.UsageError, match="^model: ") as raised:
        rl_api.evaluate(object(), PAIRS)
    assert raised.value.__suppress_context__ and raised.value.__cause__ is None, "no traceback behind it"


@pytest.mark.slow
def test_a_guide_and_a_policy_from_python(rl_world, tmp_path):
    small = {"max_steps": 2, "disable_tqdm": True, "use_cpu": True}
    guided = {"kind": "autoregressive", "adapter": "uniarm", "objectives": ["helpful", "harmless"]}
    guided |= {"model": rl_world / "start", "embedding": "one_hot", "output": tmp_path / "guide"}
    guide = rl_api.train(rl_world / "pairs.jsonl", **guided, **small)
    decoded = rl_api.decode(guide, ["An axe?"], preference={"helpful": 0.7, "harmless": 0.3}, max_new_tokens=4)
    assert len(decoded.to_pandas()) == 1 and "axe" in decoded._repr_html_()

    def brevity(prompts, completions, **columns):
        return [-float(len(completion[0]["content"])) for completion in completions]

    def centred(rewards, rollout):
        return (rewards - rewards.nanmean()).nan_to_num(0)

    def surrogate(logprobs, old_logprobs, advantages):
        return -(logprobs - old_logprobs).exp() * advantages

    settings = {"advantage": centred, "loss": surrogate, "reward": {"rm": rl_world / "rm", "short": brevity}, **small}
    settings |= {"num_generations": 4, "per_device_train_batch_size": 8, "max_completion_length": 8}
    settings |= {"num_generations_eval": 2, "per_device_eval_batch_size": 2}
    settings["eval_data"] = [{"prompt": [{"role": "user", "content": "An axe?"}]}]
    files = rl_world / "start", rl_world / "prompts.jsonl"
    policy = rl_api.reinforce(*files, output=tmp_path / "policy", **settings)
    assert yaml.safe_load((tmp_path / "policy" / "config.yaml").read_text())["loss"].endswith(":surrogate")
    steps = policy.to_pandas()
    assert steps["eval_reward"].notna().tolist() == [False, False, True] and isinstance(policy["eval_reward"], float)
    assert (steps["rewards/short/mean"][:2] <= 0).all() and "data:image/png" in policy._repr_html_()


def test_functions_of_one_name_lambdas_and_objects_score_as_themselves():
    class Longer:
        def __call__(self, completions, sign=1):
            return [sign * len(text) for text in completions]

    def make(sign):
        def score(completions):
            return Longer()(completions, sign)

        return score

    models = [make(1), make(-1), lambda completions: Longer()(completions), Longer()]
    overall = rl_api.evaluate(models, PAIRS, **QUICK).overall
    assert [interval.value for interval in overall.values()] == [1, 0, 1, 1]  # the longer response is chosen
    assert [*overall][2:] == ["lambda", "Longer"]
    judged = rl_api.judge(PAIRS, kind=lambda prompt, responses: [len(text) for text in responses], bootstrap_samples=20)
    assert judged.overall["lambda"].value == 1
    for name, value in (("audit", True), ("dry_run", True), ("fit_route", ["a", "b"])):
        with pytest.raises(
            UsageError, match=f"^{name} returns no evaluation; use the command `rewardlab judge` for it"
        ):
            rl_api.judge(PAIRS, kind=len, **{name: value})
