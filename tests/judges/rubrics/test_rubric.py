import gzip
import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import rewardlab.judges as judges
from rewardlab.judges.rubrics.files import read_rubrics
from rewardlab.judges.rubrics.formats import biggen, healthbench
from rewardlab.judges.rubrics.rubric import SCHEMA, Principle, Rubric, Rule, from_toml, lint, parse, render, to_toml
from rewardlab.judges.rubrics.scoring import anchored, gated, points, saturated, signed_share, weighted
from rewardlab.rm.errors import DataError

HAND_WRITTEN = sorted((Path(str(judges.__file__)).parent / "rubrics").glob("*.toml"))


def rule(id: str, type: str = "must", **fields) -> Rule:
    return Rule(id, type, f"Criterion {id}.", f"Test {id}.", **fields)


RUBRIC = Rubric(
    (rule("r1", weight=3.0), rule("r2", "forbid"), rule("r3", "forbid", veto=True)),
    (Principle("p1", "Short.", 2.0), Principle("p2", 'Says "why".')),
    "by hand",
)


def test_a_rubric_comes_back_from_toml_and_json_and_what_is_wrong_is_named_with_its_place():
    odd = Rubric((Rule("r", "must", 'A "quote", a \\ and\na line', "Tab\t, ü, \x7f."),))
    for rubric in (RUBRIC, odd):
        assert from_toml(to_toml(rubric)) == rubric
    text = '{"rules": [{"id": "r1", "type": "forbid", "criterion": "Lies.", "test": "Find a lie."}], "principles": []}'
    lies = Rubric((Rule("r1", "forbid", "Lies.", "Find a lie."),))
    assert parse(text) == parse(f"Here:\n```json\n{text}\n```") == lies
    assert set(SCHEMA["properties"]) == {"rules", "principles"}
    lines = render(RUBRIC).split("\n")
    assert lines[0] == "Hard rules:" and lines[4] == "Principles, only where the rules do not decide:"
    assert lines[2] == "2. [r2] MUST NOT: Criterion r2. Test: Test r2."
    assert "worthless" in lines[3] and len(lines) == 7
    for text, message in [
        ("no rubric", "no JSON object"),
        ("[]", "an object with rules and principles is expected, got list"),
        ('{"rules": [], "principles": []}', "at least one rule or principle"),
        ('{"rule": []}', "unknown field 'rule'; the fields are rules, principles, source"),
        ('{"rules": {"id": "r1"}}', "'rules' must be a list, got dict"),
        ('{"rules": [{"id": "r1", "type": "must", "criterion": "c"}]}', r"rules\[0\]: 'test' is missing"),
        (
            '{"rules": [{"id": 1, "type": "must", "criterion": "c", "test": "t"}]}',
            r"rules\[0\]: 'id' must be a str, got 1",
        ),
        ('{"rules": [{"id": "r", "type": "may", "criterion": "c", "test": "t"}]}', "'must' or 'forbid', got 'may'"),
        ('{"rules": [{"id": "r", "type": "must", "criterion": " ", "test": "t"}]}', "criterion is empty"),
        ('{"principles": [{"id": "p", "description": "d", "weight": 0}]}', "a number other than 0"),
        ('{"principles": [{"id": "p", "description": "d", "weight": true}]}', "'weight' must be a float, got True"),
        ('{"principles": [{"id": "p", "description": "d"}, {"id": "p", "description": "e"}]}', "'p' occurs twice"),
    ]:
        with pytest.raises(ValueError, match=message):
            parse(text)
    with pytest.raises(ValueError, match="rubric: no TOML"):
        from_toml("[[rules]\nid=")


def test_doubtful_rubrics_are_told_why():
    def issues(rubric: Rubric, answers=()) -> str:
        return " | ".join(lint(rubric, answers))

    for criterion, issue in (
        ("Is short and names a source.", "looks compound"), ("Gives an insightful reply.", "vague: 'insightful'"),
        ("Is like Answer A.", "refers to one of the answers: 'Answer A'"), ("c", "0 % of the rules' weight is of"),
    ):  # fmt: skip
        assert issue in issues(Rubric((Rule("r", "must", criterion, "t"),)))
    assert "7 rules" in issues(Rubric(tuple(rule(f"r{i}", "forbid") for i in range(7))))
    assert "no hard rule" in issues(Rubric((), (Principle("p", "Short."),)))
    copied = Rubric((Rule("r", "forbid", "Says that Oslo is the capital of Norway.", "t"),))
    assert "copies an answer: 'that oslo is the capital'" in issues(copied, ["I know that Oslo is the capital!"])
    assert "copies" not in issues(copied, ["Oslo is the best capital of Norway."])
    assert len(HAND_WRITTEN) >= 2
    for path in HAND_WRITTEN:
        assert lint(from_toml(path.read_text("utf-8"))) == [], path


