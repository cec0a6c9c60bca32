import json
import re

import pytest
from rewardlab.apps.inspector.tabs.judgments.explanation import criteria as views
from rewardlab.apps.inspector.tabs.judgments.explanation import rescore
from rewardlab.judges.rubrics.rubric import from_toml
from rewardlab.judges.types import Criterion
from rewardlab.rm.errors import DataError, UsageError

from tests.apps.inspector.court import CASES, ORDERS, RUBRIC, TEXT, write_court


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_court(tmp_path_factory.mktemp("runs") / "judge")


@pytest.fixture(scope="module")
def values(folder):
    found = views.load_grounds(folder, RUBRIC, "c1")
    assert found is not None
    return found.values(2)


def page_of(folder, scorer: str) -> str:
    found = views.load_grounds(folder, scorer, "c1")
    assert found is not None
    return views.grounds_html(found, CASES[0].answers)


def test_criteria_have_a_verdict_and_its_evidence_for_each_answer(folder):
    page = page_of(folder, RUBRIC)
    names = re.search(r'<tr><th scope="row">names</th>(.*?)</tr>', page)
    assert names and re.sub("(<.*?>)+", "|", names[1]).strip("|").split("|") == ["met", "an Oak", "not met"]
    assert '<q>moon</q> <span class="wrong">(this quotation is not in the response)</span>' in page
    assert "2 requests" in page and "tokens" in page


def test_the_choice_of_a_routing_judge_and_values_on_other_scales_are_numbers_without_quotations():
    said = (Criterion(1, "routed", 1.0, "strong judge, by the guideline: It is long."), Criterion(0, "small", 0.25))
    page = views.grounds_html(views.Grounds(said, "", (), (), 0, 0, 0.0, 0.0), ["one", "two"])
    assert '<td class="verdict">1 strong judge, by the guideline: It is long.</td>' in page
    assert "is not in the response" not in page and "<td>0.25</td>" in page and "not met" not in page
    said = tuple(Criterion(place, "a judge", value) for place, value in ((0, 1.0), (1, 7.25)))
    page = views.grounds_html(views.Grounds(said, "", (), (), 0, 0, 0.0, 0.0), ("x", "y"))
    assert "<td>1</td><td>7.25</td>" in page and ">met<" not in page


def test_nothing_is_kept_for_other_scorers_and_in_other_runs(folder, tmp_path):
    assert views.load_grounds(folder, "shortest", "c1") is None
    assert views.load_grounds(tmp_path, RUBRIC, "c1") is None
    (tmp_path / "judgments.parquet").write_bytes(b"PAR1 half")
    with pytest.raises(DataError, match="run `rewardlab judge` again"):
        views.load_grounds(tmp_path, RUBRIC, "c1")


def test_every_place_of_the_evidence_is_marked_and_overlaps_name_both():
    answer = "An oak is a tree. An oak!"
    said = [Criterion(0, "names", 1.0, "an  Oak", True), Criterion(0, "short", 0.0, '"oak is"', True)]
    page = views.marked_html(answer, said)
    assert re.sub("<.*?>", "", page) == answer
    assert re.findall(r'<mark class="(\w+)" title="([^"]*)">([^<]*)', page) == [
        ("right", "names: met", "An "),
        ("wrong", "names: met, short: not met", "oak"),
        ("wrong", "short: not met", " is"),
        ("right", "names: met", "An oak"),
    ]
    bad = Criterion(0, '"><script>', 0.3, "<img src=x>", True)
    page = views.marked_html("see <img src=x>", [bad])
    assert "<img" not in page and "<script>" not in page and 'title="&quot;&gt;&lt;script&gt;: 0.3"' in page
    long = views.marked_html("a" * 1_000_000, [Criterion(0, "r", 1.0, "zzz")])
    assert len(long) < 101_000 and "900,000 more characters" in long


def test_both_orders_stand_beside_each_other_with_what_each_said(folder):
    page = page_of(folder, ORDERS)
    assert page.count('class="box reply"') == 2 and "Hm &lt;b&gt;bold&lt;/b&gt;. Winner: A" in page
    said = re.findall(r'was shown response (\d), then response (\d)</span><span class="end">(.*?)</span>', page)
    assert sorted(said) == [("1", "2", "response 1 is better"), ("2", "1", "response 2 is better")]
    assert "the verdict follows the order" in page


def test_what_a_judge_wrote_is_rendered_and_json_is_left_alone():
    """Asterisks around a judge's verdict were shown."""
    found = views.Grounds((), "I **prefer** it", ("**Winner: A**", '{"met": "*yes*"}'), (), 1, 1, 0.0, 0.0)
    page = views.grounds_html(found, ("x", "y"))
    assert "<strong>prefer</strong>" in page and "<strong>Winner: A</strong>" in page and "*yes*" in page


def test_one_verdict_in_both_orders_is_no_flip():
    found = views.Grounds((), "", ("Winner: A", "Winner: B"), ((0, 1), (1, 0)), 1, 1, 0.0, 0.0)
    page = views.grounds_html(found, ("x", "y"))
    assert page.count("response 1 is better") == 2 and "follows the order" not in page
    assert views.reply_verdict("Winner: A", (0,), ["x"]) == views.reply_verdict("Winner: A", (0, 9), ["x", "y"]) == ""
    assert views.reply_verdict("tie", (0, 1), ["x", "y"]) == "a tie"
    assert views.reply_verdict("I like both", (0, 1), ["x", "y"]) == "no verdict in the reply"


