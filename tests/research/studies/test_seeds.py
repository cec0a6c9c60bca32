"""Systems of policy improvement beside plain loops, and every recipe of research/recipes."""

import json
import math
import shlex
import sys
import time
from inspect import signature
from itertools import chain

import numpy as np
import pytest
from rewardlab.apps.cli import VERBS, main, parse
from rewardlab.apps.commands.rl.run import check_together
from rewardlab.apps.settings.specs import build, parse_spec
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden.rewards import right, with_outliers
from rewardlab.research.studies.seeds import TITLE, Plan, figure, text
from rewardlab.research.studies.seeds.side_by_side import (
    RECIPES,
    Budget,
    Comparison,
    Recipe,
    Side,
    compare,
    evaluated,
    fill_template,
    read_recipe,
    recipes,
    run,
)
from rewardlab.research.worlds.guides import Base
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.registry import load

RL = "rl --model start --data prompts.jsonl --seed 1 --max_steps 3 --use_cpu True"
TRAIN = "train --model start --data pairs.jsonl --seed 1 --max_steps 3 --use_cpu True"
PLACES = {
    "rl": RL,
    "train": TRAIN,
    "sft": "rubrics train --data demonstrations.jsonl --seed 1",
    "tenth": "1",
    "0": "first",
    "1": "second",
    "2": "third",
    "fresh": "fresh.jsonl",
    "quarter": "1",
    "half": "2",
    "start": "start",
    "unseen": "unseen.jsonl",
    "shared": "shared",
    "double": "6",
}
PIPO = Recipe("PIPO", "gold", (("{rl}",),), (("{rl} --replay pipo",),))


@pytest.mark.parametrize(
    ("folder", "name"), [(folder, name) for folder in ("seeds", "agents") for name in recipes(folder=RECIPES / folder)]
)
def test_a_recipes_commands_are_such_as_a_user_may_give(folder, name):
    recipe = recipes([name], RECIPES / folder)[name]
    for command in chain(*recipe.plain, *recipe.system):
        verb, *words = shlex.split(fill_template(command, PLACES))
        settings = parse(verb, VERBS[verb], [*words, "--output", "out"])
        settings[0].validate()
        assert "{" not in fill_template(command, PLACES)
        if verb == "rl":
            config, arguments = settings
            check_together(config, arguments)
            if config.replay:
                assert callable(build("policy.replays", config.replay))
            if config.rollouts:
                assert {*parse_spec(config.rollouts).arguments} <= {
                    *signature(load("policy.rollouts", parse_spec(config.rollouts).name)).parameters
                }
    assert recipe.system != recipe.plain, "a comparison of the same training with itself"


def test_a_recipe_that_says_too_little_or_too_much_is_refused(tmp_path):
    file = tmp_path / "odd.yaml"
    whole = "title: T\nmeasure: gold\nplain: [a]\nsystem: [b, [c, d]]\n"
    file.write_text(whole + "logged: eval_reward\n")
    assert read_recipe(file) == Recipe("T", "gold", (("a",),), (("b",), ("c", "d")), "eval_reward")
    for damaged in (whole + "steps: 3\n", whole.replace("title: T\n", ""), "- a list\n"):
        file.write_text(damaged)
        with pytest.raises(DataError, match=r"odd\.yaml: a recipe has title, measure, plain, system"):
            read_recipe(file)
    file.write_text(whole.replace("gold", "golden"))
    with pytest.raises(DataError, match="no measure 'golden'; did you mean 'gold'"):
        read_recipe(file)
    with pytest.raises(UsageError, match="no recipe 'pipi' in .*; did you mean 'pipo'"):
        recipes(["pipi"])


def results(values, cpu):
    return [{"gold": np.array(value), "cpu": np.array(seconds)} for value, seconds in zip(values, cpu, strict=True)]


def test_effects_are_paired_by_seed():
    found = compare(PIPO, results([1, 5, 9], [10, 20, 10]), results([2, 6.5, 11], [20, 20, 15]))
    assert found.effect.value == pytest.approx(1.5)
    assert found.effect.high - found.effect.value == pytest.approx(4.302653 * 0.5 / math.sqrt(3), rel=1e-6)
    assert found.cost.tolist() == [2.0, 1.0, 1.5]
    assert found.verdict == "better"


@pytest.mark.parametrize(
    ("system", "verdict"),
    [([0, 4, 8.1], "worse"), ([0, 6, 9], "no difference shown"), ([2.0, 6.0, 10.0], "better")],
)
def test_a_verdict_is_what_the_interval_says(system, verdict):
    assert Comparison(PIPO, np.array([1.0, 5, 9]), np.array(system, float), np.ones(3)).verdict == verdict


def test_one_seed_has_no_verdict():
    assert Comparison(PIPO, np.array([1.0]), np.array([9.0]), np.ones(1)).verdict == "one seed"


