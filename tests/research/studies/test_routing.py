from dataclasses import replace

import numpy as np
import pytest
from rewardlab.benchmarks.statistics.cluster_bootstrap import cluster_draws
from rewardlab.judges.types import Case
from rewardlab.research.studies.routing import accuracies, areas, routing
from rewardlab.research.studies.routing.judges import CHEAP, COMBINED, Judged, judged, stored
from rewardlab.research.studies.routing.rankings import (
    CASCADE,
    ORACLE,
    RANDOM,
    fixed_rankings,
    group_rankings,
    question_folds,
)
from rewardlab.rm.types import user_turn

ACCURACIES = {"InternLM2 7B": 208, "Skywork 8B": 218, "Skywork 27B": 225}
"""Pairs of 350 that each reward model decides as labelled; o1-mini 230."""


def made(number: int = 40, seed: int = 0) -> Judged:
    """Judges that are right at random; the first cheap judge's margins are small where it is wrong."""
    draw = np.random.default_rng(seed)
    cases = [Case(str(i), user_turn(f"question {i}"), ("a", "b"), cluster=str(i)) for i in range(number)]
    cheap = {name: draw.integers(0, 2, number).astype(float) for name in CHEAP}
    margins = {name: draw.normal(size=number) for name in CHEAP}
    margins[CHEAP[0]] = np.where(cheap[CHEAP[0]] == 1, 3.0, 0.1) * np.sign(margins[CHEAP[0]])
    return Judged(cases, margins, cheap, draw.integers(0, 2, number).astype(float))


def test_stored_judges_have_the_published_accuracies(shared_data):
    material = judged(stored(shared_data))
    assert len(material.cases) == len({case.cluster for case in material.cases}) == 350
    assert {name: material.cheap[name].sum() for name in ACCURACIES} == ACCURACIES and material.strong.sum() == 230
    for name in CHEAP:
        needed = material.needed(name)
        gain = material.strong.sum() - material.cheap[name].sum()
        assert needed.sum() - ((material.cheap[name] == 1) & (material.strong == 0)).sum() == gain
    combined = (material.margins["InternLM2 7B"] + material.margins["Skywork 8B"]) / 2
    assert np.allclose(material.margins[COMBINED], combined)


def test_the_oracle_has_area_1_random_0_and_a_telling_margin_is_between():
    material = made()
    draws = cluster_draws(np.array([case.cluster for case in material.cases]), 50)
    measured = {rule: areas(material, ranked[None], draws) for rule, ranked in fixed_rankings(material).items()}
    assert np.allclose(measured[ORACLE].values, 1) and np.allclose(measured[ORACLE].samples, 1)
    assert np.allclose(measured[RANDOM].values, 0) and np.allclose(measured[RANDOM].samples, 0)
    assert 0.2 < measured[CASCADE].values[0, 0] < 1 and measured[CASCADE].samples.shape == (len(CHEAP), 50)
    ends = [accuracies(material, fixed_rankings(material)[CASCADE][None], share, draws).values[0] for share in (0, 1)]
    assert ends[0] == pytest.approx([material.cheap[name].mean() for name in CHEAP])
    assert ends[1] == pytest.approx([material.strong.mean()] * len(CHEAP))


def test_the_group_of_a_question_is_known_from_the_other_folds_alone():
    material, subsets = made(30), ["livebench-math", "livecodebench"]
    cases = [replace(case, subset=subsets[index % 2]) for index, case in enumerate(material.cases)]
    labels = np.arange(30) % 2  # every question about code needs the strong judge
    cheap = dict.fromkeys(CHEAP, 1.0 - labels)
    certain = material._replace(cases=cases, cheap=cheap, strong=np.ones(30))
    ranked = group_rankings(certain, [0])[0, 0]
    for fold in question_folds(certain, 0):
        code, maths = (ranked[fold.held_out][labels[fold.held_out] == label] for label in (1, 0))
        assert len({*code, *maths}) <= 2 and code.min(initial=1) > maths.max(initial=0)
    own = next(fold.held_out for fold in question_folds(certain, 0) if 4 in fold.held_out)
    turned = certain._replace(cheap=dict.fromkeys(CHEAP, np.where(np.isin(np.arange(30), own), 1, 1.0 - labels)))
    assert group_rankings(turned, [0])[0, 0, own].tolist() == ranked[own].tolist()


@pytest.mark.slow
def test_the_study_runs_on_a_part_and_finds_its_results_again(shared_data, tmp_path):
    told: list[str] = []
    first, second = (routing(shared_data, tmp_path, workers=1, rows=120, log=told.append) for _ in range(2))
    assert first.text == second.text and "2 of 2 results are in the cache" in told
    assert [*first.figures] == ["curves", "effects"] and "| oracle | +1.00 [+1.00, +1.00]" in first.text
    planted = first.facts["claims"]["planted_feature_is_found"]["effect"]["value"]
    assert planted > 0.2
