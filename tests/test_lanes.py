"""Version lanes: the bounds they take from pyproject.toml, and the table they write."""

import json

from packaging.requirements import Requirement

from tests.lanes.__main__ import KINDS, LANES, PROJECT, Outcome, counted, floors, main, markdown, packages, read


def test_floors_are_the_lowest_versions_of_the_bounds():
    given = ["a>=1.2,<2", "b~=3.1", "c", "d>=4; platform_system == 'Linux'", "e[x]>=5"]
    assert floors(given) == ["a==1.2", "b==3.1", "c", 'd==4; platform_system == "Linux"', "e==5"]
    assert floors(["torch>=2.11,<2.14"], exempt=["torch"]) == ["torch<2.14,>=2.11"]


def test_each_lane_names_packages_tests_and_its_kind():
    for name in LANES:
        lane = LANES[name]
        assert lane["kind"] in KINDS and lane["about"] and lane["versions"], name
        assert ("tests" in lane) != ("why_not" in lane), name
        for package in packages(lane):
            assert package.startswith(".[") or Requirement(package).name, name
    installed = {Requirement(text).name for text in packages(LANES["minimum"])}
    assert {Requirement(text).name for text in PROJECT["dependencies"]} <= installed


def test_counts_come_from_pytests_file(tmp_path):
    cases = "<testcase name='a'/><testcase name='b'><failure/></testcase><testcase name='c'><skipped/></testcase>"
    (tmp_path / "x.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    outcome = counted("minimum", {"numpy": "1.26.0"}, tmp_path / "x.xml")
    assert outcome == Outcome("minimum", {"numpy": "1.26.0"}, 2, 1, 1, "1 failed: b")
    assert "| numpy 1.26.0 | 2 | 1 | 1 | 1 failed: b |" in markdown([outcome])


def test_heavy_lanes_are_left_out_with_a_reason_and_earlier_results_stay(tmp_path, capsys):
    output = tmp_path / "lanes.json"
    earlier = Outcome("peers", {"verifiers": "0.4.0"}, 12, 12, 0, "passed")
    output.write_text(json.dumps([earlier._asdict()]))
    words = ["minimum", "peers", "--folder", str(tmp_path / "environments"), "--output", str(output)]
    assert main(words) == 0
    found = read(output)
    assert found["peers"] == earlier and found["minimum"].note.startswith("not run here")
    assert "| minimum |" in capsys.readouterr().out and "| peers |" in output.with_suffix(".md").read_text()
