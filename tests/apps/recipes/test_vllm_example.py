"""examples/vllm_training: the recipe as it stands, with a stand-in for vLLM that writes answers and judges."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from rewardlab.apps.assembly.policy_training.run import checked_algorithm
from rewardlab.apps.cli import VERBS, main, parse
from rewardlab.apps.serving.settings import ServeConfig
from rewardlab.benchmarks import garden
from rewardlab.examples.vllm_training import run as whole
from rewardlab.judges.parsing.verdicts import points
from rewardlab.policy.rollouts.vllm import server_process as kept_server
from rewardlab.policy.rollouts.vllm.server_process import ServerProcess
from rewardlab.rm.load import load_reward_model

from tests.apps.conftest import rollouts_of, steps_of
from tests.policy.rollouts.vllm.test_server_process import STAND_INS, gone, told
from tests.stand_ins.scoring_server import serve_in_thread

RECIPES = whole.RECIPE.parent


@pytest.fixture
def servers(rl_world, tmp_path, monkeypatch):
    """Two reward servers in this process and a judge beside it, by the recipe's names; the first can be stopped."""
    monkeypatch.setenv("PYTHONPATH", str(STAND_INS))
    monkeypatch.setenv("REWARDLAB_VLLM_PYTHON", sys.executable)
    monkeypatch.setattr(kept_server, "LOOK", 0.05)
    model = load_reward_model(str(rl_world / "rm"))
    (tmp_path / "judge").symlink_to(rl_world / "start")
    with ExitStack() as stack:
        urls = {"second": stack.enter_context(serve_in_thread(model, ServeConfig(model="rm", port=0)))}
        first = stack.enter_context(ExitStack())
        urls["first"] = first.enter_context(serve_in_thread(model, ServeConfig(model="rm", port=0)))
        chat = ServerProcess(tmp_path / "judge.log", seconds=60)
        stack.callback(chat.stop)
        urls["judge"] = chat.start(whole.judge_command(tmp_path, sys.executable))
        yield urls, first


@pytest.mark.slow
def test_the_recipe_trains_with_served_rewards_a_judge_and_a_server_that_is_restarted(
    servers, rl_world, tmp_path, monkeypatch
):
    """Eight steps start vLLM at 0 and 6; a reward server stops after the third and nothing is lost."""
    urls, first = servers
    small = {"max_steps: 24": "max_steps: 8", "train_batch_size: 32": "train_batch_size: 8"}
    recipe = tmp_path / "rl.yaml"
    recipe.write_text(whole.addressed(whole.RECIPE, urls, **small) + "use_cpu: true\n")
    from rewardlab.apps.assembly.policy_training.run import WriteSteps

    wrote = WriteSteps.on_log

    def on_log(self, args, state, control, **kwargs):
        if state.global_step == 3:
            first.close()
        wrote(self, args, state, control, **kwargs)

    monkeypatch.setattr(WriteSteps, "on_log", on_log)
    words = ["rl", "--config", str(recipe), "--model", str(rl_world / "start")]
    words += ["--data", str(rl_world / "prompts.jsonl"), "--output", str(tmp_path / "run")]
    assert main(words) == 0
    found = whole.summary(tmp_path / "run")
    assert found["steps"] == 8 and found["lags"] == [0, 1, 2, 3, 4, 5, 0, 1] and found["starts_of_vllm"] == 2
    assert found["missing_rewards"] == 0 and found["judge_requests"] >= 8
    for row in steps_of(tmp_path / "run"):
        total = row["rewards/rm/mean"] + 0.1 * row["rewards/judge/mean"]
        assert row["reward"] == pytest.approx(total, abs=1e-5) and 1 <= row["rewards/judge/mean"] <= 10
    starts = told(tmp_path / "run" / "vllm.log")
    assert len({one["weights"] for one in starts}) == 2 and gone([pid for one in starts for pid in one["pids"]])
    rows = rollouts_of(tmp_path / "run")
    model = load_reward_model(str(rl_world / "rm"))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["contracts"]["rm"] == model.contract.hash() and len(rows) == 2 * 16


def test_a_recipe_names_what_exists_and_goes_together(tmp_path, monkeypatch):
    monkeypatch.setattr("rewardlab.apps.assembly.policy_training.run.find_spec", lambda name: object())
    for name in ("rl", "pushed"):
        words = [
            "--config",
            str(RECIPES / f"{name}.yaml"),
            "--model",
            "policy",
            "--data",
            "prompts.jsonl",
            "--output",
            "o",
        ]
        off = {"rl": [], "pushed": ["--bf16", "False"]}[name]
        config, arguments = parse("rl", VERBS["rl"], [*words, *off, "--use_cpu", "True"])
        config.validate()
        checked_algorithm(config, arguments)
        assert bool(config.rollouts) != bool(arguments.use_vllm), name


def test_the_page_starts_what_the_recipe_asks_for():
    page, recipe = (RECIPES / "README.md").read_text(), yaml.safe_load(whole.RECIPE.read_text())
    for port in whole.PORTS.values():
        assert f"--port {port}" in page and f":{port}" in str(recipe["reward"])
    assert "not run here" in page and "NOT RUN HERE" in (RECIPES / "pushed.yaml").read_text()
    for line in page.splitlines():
        if line.startswith("    rewardlab "):
            assert line.split()[1] in VERBS


def test_a_judges_lessons_rank_answers_by_the_gold_reward():
    answers = garden.supervised_examples(18, seed=1)
    lessons = whole.judge_lessons(answers)
    marks = [points(one.completion, 1, 10, quoted=[]).value for one in lessons]
    assert sorted(marks) == sorted([*range(1, 10)] * 2)
    gold = garden.gold().rate(answers)[:, 0]
    best, worst = int(gold.argmax()), int(gold.argmin())
    assert marks[best] == 9 and marks[worst] == 1
    assert answers[3].completion in lessons[3].prompt[-1]["content"] and lessons[3].prompt[0]["role"] == "system"


def test_what_a_run_tells_is_read_from_its_steps(tmp_path):
    names = {f"rewards/{name}/missing": 0 for name in ("rm", "judge", "gold")}
    rows = [
        {"step": step, "reward": float(step), "watch/kl": 0.0, "rollouts/lag": step % 2, "ratio": 1.0, "judge/calls": 2,
         **names, **{f"rewards/{name}/mean": float(step) for name in ("rm", "judge", "gold")},
         **({"rollouts/restart_seconds": 3.0} if step % 2 == 0 else {})}
        for step in range(20)
    ]  # fmt: skip
    Path(tmp_path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = whole.summary(tmp_path)
    assert found["reward"]["gold"] == {"start": 0.5, "end": 18.5} and found["starts_of_vllm"] == 10
    assert found["judge_requests"] == 40 and found["lags"][:3] == [0, 1, 0] and found["missing_rewards"] == 0
