import base64
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewardlab.apps.inspector.tabs.studies import queries as studies
from rewardlab.apps.inspector.tabs.studies.queries import Figures, figures_html, read_figures, read_text, report_html
from rewardlab.rm.errors import DataError

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg=="
)
ADDRESS = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def test_a_figure_stands_where_the_text_has_it_and_the_others_below(tmp_path):
    for name in ("a.png", "b<i>.png"):
        (tmp_path / name).write_bytes(PNG)
    (tmp_path / "report.md").write_text("# Study\n\n![all of it](a.png)\n")
    text, figures = read_text(tmp_path), read_figures(tmp_path)
    assert f'<img src="{ADDRESS}" alt="all of it">' in report_html(text, figures)
    html = figures_html(text, figures)
    assert html.count("<img") == 1 and "b&lt;i&gt;.png</figcaption>" in html and "<i>" not in html


@given(
    st.lists(
        st.sampled_from([*"`~|\\ \n\t-*>[]!", "``", "```", "\n\n", "  ", "<img src=x>", "![a](x.png)", "a", "1. "])
    )
)
@settings(max_examples=300, deadline=None)
def test_a_report_has_no_html_of_its_own_and_no_other_image(parts):
    html = report_html("".join(parts), Figures({"y.png": ADDRESS}, ()))
    assert "<img" not in html and "<script" not in html


def test_an_image_is_a_png_of_the_folder_alone():
    evil = {
        "a.png": "https://elsewhere.example/a.png",
        "b.png": "data:text/html,x",
        "c.png": 'data:image/png;base64,"onerror=x',
    }
    html = report_html("![a](a.png) ![b](b.png) ![c](c.png) [d](javascript:x)", Figures(evil, ()))
    assert "elsewhere" not in html and "text/html" not in html and "href" not in html and " onerror" not in html


def test_code_stays_as_it_is():
    html = report_html("a `x < y` b\n\n```python\nif a < b: print('![x](y)')\n```\n")
    assert "<code>x &lt; y</code>" in html and "![x](y)" in html and "<img" not in html


def test_large_figures_links_and_other_files_are_left_out_and_all_together_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "LARGEST", 200)
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "large.png").write_bytes(PNG + bytes(200))
    (tmp_path / "text.png").write_text("secret")
    os.symlink(tmp_path / "a.png", tmp_path / "link.png")
    figures = read_figures(tmp_path)
    assert [*figures.addresses] == ["a.png"]
    assert [note.split(" ")[0] for note in figures.left_out] == ["large.png", "text.png"]
    assert "text.png is no PNG file" in figures_html("", figures)
    for name in "abc":
        (tmp_path / f"{name}.png").write_bytes(PNG)
    monkeypatch.setattr(studies, "LARGEST_TOTAL", 2 * len(PNG))
    assert [*read_figures(tmp_path).addresses] == ["a.png", "b.png"]
    monkeypatch.setattr(studies, "MOST_FIGURES", 1)
    assert [*read_figures(tmp_path).addresses] == ["a.png"]


def test_a_report_is_bounded_and_one_that_is_missing_is_told(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"has no report.md that can be read"):
        read_text(tmp_path)
    (tmp_path / "report.md").write_bytes(b"\xff" + b"x" * 30)
    monkeypatch.setattr(studies, "LONGEST", 11)
    assert read_text(tmp_path) == "�" + "x" * 10 + "\n\n… 20 more characters\n"
