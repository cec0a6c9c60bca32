"""The study of one recipe for guides: a dry run end to end, and its counting of collapses by hand."""

import json

import numpy as np
import pytest
from rewardlab.apps.commands.study.run import run_study
from rewardlab.apps.commands.study.settings import StudyConfig
from rewardlab.benchmarks.studies.guide_recipes.plan import GROUPS, UNIARM, Plan, vectors
from rewardlab.benchmarks.studies.guide_recipes.report import health
from rewardlab.rm.training.guide_diagnostics import GuideDiagnostics


def stored(sensitivity: float, accuracy: float) -> dict[str, np.ndarray]:
    last = GuideDiagnostics(sensitivity, 3.0, 0.1, 0.7, accuracy, 100)
    finals = {f"final {name}": np.array([value]) for name, value in last._asdict().items()}
    return {"base": np.array(1.0), "collapsed_at": np.array(50), **finals}


def test_health_by_hand():
    """Of 100 pairs an accuracy below 0.6 is chance."""
    assert health(stored(0.4, 0.55), ["helpful"]).collapsed
    assert not health(stored(0.4, 0.65), ["helpful"]).collapsed
    assert not health(stored(0.6, 0.55), ["helpful"]).collapsed
    assert health(stored(0.4, 0.55), ["helpful"]).alarm == 50


def test_all_methods_have_the_same_steps_in_total():
    plan = Plan()
    for group in GROUPS.values():
        for name, fronts in plan.fronts(group).items():
            steps = sum(guide.recipe.steps for guide in fronts[0].guides)
            assert steps in (400, 399), name  # 399: three guides of 133 steps
            assert len(fronts) == group.seeds and group.reference.shape == (len(group.objectives),)
            assert all(guide.world == fronts[0].world == group.world for guide in fronts[0].guides)


def test_semantic_vectors_change_the_inputs_of_the_generator_only():
    recipe = vectors(("helpful", "harmless"))
    assert recipe.beta == UNIARM.beta and recipe.embedding == "text" and recipe.span and len(recipe.texts) == 2


@pytest.mark.slow
def test_a_dry_run_trains_measures_and_reports(tmp_path):
    run_study(StudyConfig("guide_recipes", output=str(tmp_path / "run"), cache=str(tmp_path / "cache"), rows=4))
    report = (tmp_path / "run" / "report.md").read_text()
    parts = ("## Collapses", "## Garden, two objectives", "## Meadow, five objectives", "GenARM, equal steps in total")
    assert all(part in report for part in parts)
    facts = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert len(facts["alarms of planted collapses"]) == 1
    assert {path.name for path in (tmp_path / "run").glob("*.png")} == {
        "front_garden_two_objectives.png",
        *(f"control_{name.replace(', ', '_').replace(' ', '_')}.png" for name in GROUPS),
    }
