from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.benchmarks.statistics.cluster_bootstrap import Estimate
from rewardlab.research.studies._run import run_study
from rewardlab.research.studies._runs.job_cache import run_jobs
from rewardlab.research.studies.uniarm import plan, uniarm
from rewardlab.research.studies.uniarm.report import direction
from rewardlab.research.worlds.guides import Base, Guide, Recipe
from rewardlab.research.worlds.guides.exact import EXACT_BETA, ExactGuide, Language, exact_guide
from rewardlab.research.worlds.guides.fronts import Front
from rewardlab.rm.data.preference_vectors import simplex_grid

NAMES = ("first", "second")
GRID = simplex_grid(2, 8)
QUARTER = torch.tensor([[0.25, 0.75]])


@pytest.fixture(scope="module")
def language() -> Language:
    return Language.of(2, 0)


def trained(language: Language, **changes) -> ExactGuide:
    recipe = replace(plan.EXACT, **{"steps": 60} | changes)
    return exact_guide(language, recipe, NAMES, language.rows(3000, 0), 0, GRID, moments=4)


@pytest.fixture(scope="module")
def calibrated(language) -> ExactGuide:
    """Without a global term."""
    return trained(language)


# ---- where the optimum is known ----


@pytest.mark.slow
def test_training_on_few_preferences_nears_the_optimum_at_all(language, calibrated):
    """Nine preferences, of which five were trained on; before training the base is its own guide."""
    optima = [language.optimum(alpha) for alpha in GRID]
    divergence = np.array(
        [
            [
                (best.exp() * (best - language.guided(logits, 1.0))).sum().item()
                for best, logits in zip(optima, said, strict=True)
            ]
            for said in calibrated.logits
        ]
    )
    assert (np.diff(divergence.mean(1)) < 0).all()
    assert (divergence[-1] < divergence[0]).all()
    assert divergence[-1].mean() < 0.2 < divergence[0].mean()


def gaps(language: Language, guide: ExactGuide) -> tuple[torch.Tensor, torch.Tensor]:
    """β_r Δ and logit(t) at one preference, over pairs on which the objectives disagree."""
    rows = [row for row in language.rows(800, 1) if (row.wins[0] - 0.5) * (row.wins[1] - 0.5) < 0]
    inputs = guide.task.collate(rows)
    with torch.no_grad():
        gap = guide.task.gap(guide.adapter.model, inputs, QUARTER.expand(len(rows), -1))
    return EXACT_BETA * gap, (QUARTER * inputs["wins"]).sum(1).logit()


def test_without_a_global_term_margins_on_conflicts_are_calibrated(language, calibrated):
    found, expected = gaps(language, calibrated)
    assert np.corrcoef(found, expected)[0, 1] > 0.9
    slope = (found * expected).sum() / (expected * expected).sum()
    assert 0.7 < slope < 1.4


@pytest.mark.slow
def test_the_scalarised_term_widens_the_margins(language, calibrated):
    wide, _ = gaps(language, trained(language, weight=1.0))
    assert wide.abs().mean() > 1.3 * gaps(language, calibrated)[0].abs().mean()


def test_the_first_answer_has_the_higher_reward_where_it_is_preferred(language, calibrated):
    rows = [row for row in language.rows(400, 2) if row.wins[0] > 0.9]
    inputs = calibrated.task.collate(rows)
    alpha = torch.tensor([[1.0, 0.0]]).expand(len(rows), -1)
    with torch.no_grad():
        gap = calibrated.task.gap(calibrated.adapter.model, inputs, alpha)
    assert len(rows) > 50 and (gap > 0).float().mean() > 0.95


# ---- guides and fronts in the garden ----


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("guides")


BASE = Base(0, steps=20, texts=100)
TWO = ("helpful", "harmless")


def front(*objectives: tuple[str, ...], recipe: Recipe | None = None, **changes) -> Front:
    recipe = recipe or Recipe(steps=3)
    guides = tuple(Guide(BASE, one, recipe, pairs=40) for one in objectives)
    return Front(**{"base": BASE, "guides": guides, "objectives": TWO, "prompts": 3, "steps": 2} | changes)


def test_a_base_that_guides_itself_is_drawn_from_its_square(cache):
    untrained = Recipe(steps=0)
    alone = front(TWO, recipe=untrained, weight=0.0).result(cache)
    guided = front(TWO, recipe=untrained).result(cache)
    assert np.abs(alone["divergence"]).max() < 1e-4 and alone["forwards"] == 0
    assert guided["forwards"] == 1 and guided["divergence"].mean() > 0
    assert (alone["rewards"] == alone["rewards"][:1]).all()


@pytest.mark.slow
def test_a_mixture_and_a_soup_of_policies_are_one_of_them_at_the_vertices(cache):
    lora = Recipe(kind="lora", weight=0.0, reference=True, steps=3)
    mixture, soup = (
        front(("helpful",), ("harmless",), recipe=lora, way=way).result(cache) for way in ("mixture", "soup")
    )
    for name in ("rewards", "length", "divergence"):
        np.testing.assert_allclose(mixture[name][[0, -1]], soup[name][[0, -1]], atol=1e-4)
    assert front(("helpful",), ("harmless",), recipe=lora).result(cache)["forwards"] == 2


def test_results_are_found_again_by_what_decides_them(tmp_path):
    cache = tmp_path
    told: list[str] = []
    jobs = [front(TWO), front(TWO), front(TWO, weight=2.0)]
    run_jobs(jobs, cache, 1, told.append)
    assert told[0] == "0 of 2 results are in the cache" and told[-1].startswith("2 of 2: front of base 64 x 2, seed 0")
    told.clear()
    run_jobs(jobs, cache, 1, told.append)
    assert told == ["2 of 2 results are in the cache"]
    assert front(TWO).file(cache) != front(TWO, seed=1).file(cache)
    assert front(TWO).file(cache) != front(TWO, recipe=Recipe(steps=4)).file(cache)


# ---- the study ----


@pytest.mark.long
def test_the_study_runs_on_a_part_and_finds_its_results_again(tmp_path, monkeypatch):
    chosen = ("global term: scores", "objectives: texts", "late branch: last half")
    monkeypatch.setattr(plan, "ABLATIONS", {name: plan.ABLATIONS[name] for name in chosen})
    monkeypatch.setattr(plan, "EXACT_METHODS", {name: plan.EXACT_METHODS[name] for name in ("GenARM", "UniARM")})
    run_study("uniarm", output=str(tmp_path / "run"), cache=str(tmp_path / "cache"), rows=4, workers=1)
    told: list[str] = []
    again = uniarm(tmp_path / "cache" / "uniarm", workers=1, rows=4, log=told.append)
    assert again.text == (tmp_path / "run" / "report.md").read_text()
    found = [line for line in told if line.endswith("in the cache")]
    assert len(found) == 12 and all(line.split()[0] == line.split()[2] for line in found)
    assert {*again.figures} == {"fronts", "control", "divergence", "weights"}
    assert len(again.facts["must_hold"]) == 6 and "not met" in again.text
    assert all(f"| {name} |" in again.text for name in (*chosen, "shuffled UniARM", "rewarded soup", "MOD"))


def test_claims_are_made_only_where_the_interval_excludes_0():
    assert direction("HV", Estimate(0.2, 0.1, 0.3)) == "a larger HV"
    assert direction("HV", Estimate(-0.2, -0.3, -0.1)) == "a smaller HV"
    assert direction("HV", Estimate(0.2, -0.1, 0.3)) == "HV undecided, its interval contains 0"
