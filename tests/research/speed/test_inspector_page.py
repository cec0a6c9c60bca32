import json

import pytest
from rewardlab.research.speed import inspector_page as page


@pytest.mark.slow
def test_every_figure_is_measured(tmp_path, capsys, chromium):
    page.main(["--cases", "2000", "--visits", "1", "--output", str(tmp_path / "page.json")])
    found = json.loads((tmp_path / "page.json").read_text())
    assert found == json.loads(capsys.readouterr().out)
    assert found["figures"].keys() == {*page.BARS, "search, s"} and found["judgments"] == 8000
    assert found["figures"]["keys counted"] == page.KEYS and found["figures"]["server, MiB"] > 0
