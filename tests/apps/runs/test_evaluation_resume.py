"""Progress of a scorer where stderr is no terminal."""

from rewardlab.apps.runs.evaluation_resume import Progress


def test_progress_is_logged_with_an_estimate_but_not_often_and_not_at_the_end(capsys):
    now = [0.0]
    progress = Progress("rm", 1000, clock=lambda: now[0])
    for second in (10, 20, 30, 100):
        now[0] = second
        progress.update(250)
    assert capsys.readouterr().err.splitlines() == ["rm: 500 of 1000 cases, about 00:20 remaining"]