def test_scores_follow_edited_weights_vetoes_and_removed_rules(values):
    """Answer 2 keeps only `lies`: (1 of 4) / 2 behind the gate; with `lies` at 3 it is (3 of 6) / 2."""
    edited = rescore.parse_rubric(TEXT.replace("weight = 1.0", "weight = 3.0"))
    rows = rescore.rescore(edited, from_toml(TEXT), values, (1.0, 0.125), "gated")
    assert rows == [(1.0, 1.0, 1.0), (0.125, 0.125, 0.25)]
    assert rescore.needs_judge(edited, from_toml(TEXT), values) == []
    rows = rescore.rescore(rescore.parse_rubric(f"{TEXT.strip()}\nweight = 2.0"), None, values, (), "weighted")
    assert [row.edited for row in rows] == [1.0, pytest.approx(1 / 6)] and rows[0].recorded is rows[0].judged is None
    veto = rescore.parse_rubric(TEXT.replace("weight = 3.0", "veto = true"))
    assert rescore.rescore(veto, None, values, (), "gated")[1].edited == 0.0
    only = rescore.parse_rubric('[[rules]]\nid = "lies"\ntype = "forbid"\ncriterion = "c"\ntest = "t"')
    assert [row.edited for row in rescore.rescore(only, None, values, (), "gated")] == [1.0, 1.0]


def test_what_only_a_judge_can_say_and_the_best_answer_before_and_now_are_told(values):
    added = '[[principles]]\nid = "new"\ndescription = "Is kind."\n'
    edited = rescore.parse_rubric(TEXT.replace("Names a tree.", "Names a shrub.") + added)
    told = rescore.needs_judge(edited, from_toml(TEXT), values)
    assert told == [
        "'names' has been changed; its stored verdict refers to the earlier text.",
        "'new' has no stored verdict and is left out of the score; only a judge can supply one.",
    ]
    alone = rescore.parse_rubric('{"principles": [{"id": "new", "description": "Is kind."}]}')
    rows = rescore.rescore(alone, None, values, (1.0, 0.1), "gated")
    page = rescore.rescored_html(rows, told, ["<b>doubt</b>"])
    assert "Not every response has a score now." in page and "<b>doubt" not in page and "Is kind" not in page
    rows = [rescore.Rescored(0.5, None, 0.25), rescore.Rescored(0.25, None, 1.0)]
    assert "Best before: response 1; best now: response 2." in rescore.rescored_html(rows, [], [])
    rows = [rows[0], rows[0]._replace(recorded=0, edited=0)]
    assert "Best before and now: response 1." in rescore.rescored_html(rows, [], [])


def test_a_rubric_that_cannot_be_read_and_a_score_that_does_not_fit_are_sentences(values):
    for text, sentence in (
        ("", "at least one rule"),
        ("rules = 3", "'rules' must be a list"),
        ("{", "no JSON object"),
        ("[[rules]]\nid = 1", "'id' must be a str"),
    ):
        with pytest.raises(UsageError, match=sentence):
            rescore.parse_rubric(text)
    with pytest.raises(UsageError, match="'signed_points' does not fit"):
        rules = rescore.parse_rubric('[[rules]]\nid = "lies"\ntype = "forbid"\ncriterion = "c"\ntest = "t"')
        rescore.rescore(rules, None, values, (), "signed_points")
    with pytest.raises(UsageError, match="unknown score function '__class__'"):
        rescore.formula("__class__")


def test_the_rubric_is_the_runs_file_below_the_root_or_one_of_ours(folder, tmp_path):
    root = folder.parent
    assert rescore.source_of(folder, root, "c1").rubric == from_toml(TEXT)
    assert from_toml(rescore.source_of(folder, root, "c1").text) == from_toml(TEXT)
    outside = rescore.source_of(folder, tmp_path, "c1")
    assert outside.rubric is None and "lies outside the inspected folder" in outside.note
    (tmp_path / "config.yaml").write_text("rubric: direct_answer\nscore: weighted\n")
    ours = rescore.source_of(tmp_path, tmp_path, "c1")
    assert ours.rubric is not None and ours.rubric.ids[0] == "answers" and ours.score == "weighted"
    for name in ("a\0b", "a" * 5_000, "\ud800.toml"):  # names that no file has
        (tmp_path / "config.yaml").write_text(json.dumps({"rubric": name}))
        found = rescore.source_of(tmp_path, root, "c1")
        assert found.rubric is None and found.note.endswith("lies outside the inspected folder; paste its text here.")
    for settings in ("", "[1]", "rubric: 3", "{half", "score: __class__"):
        (tmp_path / "config.yaml").write_text(settings)
        found = rescore.source_of(tmp_path, tmp_path, "c1")
        assert found.rubric is None and found.score == "gated" and found.text == "", settings
        assert "has no rubric" in found.note


def test_a_rubric_of_its_own_for_each_case_is_found_by_the_case(tmp_path):
    principles = [{"id": "p", "description": "d"}]
    (tmp_path / "rubrics.jsonl").write_text(json.dumps({"case": "c1", "rubric": {"principles": principles}}) + "\n")
    found = rescore.source_of(tmp_path, tmp_path, "c1").rubric
    assert found is not None and found.ids == ("p",)
    assert rescore.source_of(tmp_path, tmp_path, "c2").note == "rubrics.jsonl has no rubric for 'c2'."
    (tmp_path / "rubrics.jsonl").write_text("{half")
    assert "rubrics.jsonl" in rescore.source_of(tmp_path, tmp_path, "c1").note
