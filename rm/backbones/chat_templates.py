"""Safety checks of chat templates, which are untrusted programs: their cost is measured before Transformers runs them.
Also detects the text that a generation prompt prefills.

Transformers renders in Jinja's ImmutableSandboxedEnvironment, which keeps templates away from Python internals but not
from writing ten gigabytes or looping for a week. Here a template is first rendered for a few short conversations in
the same kind of sandbox, in which every loop, call, operator, filter and output is counted.
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from functools import lru_cache, partial, update_wrapper
from types import BuiltinMethodType, MethodType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.visitor import NodeTransformer

from ..errors import DataError
from ..types import Message, message_text, tools_of, tools_text

LARGEST = 1 << 16
"""Maximum length of a template in characters: three times the longest one of public models."""
STEPS = 20_000
"""Maximum number of loop iterations, macro calls and other calls for one short conversation."""
SIZE = 1 << 20
"""Maximum number of written characters, maximum total size of values, and largest number a function may receive."""
GROWTH, SLACK = 8, 1 << 16
"""A conversation of C characters may be rendered as at most GROWTH · C + SLACK characters."""
METHODS = (MethodType, BuiltinMethodType)
TURNS = (
    ({"role": "user", "content": "a question " * 4},),
    ({"role": "user", "content": "a question"}, {"role": "assistant", "content": "an answer"}),
    (
        {"role": "system", "content": "a system prompt"},
        {"role": "user", "content": "a question"},
        {"role": "assistant", "content": "an answer"},
        {"role": "user", "content": "another question"},
        {"role": "assistant", "content": "another answer"},
    ),
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "a function",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
        },
    }
]
CALLING = (
    {"role": "user", "content": "a question"},
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "a thought",
        "tool_calls": [
            {"type": "function", "id": "abc123def", "function": {"name": "look_up", "arguments": {"word": "a word"}}}
        ],
    },
    {"role": "tool", "content": "a result", "tool_call_id": "abc123def", "name": "look_up"},
    {"role": "assistant", "content": "an answer"},
)
"""Conversation with features that only some templates support; rendered with and without declared functions."""
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
VARIABLES = {**TOKENS, "date_string": "1 Jan 2024"}


class CostlyTemplate(Exception):
    """Raised for a template that exceeds a limit. The message is a clause such as "it takes more than ... steps"."""


def check_template(template: Any, source: str) -> None:
    """Raise `DataError` if a template, or any of several named ones, is too long, forbidden or too costly."""
    for text in template.values() if isinstance(template, Mapping) else [template]:
        if isinstance(text, str) and (fault := fault_of(text)):
            raise DataError(f"the chat template of '{source}' {fault}; give another one with --chat_template FILE")


def check_growth(text: str, turns: Sequence[Message]) -> None:
    """Raise `CostlyTemplate` if a rendered conversation is far longer than its messages."""
    given_length = sum(len(message_text(turn)) for turn in turns) + len(tools_text(tools_of(turns)))
    if len(text) > GROWTH * given_length + SLACK:
        raise CostlyTemplate(f"it renders {given_length:,} characters as {len(text):,}")


@lru_cache(maxsize=64)
def fault_of(template: str) -> str:
    """Return the fault of a template, as the predicate of a sentence; empty if there is none.

    >>> fault_of("{% for m in messages %}{{ m.content }}{% endfor %}")
    ''
    >>> fault_of("{{ 'a' * 10**10 }}")
    'is refused: it makes values of more than 1,048,576 elements'
    """
    if len(template) > LARGEST:
        return f"has {len(template):,} characters, more than the limit of {LARGEST:,}"
    plain = [(turns, opens, None) for turns in TURNS for opens in (False, True)]
    calling = [(CALLING, True, TOOLS)], [(CALLING, False, None)]
    return next(filter(None, (_cost_fault(template, some) for some in (plain, *calling))), "")


def _cost_fault(template: str, conversations: Sequence[tuple[Sequence[Any], bool, Any]]) -> str:
    """Return the fault of a template in rendering these conversations, as a predicate; empty if there is none."""
    try:
        for turns, opens, tools in conversations:
            LimitedEnvironment().render_limited(
                template, messages=[*turns], add_generation_prompt=opens, tools=tools, **VARIABLES
            )
    except (CostlyTemplate, SecurityError) as error:
        return f"is refused: {error}"
    except RecursionError:
        return "is refused: it calls itself without an end"
    except Exception:  # it may reject these roles or their order; errors on real conversations are raised in use
        return ""
    return ""


QUESTION = {"role": "user", "content": "a question"}
RESPONSES = ("an answer", "<think>a thought</think>an answer")
"""Marker responses for detecting a prefill. The second has reasoning, since some templates add empty reasoning."""


def prefilled_text(render: Callable[..., str]) -> str:
    """Return the beginning of a completion that the generation prompt already contains, such as `<think>`.

    Empty if the generation prompt contains no such beginning.

    The header of an assistant turn is the text before a response in a conversation that continues; the prefill is the
    rest of the generation prompt. `render` is `Encoder.render_turns`.
    """
    prompt, opened = render([QUESTION]), render([QUESTION], add_generation_prompt=True)
    for content in RESPONSES:
        try:
            text = render([QUESTION, {"role": "assistant", "content": content}, QUESTION])
        except DataError:  # a template that refuses or loses such a turn
            continue
        header = text.partition(content)[0]
        if content in text and header.startswith(prompt) and opened.startswith(header):
            return opened.removeprefix(header) if opened.removeprefix(header).strip() else ""
    return ""


class _Generation(Extension):
    """Jinja tag `{% generation %}`, with which Transformers' templates may mark completions."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> list[nodes.Node]:
        """Return the body of the tag, as if the tag were absent."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox that Transformers uses, with limits on everything that costs time or memory."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.steps = self.written = self.made = 0
        self.filters = {name: self._counting(filter_) for name, filter_ in self.filters.items()}
        self.globals |= {
            "lipsum": _lipsum,
            "raise_exception": _raise,
            "strftime_now": lambda form: "1 Jan 2024",
            "dict": _Dict(),
        }

    def render_limited(self, template: str, **variables: Any) -> str:
        """Render the template; raise `CostlyTemplate` if it exceeds a limit."""
        tree = _Counting().visit(self.parse(template))
        code = self.compile(tree)
        return self.template_class.from_code(self, code, self.globals, None).render(**variables)

    def tick(self) -> str:
        """Count one step."""
        self.steps += 1
        if self.steps > STEPS:
            raise CostlyTemplate(f"it takes more than {STEPS:,} steps for a conversation of a few words")
        return ""

    def sized(self, value: Any) -> Any:
        """Add the size of a value to the total, and return the value."""
        large = isinstance(value, int) and value.bit_length() > 4096
        self.made += len(value) if isinstance(value, Sized) else 0
        if large or self.made > SIZE:
            raise CostlyTemplate(f"it makes values of more than {SIZE:,} elements")
        return value

    def put(self, value: Any) -> Any:
        """Add the length of a written value to the total, and return the value."""
        self.written += len(self.sized(str(value)))
        if self.written > SIZE:
            raise CostlyTemplate(f"it writes more than {SIZE:,} characters for a conversation of a few words")
        return value

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator; the size of the result is bounded before it is computed."""
        if operator == "**" and not (abs(left) <= SIZE and abs(right) <= 64):
            raise CostlyTemplate(f"it makes values of more than {SIZE:,} elements")
        if operator == "*":
            self._check_product((left, right))
        if operator == "%" and isinstance(left, str):
            self._check_format_widths(left)
            self._check_product((right if isinstance(right, tuple) else (right,)) if "*" in left else ())
        return self.sized(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Wrap `str.format` after checking the widths in its format string."""
        if isinstance(value, METHODS) and isinstance(value.__self__, str) and value.__name__.startswith("format"):
            self._check_format_widths(value.__self__)
        return super().wrap_str_format(value)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore
        """Call a function, and count the sizes of its arguments and result."""
        if obj in (self.tick, self.sized, self.put):
            return obj(*args)
        self.tick()
        self._check_product((obj.__self__ if isinstance(obj, METHODS) else "", *args, *kwargs.values()))
        return self.sized(super().call(context, obj, *args, **kwargs))

    def _counting(self, filter_: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a filter with counting; `update_wrapper` keeps the attribute by which Jinja passes the context."""
        return update_wrapper(partial(self._call_filter, filter_), filter_)

    def _call_filter(self, filter_: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Check the arguments of a filter, call it, and count the size of its result."""
        self.tick()
        arguments = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, str | int | list | tuple)]
        self._check_product(arguments)
        if arguments and isinstance(arguments[0], str) and filter_ is FILTERS["format"]:
            self._check_format_widths(arguments[0])
        return self.sized(filter_(*args, **kwargs))

    def _check_product(self, values: Sequence[Any]) -> None:
        """Check the product of all lengths and numbers, which bounds the size of a padded, repeated or joined text."""
        product = 1
        for value in values:
            size = len(value) if isinstance(value, str | list | tuple) else abs(value) if isinstance(value, int) else 1
            product *= max(1, size)
        if product > SIZE:
            raise CostlyTemplate(f"it makes values of more than {SIZE:,} elements")

    def _check_format_widths(self, form: str) -> None:
        """Raise `CostlyTemplate` if a format string contains a number of more than six digits, such as a width."""
        digits = "".join(letter if letter.isdigit() else " " for letter in form).split()
        if any(len(number) > 6 for number in digits):
            raise CostlyTemplate(f"it makes values of more than {SIZE:,} elements")


class _Counting(NodeTransformer):
    """Syntax tree transformer that adds counting to every loop, macro, concatenation and output."""

    def visit_For(self, node: Any) -> Any:
        """Count a step for each iteration of a loop, and each call of a macro."""
        self.generic_visit(node)
        step = nodes.ExprStmt(_call_node("tick", [], node.lineno), lineno=node.lineno)
        node.body = [step, *node.body]
        return node

    visit_Macro = visit_For

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        """Measure the result of `a ~ b`."""
        self.generic_visit(node)
        return _call_node("sized", [node], node.lineno)

    def visit_Output(self, node: nodes.Output) -> nodes.Output:
        """Count the characters of every text and expression that an output node writes."""
        self.generic_visit(node)
        plain = [nodes.Const(node.data) if isinstance(node, nodes.TemplateData) else node for node in node.nodes]
        node.nodes = [_call_node("put", [node_], node.lineno) for node_ in plain]
        return node


def _call_node(name: str, values: list[Any], line: int) -> nodes.Call:
    """Return a syntax tree node that calls the method `name` of the environment."""
    called = nodes.Call(nodes.EnvironmentAttribute(name), values, [], None, None)
    called.set_lineno(line)
    return called


class _Dict:
    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)


def _lipsum(*_: Any, **__: Any) -> NoReturn:
    raise CostlyTemplate("it asks Jinja for made-up text")


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
