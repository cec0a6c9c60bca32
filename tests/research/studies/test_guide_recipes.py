import numpy as np
import pytest
from rewardlab.research.studies._run import run_study
from rewardlab.research.studies.guide_recipes.plan import GROUPS, UNIARM, Plan, vectors
from rewardlab.research.studies.guide_recipes.report import health
from rewardlab.rm.kinds.autoregressive.diagnostics import GuideDiagnostics


def stored(sensitivity: float, accuracy: float) -> dict[str, np.ndarray]:
    """The arrays of a monitor that measured the same at steps 50 and 100 and at the end."""
    last = GuideDiagnostics(sensitivity, 3.0, 0.1, 0.7, accuracy, 100)._asdict().items()
    finals = {f"final {name}": np.array([value]) for name, value in last}
    return {"base": np.array(1.0), "steps": np.array([50, 100]), **finals} | {
        name: np.array([[value], [value]]) for name, value in last
    }


def test_health_by_hand():
    """Of 100 pairs an accuracy below 0.6 is chance."""
    collapsed = health(stored(0.3, 0.55), ["helpful"])
    assert collapsed.collapsed and collapsed.alarm == 50
    for healthy in (stored(0.3, 0.65), stored(0.4, 0.55)):
        assert not health(healthy, ["helpful"]).collapsed and health(healthy, ["helpful"]).alarm == 0


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
    run_study("guide_recipes", output=str(tmp_path / "run"), cache=str(tmp_path / "cache"), rows=4)
    report = (tmp_path / "run" / "report.md").read_text()
    assert all(part in report for part in ("## Collapses", "## Meadow, five objectives", " of 1 trainings"))
    figures = [f"control_{name.replace(', ', '_').replace(' ', '_')}.png" for name in GROUPS]
    assert {path.name for path in (tmp_path / "run").glob("*.png")} == {"front_garden_two_objectives.png", *figures}
