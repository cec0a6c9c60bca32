"""The measurement of the views runs, and its run is one that they read."""

import json

from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.queries import Filter, open_run, outcomes
from rewardlab.research.speed import inspector_views as speed


def test_every_view_is_timed(tmp_path, capsys):
    speed.write_run(tmp_path / "run", 120)
    speed.main(["--cases", "120", "--folder", str(tmp_path / "run"), "--output", str(tmp_path / "speed.json")])
    found = json.loads((tmp_path / "speed.json").read_text())
    assert found == json.loads(capsys.readouterr().out)
    assert found["judgments"] == 480 and found["peak MiB"] > 0
    assert set(found["seconds"]) == set(speed.views(tmp_path, 120))
    assert all(times["first"] > 0 for times in found["seconds"].values())


def test_the_drawn_margins_follow_from_the_drawn_scores(tmp_path):
    speed.write_run(tmp_path, 30)
    run = open_run(tmp_path)
    assert outcomes(run, Filter("runs/rm"))["all"] == 30
    one = item(run, "runs/rm", "drawn/subset-07/0000007")
    for verdict in one.verdicts:
        if verdict.scores:
            assert verdict.margin == verdict.scores[one.best[0]] - verdict.scores[1 - one.best[0]]
