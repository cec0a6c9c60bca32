import json
import math
import shlex
import sys
import time
from inspect import signature
from itertools import chain

import numpy as np
import pytest
from rewardlab.apps.assembly.policy_training.run import checked_algorithm
from rewardlab.apps.cli import VERBS, parse
from rewardlab.research.studies.seeds import Plan, figure, side_by_side, text
from rewardlab.research.worlds.guides import Base
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.registry import load
from rewardlab.rm.registry.specs import parse_spec

START = "--model start --seed 1 --max_steps 3 --use_cpu True"
VALUES = {"rl": f"rl {START} --data prompts.jsonl", "train": f"train {START} --data pairs.jsonl"}
VALUES |= {"0": "first", "1": "second", "2": "third", "fresh": "fresh.jsonl", "unseen": "unseen.jsonl"}
VALUES |= {"tenth": "1", "quarter": "1", "half": "2", "start": "start", "shared": "shared"}
SAGE = side_by_side.Recipe("SAGE", "gold", (("{rl}",),), (("{rl} --rollouts sage",),))
PROGRAM = "rewardlab.research.studies.seeds.side_by_side.PROGRAM"


def test_the_commands_of_recipes_are_valid():
    for name, recipe in side_by_side.recipes().items():
        assert recipe.system != recipe.plain, name
        for command in chain(*recipe.plain, *recipe.system):
            filled = side_by_side.fill_template(command, VALUES)
            verb, *words = shlex.split(filled)
            settings = parse(verb, VERBS[verb], [*words, "--output", "out"])
            settings[0].validate()
            assert "{" not in filled
            if verb == "rl":
                checked_algorithm(*settings)
                if rollouts := settings[0].rollouts:
                    spec = parse_spec(rollouts)
                    assert {*spec.arguments} <= {*signature(load("policy.rollouts", spec.name)).parameters}, name


def test_a_recipe_with_missing_or_unknown_keys_is_refused(tmp_path):
    file = tmp_path / "odd.yaml"
    complete = "title: T\nmeasure: gold\nplain: [a]\nsystem: [b, [c, d]]\n"
    file.write_text(complete + "logged: eval_reward\n")
    expected = side_by_side.Recipe("T", "gold", (("a",),), (("b",), ("c", "d")), "eval_reward")
    assert side_by_side.read_recipe(file) == expected
    for damaged, reason in (
        (complete + "steps: 3\n", "a recipe has title, measure, plain, system"),
        (complete.replace("title: T\n", ""), "a recipe has title, measure, plain, system"),
        ("- a list\n", "a recipe has title, measure, plain, system"),
        ("e: \nl", "not a recipe"),
        ("[" * 20_000, "nested too deeply"),
        ("measure: .nan\nplain: ''\nsystem:\ntitle:", "no measure"),
    ):
        file.write_text(damaged)
        with pytest.raises(DataError, match=rf"odd\.yaml: .*{reason}"):
            side_by_side.read_recipe(file)
    file.write_text(complete.replace("gold", "golden"))
    with pytest.raises(DataError, match="no measure 'golden'; did you mean 'gold'"):
        side_by_side.read_recipe(file)
    with pytest.raises(UsageError, match="no recipe 'sago'; did you mean 'sage'"):
        side_by_side.recipes(["sago"])


def results(values, cpu):
    return [{"gold": np.array(value), "cpu": np.array(seconds)} for value, seconds in zip(values, cpu, strict=True)]


def test_effects_are_paired_by_seed():
    comparison = side_by_side.compare(SAGE, results([1, 5, 9], [10, 20, 10]), results([2, 6.5, 11], [20, 20, 15]))
    assert comparison.effect.value == pytest.approx(1.5)
    assert comparison.effect.high - comparison.effect.value == pytest.approx(4.302653 * 0.5 / math.sqrt(3), rel=1e-6)
    assert comparison.cost.tolist() == [2.0, 1.0, 1.5]


def test_a_verdict_is_that_of_the_interval():
    for system, verdict in (([0, 4, 8.1], "worse"), ([0, 6, 9], "no difference shown"), ([2, 6, 10], "better")):
        plain = np.array([1.0, 5, 9])
        assert side_by_side.Comparison(SAGE, plain, np.array(system, float), np.ones(3)).verdict == verdict
    assert side_by_side.Comparison(SAGE, np.array([1.0]), np.array([9.0]), np.ones(1)).verdict == "one seed"


def test_the_report_has_a_table_for_each_measure():
    comparisons = {
        "sage": side_by_side.Comparison(SAGE, np.array([1.0, 5, 9]), np.array([2.0, 6, 10.5]), np.array([1.0, 2, 3])),
        "boosted": side_by_side.Comparison(SAGE._replace(title="Boosted", measure="accuracy"), *np.full((3, 3), 0.5)),
    }
    report = text(Plan(), comparisons)
    row = next(line for line in report.splitlines() if "`sage`" in line)
    assert "5.000 | 6.167 | +1.167 [+0.450, +1.884] | better | 2.00 [-0.48, 4.48]" in row
    assert "## Gold reward on unseen prompts" in report and "## Held-out pairs" in report and "## Share" not in report
    assert "2 comparisons" in report
    assert [len(panel.get_yticks()) for panel in figure(comparisons).axes] == [1, 1]


def test_the_last_evaluation_of_a_run_is_read(tmp_path):
    rows = [{"reward": 1.0}, {"eval_reward": 2.0, "eval_x": 5.0}, {"eval_reward": 3.0, "eval_loss": None, "step": 7}]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"reward": 4.0}]))
    assert side_by_side.evaluated(tmp_path) == {"eval_reward": 3.0}
    (tmp_path / "steps.jsonl").write_text('{"reward": 1.0}\n')
    with pytest.raises(DataError, match="log no evaluation; give the last command --eval_data"):
        side_by_side.evaluated(tmp_path)


def test_concurrent_commands_have_folders_of_their_own_and_end_together(tmp_path, monkeypatch):
    script = (
        "import sys, time; time.sleep(float(sys.argv[1])); failed = sys.argv[2] != '0'; "
        "sys.exit('no such loss') if failed else open(sys.argv[-1], 'w')"
    )
    monkeypatch.setattr(PROGRAM, [sys.executable, "-c", script])
    folders = side_by_side.run(["{wait} 0", "{wait} 0"], {"0": "first", "wait": "0.2"}, tmp_path)
    assert folders == {"1": str(tmp_path / "1"), "2": str(tmp_path / "2")}
    assert (tmp_path / "1").exists() and (tmp_path / "2").exists()
    began = time.monotonic()
    with pytest.raises(DataError, match="rewardlab 0.1 7 ended with 1: no such loss"):
        side_by_side.run(["600 0", "0.1 7"], {}, tmp_path / "other")
    monkeypatch.setattr(PROGRAM, [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    with pytest.raises(DataError, match="rewardlab rl ended with -9"):
        side_by_side.run(["rl"], {}, tmp_path / "killed")
    assert time.monotonic() - began < 500 and not (tmp_path / "other" / "0").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["sage", "boosted"])
def test_a_side_is_trained_and_measured(name, tmp_path):
    recipe, budget = (
        side_by_side.recipes([name])[name],
        side_by_side.Budget(steps=2, train_steps=10, pairs=200, completions=16),
    )
    side = side_by_side.Side(Base(0, steps=12, texts=120), recipe.system, budget, recipe.kind)
    result = side.work(tmp_path / "cache")
    assert result["cpu"] > 0 and np.isfinite(result[recipe.measure])
