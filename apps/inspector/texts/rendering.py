"""Untrusted Markdown as HTML without links or loaded content. Code is highlighted, and TeX becomes MathML."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import a11y_pygments  # noqa: F401  (the styles below, which pygments finds by name)
import nh3
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock, blockquote
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from ....rm.types import AnyCompletion, Message, completion_text, completion_turns, message_text
from ..assets import asset
from ..html import HIDDEN, LONGEST, text_html

HIGHLIGHTED, LONGEST_FORMULA, MOST_FORMULAS, MOST_BRACKETS = 20_000, 2_000, 200, 5_000
"""Limits: characters of highlighted code, characters of a formula, formulas of a text, brackets of a text."""
LIGHT, DARK = "a11y-high-contrast-light", "a11y-high-contrast-dark"
"""Styles of `accessible-pygments` with a contrast of at least 7:1."""
MARK = re.compile(r"⟦(U\+[0-9A-F]{4})⟧")
MARKED = r'<span class="mark">\1</span>'
BLOCKS = ("paragraph", "bullet_list", "ordered_list", "list_item", "blockquote", "table", "td", "th")
MATHML = (
    "math menclose merror mfenced mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts mroot mrow ms mspace "
    "msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover none"
)
TAGS = {
    *("blockquote", "br", "code", "em", "hr", "li", "ol", "p", "pre", "s", "span", "strong", "ul"),
    *("table", "thead", "tbody", "tr", "td", "th"),
    *MATHML.split(),
}
ATTRIBUTES = {
    **{tag: {"dir"} for tag in ("ul", "li", "blockquote", "table", "td", "th")},
    **{
        tag: {"mathvariant", "stretchy", "fence", "form", "accent", "linethickness", "separator"}
        for tag in MATHML.split()
    },
    **{tag: {"class"} for tag in ("pre", "span")},
    "math": {"display"},
    "ol": {"dir", "start"},
    "p": {"class", "dir"},
    "img": {"src", "alt"},
    **{f"h{level}": {"dir"} for level in range(1, 7)},
}
HEADINGS = {f"h{level}" for level in range(1, 7)}


@cache
def style() -> str:
    """Return the CSS of rendered texts for light and dark pages."""
    light, dark = (
        "\n".join(HtmlFormatter(style=name).get_token_style_defs(prefix))
        for name, prefix in ((LIGHT, ".rl .code"), (DARK, ".dark .rl .code"))
    )
    return f"<style>\n{asset('rendered.css')}\n{light}\n{dark}\n</style>"


def rendered_html(text: str, longest: int = LONGEST, figures: Mapping[str, str] | None = None) -> str:
    r"""Return Markdown as inert HTML.

    Raw HTML is shown as text, and a link or image as its text and URL. Control and direction characters are visible,
    as in `html.text_html`. The result is filtered by an allowlist of tags and attributes. A report has `figures`
    (name -> `data:` URL of a PNG file, the only allowed URLs): these images are shown, and headings are kept, one level
    below the title of the page.

    >>> rendered_html("*a* <b>b</b> [c](https://x.example)")
    '<p dir="auto"><em>a</em> &lt;b&gt;b&lt;/b&gt; c <span class="faint">(https://x.example)</span></p>\n'
    """
    if text.count("[", 0, longest) > MOST_BRACKETS:  # CommonMark's search for links is quadratic in them
        return f'<p class="raw" dir="auto">{text_html(text, longest)}</p>'
    cut = f'<span class="mark">… {len(text) - longest:,} more characters</span>' if len(text) > longest else ""
    environment: dict[str, Any] = {"formulas": 0, "figures": figures}
    html = _markdown().render(HIDDEN.sub(_visible, text[:longest]), environment)
    allowed = TAGS if figures is None else TAGS | HEADINGS | {"img"}
    options: dict[str, Any] = {"attributes": ATTRIBUTES, "url_schemes": {"data"}, "link_rel": None}
    clean = nh3.clean(html, tags=allowed, strip_comments=False, attribute_filter=_only_png, **options)
    return MARK.sub(MARKED, clean) + cut


def _only_png(_tag: str, name: str, value: str) -> str | None:
    """Return the value of an attribute, or None to remove an image source that is not an embedded PNG file."""
    return None if name == "src" and not value.startswith("data:image/png;base64,") else value


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 32 else f"⟦U+{code:04X}⟧"


@cache
def _markdown() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 100})
    parser.enable(["table", "strikethrough"])
    parser.use(dollarmath_plugin, allow_labels=False, allow_space=False, allow_digits=False, double_inline=True)
    parser.inline.ruler.before("escape", "tex", _parse_tex)
    parser.block.ruler.at("blockquote", _parse_blockquote, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    for name in (*BLOCKS, "heading"):
        parser.add_render_rule(f"{name}_open", _block_open)
    parser.add_render_rule("heading_close", _heading_close)
    for name in ("fence", "code_block"):
        parser.add_render_rule(name, _code)
    for name in ("math_inline", "math_inline_double", "math_single", "math_block", "math_block_label"):
        parser.add_render_rule(name, _formula)
    parser.add_render_rule("link_open", lambda *_: "")
    parser.add_render_rule("link_close", _link_close)
    parser.add_render_rule("image", _image)
    parser.core.ruler.push("link_addresses", _store_link_addresses)
    return parser


def _parse_blockquote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a quotation, but not `>>>`, which begins a line of a Python session."""
    line = state.bMarks[start] + state.tShift[start]
    return not state.src.startswith(">>>", line) and blockquote(state, start, end, silent)


