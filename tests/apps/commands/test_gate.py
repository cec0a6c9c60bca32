"""When the rules of a gate are violated, and which rules are refused."""

import pytest
from rewardlab.apps.cli import main

from tests.apps.conftest import write

SUBSETS, SIZE = 20, 30


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Evaluate stored scores: all of 20 subsets with 30 pairs right, but for the first pairs of s00."""
    folder = tmp_path_factory.mktemp("gate")
    ids = [(f"s{s:02d}", str(i)) for s in range(SUBSETS) for i in range(SIZE)]
    pair = {"chosen": "good", "rejected": "bad"}
    data = write(folder / "data.jsonl", ({"id": i, "subset": s, "prompt": f"{s} {i}"} | pair for s, i in ids))

    def run(name: str, number: int, **instead: object) -> str:
        first = {f"s00/{i}" for i in range(number)}
        rows = [{"id": f"{s}/{i}", "scores": [1, 0]} for s, i in ids]
        rows = [{"id": row["id"]} | instead if row["id"] in first else row for row in rows]
        scores, output = write(folder / f"{name}.jsonl", rows), str(folder / name)
        given = ["--scores", scores, "--data", data, "--baselines", "none", "--samples", "20"]
        assert main(["eval", *given, "--output", output]) == 0
        return output

    wrong = {"scores": [0, 1]}
    return {
        "before": run("before", 0),
        "few wrong": run("few", 4, **wrong),
        "many wrong": run("many", 12, **wrong),
        "silent": run("silent", SIZE, abstained="too long"),
        "half silent": run("half", 10, abstained="too long"),
    }


@pytest.fixture
def gate(runs, tmp_path, capsys):
    def check(after: str, rules: str, *words: str) -> tuple[int, str]:
        """Return the exit code and the last line of the log of a comparison with rules."""
        (tmp_path / "gate.yaml").write_text(rules)
        code = main(["compare", runs["before"], runs[after], "--gate", str(tmp_path / "gate.yaml"), *words])
        return code, capsys.readouterr().err.strip().split("\n")[-1]

    return check


def test_a_drop_in_a_subset_is_significant_after_the_adjustment_for_their_number(gate):
    # 4 of 30 lost: a sample without any of them has probability (26/30)^30 = 1.4 %, so p is 2.7 % for one subset and
    # 55 % for the smallest of 20; 12 of 30 lost: hardly any sample is without, so p is 20 * 2/1001 = 4 %
    assert gate("few wrong", "- {area: s00, max_drop: 0.01}")[0] == 0
    code, said = gate("few wrong", "- {area: s00, max_drop: 0.01, even_if_noise: true}")
    assert code == 5 and "s00 fell by 13.3 points, more than 1.0" in said
    code, said = gate("many wrong", "- {area: s00, max_drop: 0.01}")
    assert code == 5 and "s00 fell by 40.0 points, more than 1.0" in said
    assert gate("many wrong", "- {area: s00, max_drop: 0.41}")[0] == 0


def test_a_model_that_abstains_in_the_whole_area_does_not_pass(gate):
    for waived in ("false", "true"):
        code, said = gate("silent", f"- {{area: s00, max_drop: 0.5, even_if_noise: {waived}}}")
        assert code == 5 and "s00 has no case that both scored, so that its rule cannot be checked" in said, waived
        assert gate("silent", f"- {{area: s01, max_drop: 0.5, even_if_noise: {waived}}}")[0] == 0, waived


def test_a_model_that_abstains_in_a_part_of_the_area_passes_only_where_that_is_accepted(gate):
    code, said = gate("silent", "- {area: overall, max_drop: 0.5, even_if_noise: true}")
    assert code == 5 and "overall: silent abstained from 30 of the cases that before scored" in said
    code, said = gate("half silent", "- {area: s00, max_drop: 0.5}")
    assert code == 5 and "s00: half abstained from 10 of the cases that before scored, so that" in said
    assert "or accept it with max_unscored: 10" in said
    assert gate("half silent", "- {area: s00, max_drop: 0.5, max_unscored: 9}")[0] == 5
    assert gate("half silent", "- {area: s00, max_drop: 0.5, max_unscored: 10}\n- {area: s01, max_drop: 0}")[0] == 0


def test_a_wrong_rule_is_refused_with_its_number_and_its_value(gate):
    for rules, message in (
        ("area: overall", "rules are a list, got dict; write it as {area: overall, "),
        ("- {area: overall, max_drop: 0.1}\n- overall", "rule 2: a rule has area, max_drop and perhaps"),
        ("- {area: overall, max_drop: 0.1, min: 1}", "rule 1: a rule has area, max_drop and perhaps"),
        ("- {area: overall, max_drop: 1 %}", "max_drop is a number from 0 to 1, where 0.01 is one point, got '1"),
        ("- {area: overall, max_drop: .nan}", "got nan"),
        ("- {area: overall, max_drop: 2}", "got 2"),
        ("- {area: overall, max_drop: true}", "got True"),
        ("- {area: [s00], max_drop: 0.1}", "rule 1: area is the name of one area, got ['s00']"),
        ("- {area: overall, max_drop: 0.1, even_if_noise: 'no'}", "even_if_noise is true or false, got 'no'"),
        ("- {area: s00, max_drop: 0.1, max_unscored: -1}", "max_unscored is a number of cases, got -1"),
        ("- {area: s99, max_drop: 0.1}", "no area 's99' in this comparison; there is overall, s00, s01"),
    ):
        code, said = gate("before", rules)
        assert code == 2 and message in said, rules


def test_a_rule_that_cannot_be_checked_is_refused_before_the_comparison_is_written(gate, tmp_path):
    output = tmp_path / "comparison"
    words = ("--output", str(output))
    assert gate("many wrong", "- {area: s99, max_drop: 0.1}", *words)[0] == 2 and not output.exists()
    assert gate("many wrong", "- {area: overall, max_drop: 0.1}", *words)[0] == 0 and output.exists()
