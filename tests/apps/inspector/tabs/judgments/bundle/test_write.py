"""The static copy: what is written, what is refused, and the page from a file."""

import pytest
from rewardlab.apps.inspector.run_list import open_root
from rewardlab.apps.inspector.tabs.judgments.annotation import annotations
from rewardlab.apps.inspector.tabs.judgments.bundle.write import CHUNK, write_bundle
from rewardlab.apps.inspector.tabs.judgments.cases import item
from rewardlab.apps.inspector.tabs.judgments.queries import open_run
from rewardlab.judges.types import Case
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import user_turn

from tests.apps.inspector.evaluations import margins, write_evaluation

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1> NaN"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A copy of two runs, the second of one case with a hostile text and an annotation."""
    runs = tmp_path_factory.mktemp("runs")
    cases = [Case(f"c{k}", user_turn(f"question {k}"), (f"right {k}", "wrong"), (0,), "ab"[k % 2]) for k in range(105)]
    values = [1.0, -1.0, 0.0] * 35
    scores = {name: (value, 0.0) for name, value in zip((case.id for case in cases), values, strict=True)}
    write_evaluation(runs / "a", cases, {"rm": scores}, nulls={"longest": scores})
    hostile = [Case("c0", user_turn(HOSTILE), (HOSTILE, "w " * 5000), (0,))]
    folder = write_evaluation(runs / "b", hostile, {"one": margins([1.0]), "two": margins([None])})
    case = item(open_run(folder), "one", "c0")
    annotations.add(folder, annotations.annotate(case, "disagree", "Ada", "both are right", blind=False))
    target = tmp_path_factory.mktemp("out") / "site"
    facts = write_bundle(open_root(runs), target)
    assert facts == {"export": str(target), "lists": 3, "cases": 107}
    return target


def test_the_files_are_a_page_a_script_and_data_in_chunks(site):
    assert sorted(path.name for path in site.iterdir()) == ["bundle.js", "data", "index.html"]
    data = sorted(path.name for path in (site / "data").iterdir())
    assert data == ["0-0.js", "0-1.js", "0.js", "1-0.js", "1.js", "2-0.js", "2.js", "lists.js"] and CHUNK == 100
    assert f"const CHUNK = {CHUNK}," in (site / "bundle.js").read_text()
    page = (site / "index.html").read_text()
    assert "http" not in page.replace("http-equiv", "") and "<style>" not in (site / "data" / "0-0.js").read_text()


def test_a_folder_with_files_and_one_without_runs_are_refused(site, tmp_path):
    with pytest.raises(UsageError, match="has no finished run with judgments"):
        write_bundle(open_root(tmp_path), tmp_path / "site")
    runs = tmp_path / "runs"
    write_evaluation(runs / "a", [Case("c0", user_turn("q"), ("x", "y"), (0,))], {"rm": margins([1.0])})
    with pytest.raises(UsageError, match="has files in it; name a new folder"):
        write_bundle(open_root(runs), site)


def test_the_page_opens_from_a_file_with_filters_links_and_keys(site, visit):
    page = visit(f"{site.as_uri()}/", "index.html", ready="#case .answer")
    assert page.locator("#count").inner_text() == "105 cases" and "right 0" in page.locator("#case").inner_text()
    page.locator("#outcome").select_option("wrong")
    page.locator("#count", has_text="35 cases").wait_for()
    page.locator("#rows a", has_text="question 103").click()
    page.locator("#case", has_text="right 103").wait_for()
    assert page.url.endswith("#0/103")
    page.keyboard.press("k")
    page.locator("#case", has_text="right 100").wait_for()
    page.locator("#search").fill("question 4")
    page.locator("#count", has_text="5 cases").wait_for()
    page.goto(f"{site.as_uri()}/index.html#1/0")
    page.locator("#case", has_text="both are right").wait_for()
    assert "onerror=window.hacked=1" in page.locator("#case .prompt").inner_text()
    page.locator("#case .unfold").click()
    assert page.locator("#case .folded").count() == 0
