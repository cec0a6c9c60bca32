"""Write as text what a chat template omits from a conversation, so that the model reads it nevertheless.

Templates of plain models know only roles and contents. Declared functions, tool calls, tool results and reasoning that
such a template would silently drop are added to the contents, in the format of Hermes and Qwen models; a system turn is
added to a user turn. What is rendered is compared with the contents themselves, since a template may drop any of them.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..types import Message, message_text, tools_text

Render = Callable[[Sequence[Message], Sequence[dict[str, Any]]], str]
"""Renders messages and declared functions with a chat template; may raise any exception."""
TOOLS, CALLS, RESULTS, REASONING = "declared tools", "tool calls", "tool results", "reasoning"
SYSTEM = ("system", "developer")
"""Roles of turns that can be written into a user turn."""
THOUGHT = re.compile(r"</?think>")
"""Default markers around reasoning in a content; templates may use other markers."""
CONTENTS = ("content", "reasoning_content")
"""Message fields with text that the model reads."""
ID = "zq1234567"
"""Id of a test call: Mistral's templates require nine letters and digits."""


def has_parts(turns: Sequence[Message]) -> bool:
    """Return whether a conversation has parts other than the contents of system, user and assistant turns."""
    return any(turn.keys() - {"role", "content", "name"} or turn["role"] in ("tool", "developer") for turn in turns)


def unrendered(render: Render) -> frozenset[str]:
    """Return the parts that a chat template does not render, found by rendering unique words."""
    question = Message(role="user", content="question")
    tool = _tool("zqtool")
    tools = [] if "zqtool" in _try_render(render, [question], [tool]) else [TOOLS]
    declared = [] if tools else [tool]
    asking = Message(role="assistant", content="", tool_calls=[_call("zqtool", {"zqkey": "zqvalue"}, ID)])
    result = Message(role="tool", content="zqresult", tool_call_id=ID, name="zqtool")
    answer = Message(role="assistant", content="answer")
    text = _try_render(render, [question, asking, result, answer], declared)
    calls = [] if "zqkey" in text and "zqvalue" in text else [CALLS]
    before = Message(role="assistant", content="call") if calls else asking
    text = _try_render(render, [question, before, result, answer], declared)
    results = [] if "zqresult" in text else [RESULTS]
    thinking = Message(role="assistant", content="answer", reasoning_content="zqreason")
    reasoning = [] if "zqreason" in _try_render(render, [question, thinking], []) else [REASONING]
    return frozenset([*tools, *calls, *results, *reasoning])


def _try_render(render: Render, turns: Sequence[Message], tools: Sequence[dict[str, Any]]) -> str:
    try:
        return render(turns, tools)
    except Exception:  # templates raise arbitrary errors; a part that is refused is written as text
        return ""


def _tool(name: str) -> dict[str, Any]:
    """Return the schema of a test function with this name."""
    key = {"type": "string", "description": "a key"}
    parameters = {"type": "object", "properties": {"zqkey": key}, "required": ["zqkey"]}
    return {"type": "function", "function": {"name": name, "description": "a function", "parameters": parameters}}


def _call(name: str, arguments: Any, id: str) -> dict[str, Any]:
    """Return a call of a test function."""
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def write_out(
    turns: Sequence[Message], tools: Sequence[dict[str, Any]], parts: frozenset[str], developer: bool
) -> tuple[list[Message], list[dict[str, Any]]]:
    """Return messages and tools with `parts`, which the template omits, written as text into contents.

    Tools are written into the first message, calls and reasoning into the message that has them, tool results into a
    user turn. `developer` states whether the template supports the role `developer`.
    """
    messages: list[Message] = []
    for turn in turns:
        plain = _write_turn(turn, parts)
        if plain["role"] == "developer" and not developer:
            plain["role"] = "system"
        before = messages[-1] if messages else None
        if before and _is_merged(before, plain, turn, parts):
            before["content"] += ("\n\n" if plain["role"] == "system" else "\n") + plain["content"]
        else:
            messages.append(plain)
    if not tools or TOOLS not in parts:
        return messages, list(tools)
    declaration = f"# Tools\n\n<tools>\n{tools_text(tools)}\n</tools>"
    first = messages[0]
    order = [first["content"], declaration] if first["role"] == "system" else [declaration, first["content"]]
    first["content"] = "\n\n".join(text for text in order if text)
    return messages, []


def _write_turn(turn: Message, parts: frozenset[str]) -> Message:
    """Return a message in which `parts` are written as text into the content."""
    content: Any = {key: value for key, value in turn.items() if key != "tools"}
    if turn["role"] == "tool" and RESULTS in parts:
        return Message(role="user", content=f"<tool_response>\n{turn['content']}\n</tool_response>")
    fields = [key for part, key in ((CALLS, "tool_calls"), (REASONING, "reasoning_content")) if part in parts]
    fields_text: Any = {key: content.pop(key) for key in fields if key in content}
    if fields_text:
        content["content"] = message_text(fields_text | {"role": turn["role"], "content": turn["content"]})
    return content