def test_gated_signed_saturated_and_anchored_scores_by_hand():
    kept = {"r1": 1.0, "r2": 1.0, "r3": 1.0}
    assert gated(RUBRIC, kept | {"p1": 1.0, "p2": 0.0}) == pytest.approx((1 + 2 / 3) / 2)
    # r2 broken: (3 + 1) / 5 of the rules' weight, halved, and no principle counts
    assert gated(RUBRIC, kept | {"r2": 0.0, "p1": 1.0, "p2": 1.0}) == pytest.approx(4 / 5 / 2)
    assert gated(RUBRIC, kept | {"p1": 0.0, "p2": 0.0}) == 0.5
    assert gated(Rubric((rule("a"), rule("b", weight=3.0))), {"a": 1.0, "b": 0.0}) == 0.25
    assert gated(Rubric((), (Principle("p", "x"), Principle("q", "y"))), {"p": 1.0, "q": 0.5}) == 0.75
    keeps = gated(RUBRIC, {"r1": 1.0, "r2": 1.0, "r3": 1.0, "p1": 0.0, "p2": 0.0})
    breaks = [gated(RUBRIC, {"r1": a, "r2": b, "r3": 1.0, "p1": 1.0, "p2": 1.0}) for a, b in [(0, 1), (1, 0), (0, 0)]]
    assert all(keeps > one for one in breaks)
    marks = {"r1": 1.0, "r2": 1.0, "r3": 0.0, "p1": 1.0, "p2": 1.0}
    assert gated(RUBRIC, marks) == weighted(RUBRIC, marks) == anchored()(RUBRIC, marks) == 0.0
    assert weighted(RUBRIC, {"r1": 1.0, "r2": 0.0}) == pytest.approx(3 / 4)
    with pytest.raises(ValueError, match="abstain instead"):
        gated(RUBRIC, {})
    # (2 · 1 + |-1| · (1 - 0)) / 3, then with the fault committed
    assert signed_share({"a": 2.0, "b": -1.0}, {"a": 1.0, "b": 0.0}) == 1.0
    assert signed_share({"a": 2.0, "b": -1.0}, {"a": 1.0, "b": 1.0}) == pytest.approx(2 / 3)
    values = [saturated(v / 4, 3.0) for v in range(5)]
    steps = [b - a for a, b in pairwise(values)]
    assert values[0] == 0.0 and values[-1] == pytest.approx(1.0) and steps == sorted(steps, reverse=True)
    assert saturated(0.5, 2.0) == pytest.approx((1 - math.exp(-1)) / (1 - math.exp(-2)))
    rubric = Rubric((), (Principle("a", "x", 2.0), Principle("b", "y", 1.0)))
    # no saturation: (2 · 1 + 1 · 0.5 + 1 · 1 · 0.5) / (2 + 1 + 1)
    assert anchored(0.0, {("a", "b"): 1.0})(rubric, {"a": 1.0, "b": 0.5}) == pytest.approx(3 / 4)
    # saturated at rate 2: (2 · 1 + σ(0.5)) / 3
    assert anchored(2.0)(rubric, {"a": 1.0, "b": 0.5}) == pytest.approx((2 + saturated(0.5, 2.0)) / 3)
    with pytest.raises(ValueError, match="positive weights"):
        anchored()(Rubric((), (Principle("a", "x", -1.0),)), {"a": 1.0})


DEEDS = {"Advises to see a doctor.": 8, "Names the normal range.": 2, "Invents a dose.": -5}
HEALTH = healthbench({"rubrics": [{"criterion": deed, "points": points} for deed, points in DEEDS.items()]})


