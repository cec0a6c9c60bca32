from pathlib import Path

import pytest
from rewardlab.apps.inspector.settings import InspectConfig
from rewardlab.apps.inspector.tabs.judgments.explanation.similar import similar_cases, similar_html
from rewardlab.apps.inspector.tabs.judgments.queries import Line, open_run
from rewardlab.judges.types import Case
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import user_turn

from tests.apps.inspector.evaluations import write_evaluation

PROMPTS = {
    "bees": "how do bees make honey in a hive",
    "hive": "how do I open a hive to take honey",
    "ponds": "which lilies grow in ponds",
    "taxes": "which taxes are due in spring",
}


def write_run(folder: Path) -> Path:
    cases = [Case(name, user_turn(prompt), ("right", "wrong")) for name, prompt in PROMPTS.items()]
    scores = {"bees": (1.0, 0.0), "hive": (0.0, 2.0), "ponds": (1.0, 1.0), "taxes": "no reply"}
    return write_evaluation(folder, cases, {"rm": scores})


@pytest.mark.parametrize("retriever", ["tfidf", "bm25"])
def test_the_nearest_prompts_come_first_with_their_outcomes(tmp_path, retriever):
    found = similar_cases(open_run(write_run(tmp_path / "eval")), "rm", "bees", retriever)
    assert found[0].line.case == "hive"
    outcomes = {one.line.case: (one.line.outcome, one.line.margin) for one in found}
    assert outcomes == {"hive": ("wrong", -2.0), "ponds": ("tie", 0.0), "taxes": ("abstained", None)}
    assert [one.similarity for one in found] == sorted((one.similarity for one in found), reverse=True)


def test_names_lead_to_the_cases_and_texts_are_text():
    line = Line("<b>&1", "<i>", "wrong", -1.5, "<script>window.hacked=1</script>")
    html = similar_html("a/b", "r m", [(line, 0.5)])
    assert 'href="?tab=judgments&amp;run=a%2Fb&amp;scorer=r+m&amp;item=%3Cb%3E%261"' in html
    assert "<script" not in html and "<b>" not in html and "&lt;script&gt;" in html and ">0.50<" in html
    assert "no other case" in similar_html("a", "rm", [])


def test_a_retriever_that_is_no_folder_is_refused():
    with pytest.raises(UsageError, match="--retriever must be tfidf, bm25 or a folder"):
        InspectConfig(run="runs", retriever="nowhere").validate()
