from html import unescape
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from rewardlab.apps.inspector.texts import rendering
from rewardlab.rm.types import completion

from tests.apps.inspector.payloads import PAYLOADS

CALL = {"type": "function", "function": {"name": "add", "arguments": {"b": 2, "a": "<b>\u202e"}}}


class Reader(HTMLParser):
    """The tags, attributes and text of a document."""

    def __init__(self, html: str):
        super().__init__()
        self.tags, self.attributes, self.texts = set(), set(), []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def read(markdown: str) -> Reader:
    return Reader(rendering.rendered_html(markdown))


def expect_inert(html: str) -> None:
    reader = Reader(html)
    assert reader.tags <= rendering.TAGS and "a" not in rendering.TAGS and "img" not in rendering.TAGS
    assert reader.attributes <= set().union(*rendering.ATTRIBUTES.values())
    assert not {name for name in reader.attributes if name in ("href", "src", "style") or name.startswith("on")}


RENDERED = {
    "# Title": '<p class="heading" dir="auto">Title</p>\n',
    "*a* **b** ~~c~~": '<p dir="auto"><em>a</em> <strong>b</strong> <s>c</s></p>\n',
    "one\ntwo": '<p dir="auto">one<br>\ntwo</p>\n',
    "- x\n- y": '<ul dir="auto">\n<li dir="auto">x</li>\n<li dir="auto">y</li>\n</ul>\n',
    "3. x": '<ol dir="auto" start="3">\n<li dir="auto">x</li>\n</ol>\n',
    "> q": '<blockquote dir="auto"><p dir="auto">q</p>\n</blockquote>\n',
    ">>> f(1)\n2": '<p dir="auto">&gt;&gt;&gt; f(1)<br>\n2</p>\n',
    "`a<b`": '<p dir="auto"><code>a&lt;b</code></p>\n',
    "<b>raw</b>": '<p dir="auto">&lt;b&gt;raw&lt;/b&gt;</p>\n',
    "```\na < b\n```": '<pre class="code"><code>a &lt; b\n</code></pre>\n',
    "```nolanguage\nx\n```": '<pre class="code"><code>x\n</code></pre>\n',
    "\u202eevil \x1b[31m": '<p dir="auto"><span class="mark">U+202E</span>evil ␛[31m</p>\n',
    "": "",
}


def test_markdown_as_html():
    assert {markdown: rendering.rendered_html(markdown) for markdown in RENDERED} == RENDERED


def test_links_and_pictures_are_text_and_code_is_highlighted():
    assert read("[here](https://x.example/?a=1&b=2)").text.strip() == "here (https://x.example/?a=1&b=2)"
    assert read("![a cat](https://x.example/cat.png)").text.strip() == "image: a cat (https://x.example/cat.png)"
    assert read("[outer ![in](b) text](c)").text.strip() == "outer image: in (b) text (c)"
    html = rendering.rendered_html("```python\ndef f(): return '<b>'\n```")
    assert '<span class="k">def</span>' in html and "&lt;b&gt;" in html


def test_formulas_become_mathml_and_prices_stay_prices():
    for source in ("$x^2$", r"\(x^2\)"):
        html = rendering.rendered_html(source)
        assert '<math display="inline"><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow></math>' in html
    for source in ("$$x$$", r"\[x\]", "\\[\nx\n\\]", "$$\nx\n$$"):
        assert '<math display="block"><mrow><mi>x</mi></mrow></math>' in rendering.rendered_html(source)
    assert read("It costs $5 and $6; from $ 7 to 8 $.").tags == {"p"}
    assert "<code>\\frac{</code>" in rendering.rendered_html(r"$\frac{$")
    long = "x" * (rendering.LONGEST_FORMULA + 1)
    assert f"<code>{long}</code>" in rendering.rendered_html(f"${long}$")


def test_payloads_are_inert():
    for payload in PAYLOADS:
        forms = (payload, f"`{payload}`", f"```html\n{payload}\n```", f"${payload}$", f"| a |\n|---|\n| {payload} |")
        for markdown in forms:
            expect_inert(rendering.rendered_html(markdown))


@given(st.text(alphabet="ab\n `*_~[]()<>!$\\{}#|-:&\"'=\u202e\x1b", max_size=200))
def test_any_text_is_inert(markdown):
    expect_inert(rendering.rendered_html(markdown))
    expect_inert(rendering.rendered_html(f"$${markdown}$$"))


def test_a_megabyte_of_a_sign_is_cut_and_a_text_full_of_brackets_is_shown_as_it_is():
    for piece in (">", "[", "![[", "*", "`", "$", r"\(", "- ", "<a ", "w", "a ", "|a", r"$\frac{"):
        html = rendering.rendered_html(piece * (1_000_000 // len(piece)))
        assert "more characters" in html, piece
        expect_inert(html)
    text = "[" * (rendering.MOST_BRACKETS + 1)
    assert read(text).text == text


def test_messages_show_their_text_reasoning_and_calls():
    message = {"role": "assistant", "content": "*so*", "reasoning_content": "hm", "tool_calls": [CALL]}
    html = rendering.message_html(message, rendered=True)
    assert "<em>so</em>" in html and "tool call: add" in html and "&lt;think&gt;" in html
    written = unescape(html)  # Pygments before 2.20 writes &quot;
    assert written.index('"a"') < written.index('"b"') and "U+202E" in html and "<b>" not in html
    assert "&lt;tool_call&gt;" in rendering.message_html(message, rendered=False)
    both = completion([message, {"role": "tool", "content": "4"}])
    shown = rendering.completion_html(both, rendered=True)
    assert shown.index("<em>so</em>") < shown.index(">tool</p>") < shown.index(">4</p>")
    assert "*so*" in rendering.completion_html(both, rendered=False)