def test_the_report_has_a_table_for_each_measure_and_every_row_in_one():
    made = {
        "pipo": Comparison(PIPO, np.array([1.0, 5, 9]), np.array([2.0, 6, 10.5]), np.array([1.0, 2, 3])),
        "boosted": Comparison(PIPO._replace(title="Boosted", measure="accuracy"), *np.full((3, 3), 0.5)),
    }
    told = text("seeds", TITLE, Plan(), made)
    row = next(line for line in told.splitlines() if "`pipo`" in line)
    assert "5.000 | 6.167 | +1.167 [+0.450, +1.884] | better | 2.00 [-0.48, 4.48]" in row
    assert "## Gold reward on unseen prompts" in told and "## Held-out pairs" in told and "## Share" not in told
    assert "2 comparisons" in told
    assert [len(panel.get_yticks()) for panel in figure(made).axes] == [1, 1]


def test_the_report_says_what_supervised_sides_learn_from():
    made = {"wmss_logits": Comparison(recipes(["wmss_logits"])["wmss_logits"], *np.full((3, 3), 0.5))}
    told = text("seeds", TITLE, Plan(), made)
    assert "wmss_logits: both sides learn the chosen completions of the same pairs" in told
    assert "two commands of 40 steps of 64" in told
    assert "both sides learn" not in text("seeds", TITLE, Plan(), {"pipo": Comparison(PIPO, *np.full((3, 3), 0.5))})


def test_a_tenth_of_all_texts_are_outliers_always_the_same():
    some = garden.supervised(1000, seed=3)
    golds = garden.gold().rate(some)[:, 0]
    off = np.array(with_outliers(0.1, 3.0)(some)) - golds
    assert 0.07 < np.mean(off != 0) < 0.13
    assert np.median(np.abs(off[off != 0])) == pytest.approx(3.0, rel=0.4), "half of Cauchy's values lie within ±1"
    assert (np.array(with_outliers(0.1, 6.0)(some)) - golds) == pytest.approx(2 * off)
    assert with_outliers(0.0)(some) == golds.tolist()
    assert np.mean(np.array(with_outliers(1.0)(some)) != golds) == 1
    with pytest.raises(UsageError, match=r"share lies in \[0, 1\]"):
        with_outliers(1.5)
    assert set(right()(some)) == {0.0, 1.0}


def test_a_runs_last_evaluation_is_read(tmp_path):
    rows = [{"reward": 1.0}, {"eval_reward": 2.0, "eval_x": 5.0}, {"eval_reward": 3.0, "eval_loss": None, "step": 7}]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"reward": 4.0}]))
    assert evaluated(tmp_path) == {"eval_reward": 3.0}
    (tmp_path / "steps.jsonl").write_text('{"reward": 1.0}\n')
    with pytest.raises(DataError, match="log no evaluation; give the last command --eval_data"):
        evaluated(tmp_path)


@pytest.mark.slow
def test_a_command_that_fails_is_told_in_its_own_words(tmp_path):
    with pytest.raises(DataError, match="rewardlab rl --model x .* ended with 2: .*pppo.*; did you mean 'ppo'"):
        run(["{rl} --reward z --loss pppo"], {"rl": "rl --model x --data y --use_cpu True"}, tmp_path)


def test_commands_at_the_same_time_have_folders_of_their_own_and_end_together(tmp_path, monkeypatch):
    script = "import sys, time; time.sleep(float(sys.argv[1])); open(sys.argv[-1], 'w'); sys.exit(sys.argv[2] != '0')"
    monkeypatch.setattr("rewardlab.research.studies.seeds.side_by_side.PROGRAM", [sys.executable, "-c", script])
    made = run(["{wait} 0", "{wait} 0"], {"0": "first", "wait": "0.2"}, tmp_path)
    assert made == {"1": str(tmp_path / "1"), "2": str(tmp_path / "2")}
    assert (tmp_path / "1").exists() and (tmp_path / "2").exists()
    begun = time.monotonic()
    with pytest.raises(DataError, match="rewardlab 0.1 7 ended with 1"):
        run(["600 0", "0.1 7"], {}, tmp_path / "other")
    monkeypatch.setattr(
        "rewardlab.research.studies.seeds.side_by_side.PROGRAM",
        [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"],
    )
    with pytest.raises(DataError, match="rewardlab rl ended with -9"):
        run(["rl"], {}, tmp_path / "killed")
    assert time.monotonic() - begun < 500 and not (tmp_path / "other" / "0").exists()


def test_a_study_without_recipes_has_none_to_choose_from(tmp_path, capsys):
    assert main(["study", "r2m", "--only", "pipo", "--output", str(tmp_path / "out")]) == 2
    assert "no recipes to choose from" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("name", ["pipo", "boosted", "wmss_logits"])
def test_a_side_is_trained_measured_and_the_same_again(name, tmp_path):
    recipe, budget = recipes([name])[name], Budget(steps=2, train_steps=10, pairs=200, asked=16)
    side = Side(Base(0, steps=12, texts=120), recipe.system, budget, recipe.kind)
    first, again = (side.work(tmp_path / "cache") for _ in range(2))
    assert first["cpu"] > 0 and first[recipe.measure] == again[recipe.measure]