def _parse_tex(state: StateInline, silent: bool) -> bool:
    r"""Parse `\(...\)` and `\[...\]`, which some models write for formulas."""
    opening = state.src[state.pos : state.pos + 2]
    if opening not in (r"\(", r"\["):
        return False
    start = state.pos + 2
    end = state.src.find(r"\)" if opening == r"\(" else r"\]", start, start + LONGEST_FORMULA)
    if end < 0 or end >= state.posMax:
        return False
    if not silent:
        token = state.push("math_inline" if opening == r"\(" else "math_inline_double", "math", 0)
        token.content = state.src[start:end]
    state.pos = end + 2
    return True


def _store_link_addresses(state: Any) -> None:
    """Store the URL of a link in the token at the link's end, to display it after the text."""
    for block in state.tokens:
        opened: list[Token] = []
        for token in block.children or ():
            if token.type == "link_open":
                opened.append(token)
            elif token.type == "link_close" and opened:
                token.meta = {"address": str(opened.pop().attrs.get("href", ""))}


def _block_open(self: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, environment: Any) -> str:
    token = tokens[index]
    if token.hidden:  # the paragraph of an item in a tight list
        return ""
    if token.type == "heading_open" and environment["figures"] is None:  # no part of the page's outline
        return '<p class="heading" dir="auto">'
    start = f' start="{token.attrs["start"]}"' if "start" in token.attrs else ""
    tag = _lower_heading(token.tag) if token.type == "heading_open" else token.tag
    return f'<{tag} dir="auto"{start}>' + ("\n" if token.type.endswith(("list_open", "table_open")) else "")


def _lower_heading(tag: str) -> str:
    """Return the tag of a report's heading one level lower, as the page has a title of its own."""
    return f"h{min(6, int(tag[1]) + 1)}"


def _heading_close(self: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, environment: Any) -> str:
    return f"</{'p' if environment['figures'] is None else _lower_heading(tokens[index].tag)}>\n"


def _link_close(self: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    address = str(tokens[index].meta.get("address", ""))
    return f' <span class="faint">({text_html(address)})</span>' if address else ""


def _image(self: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, environment: Any) -> str:
    token = tokens[index]
    if figure := (environment["figures"] or {}).get(str(token.attrs.get("src", ""))):
        return f'<img src="{figure}" alt="{text_html(token.content)}">'
    return f'<span class="mark">image: {text_html(token.content)} ({text_html(str(token.attrs.get("src", "")))})</span>'


def _code(self: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    token = tokens[index]
    return code_html(token.content, token.info.split(maxsplit=1)[0] if token.info.strip() else "")


def code_html(code: str, language: str = "") -> str:
    """Return a block of code as HTML, highlighted if the language is known."""
    html = None
    if language and len(code) <= HIGHLIGHTED:
        with contextlib.suppress(ClassNotFound):
            html = highlight(code, get_lexer_by_name(language, stripnl=False), HtmlFormatter(nowrap=True))
    return f'<pre class="code"><code>{text_html(code) if html is None else html}</code></pre>\n'


def _formula(
    self: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, environment: dict[str, Any]
) -> str:
    token = tokens[index]
    block = token.type not in ("math_inline", "math_single")
    source, environment["formulas"] = token.content, environment["formulas"] + 1
    if len(source) <= LONGEST_FORMULA and environment["formulas"] <= MOST_FORMULAS:
        with contextlib.suppress(Exception):  # latex2mathml raises many kinds; the source is shown instead
            return convert(source, display="block" if block else "inline")
    return f"<code>{text_html(source)}</code>"


# ---- messages ----


def message_html(message: Message, *, rendered: bool) -> str:
    """Return a message as HTML: its text, rendered or verbatim, and its tool calls as blocks of code."""
    if not rendered:
        return f'<div class="text" dir="auto">{text_html(message_text(message))}</div>'
    text = message_text({**message, "tool_calls": []})  # type: ignore[typeddict-item]
    calls = "".join(map(_call_html, message.get("tool_calls", ())))
    return f'<div class="text rendered">{rendered_html(text) if text else ""}{calls}</div>'


def _call_html(call: Mapping[str, Any]) -> str:
    function = call["function"]
    arguments = json.dumps(function["arguments"], indent=2, ensure_ascii=False, sort_keys=True)
    name = f'<p class="faint">tool call: {text_html(str(function["name"]), 300)}</p>'
    return name + MARK.sub(MARKED, code_html(HIDDEN.sub(_visible, arguments[:LONGEST]), "json"))


def completion_html(completion: AnyCompletion, *, rendered: bool) -> str:
    """Return a response as HTML. A response may have several messages."""
    if not rendered:
        return f'<div class="text" dir="auto">{text_html(completion_text(completion))}</div>'
    first, *others = completion_turns(completion)
    named = [
        f'<p class="faint">{text_html(turn["role"], 100)}</p>{message_html(turn, rendered=True)}' for turn in others
    ]
    return "".join([message_html(first, rendered=True), *named])