def _is_merged(before: Message, plain: Message, turn: Message, parts: frozenset[str]) -> bool:
    """Return whether a message is merged into the previous one: a further tool result, or a second system turn."""
    if before["role"] != plain["role"]:
        return False
    result = turn["role"] == "tool" and RESULTS in parts and before["content"].startswith("<tool_response>")
    return result or (turn["role"] == "developer" and plain["role"] == "system")


def omitted_part(render: Render, turns: Sequence[Message], tools: Sequence[dict[str, Any]]) -> str:
    """Return the name of a part that a template omits from conversations like this one; empty if none.

    Omission of the reasoning of earlier turns is allowed and not reported.
    """
    marked, marks = [], {}
    for turn_index, turn in enumerate(turns):
        markers, probe = _with_markers(turn, turn_index)
        if turn_index < len(turns) - 1:
            probe = {mark: part for mark, part in probe.items() if part != REASONING}
        marked.append(markers)
        marks |= probe
    probes = [_tool(f"zqtool{index}z") for index in range(len(tools))]
    marks |= {f"zqtool{index}z": TOOLS for index in range(len(tools))}
    try:
        text = render(marked, probes)
    except Exception:  # rendering the conversation itself raises the same error with its real contents
        return ""
    return next((part for mark, part in marks.items() if mark not in text), "")


def _with_markers(turn: Message, index: int) -> tuple[Message, dict[str, str]]:
    """Return a message with unique words in place of its texts, and the part that each word stands for."""
    marked: Any = dict(turn)
    markers: dict[str, str] = {}
    special = turn["role"] == "tool" or "tool_calls" in turn or "reasoning_content" in turn
    if turn["content"].strip():
        marked["content"] = f"zqcontent{index}z"
        if special:
            part = RESULTS if turn["role"] == "tool" else "content beside a tool call or reasoning"
            markers[marked["content"]] = part
    if "reasoning_content" in turn:
        marked["reasoning_content"] = f"zqreason{index}z"
        markers[marked["reasoning_content"]] = REASONING
    if "tool_calls" in turn:
        calls = []
        for number, call in enumerate(turn["tool_calls"]):
            mark = f"zqcall{index}of{number}z"
            value = f"zqvalue{index}of{number}z"
            arguments = call["function"]["arguments"]
            new = value if isinstance(arguments, str) else {"zqkey": value} if arguments else {}
            calls.append(call | {"function": {"name": mark, "arguments": new}})
            markers |= {mark: CALLS} | ({value: CALLS} if new else {})
        marked["tool_calls"] = calls
    return marked, markers


class Omission(NamedTuple):
    """A text that is missing from a rendered conversation, and the index of its message."""

    turn: int
    text: str


def omissions(turns: Sequence[Message], text: str) -> list[Omission]:
    """Return the contents and reasoning that are missing from a rendered conversation. Whitespace is ignored.

    Longer texts are matched first, and an occurrence counts once, so that a text within another text must also occur
    separately. A text is also found if it is rendered as a JSON string, or if its reasoning has other markers.
    """
    texts: list[Any] = [(index, turn.get(key)) for index, turn in enumerate(turns) for key in CONTENTS]
    stripped = [Omission(index, content.strip()) for index, content in texts if content and content.strip()]
    if _occur_in_order([content for _, content in stripped], text):
        return []
    parts = [Omission(turn, part) for turn, content in stripped for part in map(str.strip, THOUGHT.split(content))]
    parts = [part for part in parts if part.text]
    forms = [(part.text, json.dumps(part.text, ensure_ascii=False)[1:-1]) for part in parts]
    spellings = [[*map(_without_blanks, pair)] for pair in forms]
    return [parts[index] for index in sorted(_absent_indices(spellings, _without_blanks(text)))]


def _occur_in_order(texts: Iterable[str], text: str) -> bool:
    """Return whether a text contains all `texts`, in order and without overlap."""
    position = 0
    for part in texts:
        start = text.find(part, position)
        if start < 0:
            return False
        position = start + len(part)
    return True


def _absent_indices(spellings: Sequence[Sequence[str]], text: str) -> list[int]:
    """Return the indices of texts without a separate occurrence in any of their spellings."""
    absent = []
    for index in sorted(range(len(spellings)), key=lambda index: -len(spellings[index][0])):
        spelling = next((spelling for spelling in spellings[index] if spelling in text), None)
        if spelling is None:
            absent.append(index)
        else:
            text = text.replace(spelling, "\0", 1)
    return absent


def _without_blanks(text: str) -> str:
    return "".join(text.split())


def omits_system(turns: Sequence[Message], omitted: Iterable[Omission]) -> bool:
    """Return whether a system turn is omitted."""
    return any(turns[omission.turn]["role"] in SYSTEM for omission in omitted)


def system_in_user(turns: Sequence[Message]) -> list[Message]:
    """Return the messages with every system turn merged into the adjacent user turn, preferably the preceding one."""
    messages: list[Any] = []
    for turn in turns:
        roles = {messages[-1]["role"], turn["role"]} if messages else set()
        if roles & {*SYSTEM} and roles <= {"user", *SYSTEM}:
            before = messages.pop()
            role = "user" if "user" in roles else before["role"]
            turn = before | turn | {"role": role, "content": f"{before['content']}\n\n{turn['content']}"}
        messages.append(turn)
    return messages
