import time

from rewardlab.apps.inspector.tabs.judgments.case_html import case_html
from rewardlab.apps.inspector.tabs.judgments.cases import Item, Verdict
from rewardlab.apps.inspector.tabs.judgments.diff import Piece, pieces_html, word_diff
from rewardlab.apps.inspector.tabs.judgments.queries import Scorer


def item(*answers: str) -> Item:
    verdict = Verdict(Scorer("rm", "model"), "wrong", -1.0, (1.0, 2.0), "")
    return Item("rm", "c", "", "p", ({"role": "user", "content": "Hi"},), answers, (0,), (verdict,))


def test_words_of_one_answer_alone_stand_apart():
    first, second, left = word_diff("The old oak is tall.", "The oak is  very tall.")
    assert first == [Piece("The ", True), Piece("old ", False), Piece("oak is tall.", True)]
    assert "".join(piece.text for piece in first if not piece.common) == "old "
    assert "".join(piece.text for piece in second if not piece.common) == "very "
    assert left == 0


def test_pieces_join_to_the_texts():
    alike = ("", ""), ("same text", "same text"), ("  lead", "lead"), ("x\n\ny", "x y")
    for first, second in (*alike, ("a", ""), ("", "b c"), ("a b c", "c b a")):
        found = word_diff(first, second)
        assert "".join(piece.text for piece in found.first) == first
        assert "".join(piece.text for piece in found.second) == second
        common = [" ".join(p.text for p in pieces if p.common).split() for pieces in found[:2]]
        assert common[0] == common[1]
    assert [piece.common for piece in word_diff("an old oak\n", "an old oak").first] == [True]


def test_a_megabyte_is_compared_in_its_first_words_only():
    start = time.process_time()
    found = word_diff("oak moss " * 60_000, "moss oak pike " * 40_000)
    assert time.process_time() - start < 30
    assert found.left == 120_000 - 2_000 + 120_000 - 2_000
    assert sum(len(piece.text) for piece in found.first) == 540_000
    html = case_html(item("oak moss " * 60_000, "moss oak pike " * 40_000), diff=True)
    assert "Only the first 2,000 words of each response are compared." in html
    assert len(html) < 300_000 and "440,000 more characters" in html


def test_marked_words_are_escaped_of_two_kinds_and_cut_at_the_same_place():
    html = case_html(item("<b>oak</b> moss", "<i>oak</i> moss"), diff=True)
    assert "<ins>&lt;b&gt;oak&lt;/b&gt; </ins>moss" in html and "<del>&lt;i&gt;oak&lt;/i&gt; </del>moss" in html
    assert "<ins>" not in case_html(item("oak", "newt"))
    html = pieces_html([Piece("abc", True), Piece("defgh", False), Piece("ij", True)], "ins", longest=5)
    more = '<span class="mark">… {} more characters</span>'
    assert html == f"abc<ins>de{more.format(3)}</ins>{more.format(2)}"