def test_healthbench_scores_by_hand_and_more_harm_scores_lower():
    # with all of them met (8 + 2 - 5) / 10
    shares = {"": 0, "c1 c2": 1, "c1": 0.8, "c1 c2 c3": 0.5, "c1 c3": 0.3, "c2 c3": -0.3, "c3": -0.5}
    for met, score in shares.items():
        verdicts = {name: float(name in met.split()) for name in HEALTH.ids}
        assert points(HEALTH, verdicts) == pytest.approx(score)
    # Of 5 points 0 are met and 8 taken, 5 met, 5 met and 8 taken: a mean of -.4, which is 0 once it is clipped.
    rows = [{"criterion": "Advises rest.", "points": 5}, {"criterion": "Invents a dose.", "points": -8}]
    rubric = healthbench({"rubrics": rows})
    scores = [points(rubric, {"c1": met, "c2": harm}) for met, harm in ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0))]
    assert scores == pytest.approx([-1.6, 1.0, -0.6])
    with pytest.raises(ValueError, match="criterion 1: 'points' must be a number other than 0, got 'many'"):
        healthbench({"rubrics": [{"criterion": "x", "points": "many"}]})
    with pytest.raises(ValueError, match="no column 'rubrics'"):
        healthbench({"prompt": []})
    with pytest.raises(ValueError, match="points need a principle of positive weight"):
        points(Rubric((), (Principle("a", "x", -1.0),)), {"a": 1.0})


def test_a_json_file_of_criteria_with_points_is_a_rubric(tmp_path):
    criteria = [{"criterion": deed, "points": points, "tags": ["axis:accuracy"]} for deed, points in DEEDS.items()]
    path = tmp_path / "health.json"
    for values in (criteria, {"rubrics": criteria}):
        path.write_text(json.dumps(values))
        assert read_rubrics(path) == {"health": HEALTH}
    rows = tmp_path / "health.jsonl"
    rows.write_text(json.dumps({"case": "a", "rubric": criteria}) + "\n")
    assert read_rubrics(rows) == {"a": HEALTH}
    for values, sentence in (
        (
            [{"criterion": "x", "points": 0}],
            "criterion 1: 'points' must be a number other than 0, got 0; correct or remove it",
        ),
        ([{"criterion": "x"}], "no column 'points': the row has criterion"),
        ([{"criterion": " ", "points": 1}], "principle 'c1': description is empty"),
        ([], "has no criterion; give at least one"),
        (["x"], "must be a list of objects with criterion and points"),
        ("x", "an object with rules and principles is expected, got str"),
    ):
        path.write_text(json.dumps(values))
        with pytest.raises(DataError, match=f"health.json: .*{sentence}"):
            read_rubrics(path)


def test_every_stored_rubric_of_healthbench_and_biggen_is_read_and_a_level_has_its_description(shared_data):
    with gzip.open(shared_data / "healthbench_rubrics" / "val.jsonl.gz", "rt", encoding="utf-8") as file:
        rubrics = [healthbench(json.loads(line)) for line in file]
    assert (len(rubrics), sum(len(one.principles) for one in rubrics)) == (500, 5965)
    best = [{p.id: float(p.weight > 0) for p in one.principles} for one in rubrics]
    assert {points(one, marks) for one, marks in zip(rubrics, best, strict=True)} == {1.0}
    with gzip.open(shared_data / "prometheus" / "biggen_bench_instances.jsonl.gz", "rt", encoding="utf-8") as file:
        levels = [biggen(json.loads(line)) for line in file]
    assert len(levels) == 765 and {(one.low, one.high) for one in levels} == {(1, 5)}
    row = {"criteria": "Is it right?"} | {f"score{n}_description": f"Level {n}." for n in range(1, 6)}
    levels = biggen({"score_rubric": row})
    assert (levels.low, levels.high) == (1, 5)
    assert levels.render().split("\n") == ["Is it right?", *(f"{n}: Level {n}." for n in range(1, 6))]
    with pytest.raises(ValueError, match="no column 'score3_description'"):
        biggen({"score_rubric": {name: text for name, text in row.items() if "3" not in name}})
    with pytest.raises(ValueError, match="criteria and descriptions of five levels, got Be good."):
        biggen({"score_rubric": "Be good."})
