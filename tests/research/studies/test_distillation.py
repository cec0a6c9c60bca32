import numpy as np
from rewardlab.research.studies.distillation import ARMS, ENSEMBLE, Distilled, distillation
from rewardlab.research.worlds.guides import Base


def test_the_ensemble_agrees_with_itself_and_costs_most(tmp_path):
    job = Distilled(Base(0, steps=1, texts=64), taught=16, member_steps=2, unlabelled=16, steps=2, held_out=64)
    run = job.result(tmp_path)
    assert all(run[name].shape == (len(ARMS),) for name in ("agreement", "accuracy", "seconds"))
    assert run["agreement"][ARMS.index(ENSEMBLE)] == 1 and np.all(run["agreement"][1:] < 1)
    assert run["seconds"].argmax() == ARMS.index(ENSEMBLE)


def test_a_dry_run_reports_every_model(tmp_path):
    study = distillation(tmp_path / "cache", rows=16, workers=1, log=lambda _: None)
    assert all(f"| {arm} |" in study.text for arm in ARMS) and "nan" not in study.text
