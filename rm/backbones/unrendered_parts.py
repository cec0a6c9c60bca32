"""Parts of a conversation that a chat template leaves out, written as text so that a model reads them all the same.

Plain models' templates know roles and contents. A declared function, a tool call, a tool's result or reasoning that
such a template would drop in silence goes into the contents instead, in the form that Hermes and Qwen models read.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..types import Message, message_text, tools_text

Render = Callable[[Sequence[Message], Sequence[dict[str, Any]]], str]
"""Messages and declared functions through a chat template; it may raise anything."""
TOOLS, CALLS, RESULTS, REASONING = "declared tools", "tool calls", "tool results", "reasoning"
ID = "zq1234567"
"""Of a call: templates of Mistral's ask for nine letters and digits."""


def has_parts(turns: Sequence[Message]) -> bool:
    """Whether a conversation is more than roles and contents of system, user and assistant."""
    return any(turn.keys() - {"role", "content", "name"} or turn["role"] in ("tool", "developer") for turn in turns)


def left_out(render: Render) -> frozenset[str]:
    """Return the parts that a chat template does not render, tried with a conversation of marked words."""
    question = Message(role="user", content="question")
    tool = _tool("zqtool")
    tools = [] if "zqtool" in _tried(render, [question], [tool]) else [TOOLS]
    declared = [] if tools else [tool]
    asking = Message(role="assistant", content="", tool_calls=[_call("zqtool", {"zqkey": "zqvalue"}, ID)])
    result = Message(role="tool", content="zqresult", tool_call_id=ID, name="zqtool")
    answer = Message(role="assistant", content="answer")
    text = _tried(render, [question, asking, result, answer], declared)
    calls = [] if "zqkey" in text and "zqvalue" in text else [CALLS]
    before = Message(role="assistant", content="call") if calls else asking
    text = _tried(render, [question, before, result, answer], declared)
    results = [] if "zqresult" in text else [RESULTS]
    thinking = Message(role="assistant", content="answer", reasoning_content="zqreason")
    reasoning = [] if "zqreason" in _tried(render, [question, thinking], []) else [REASONING]
    return frozenset([*tools, *calls, *results, *reasoning])


def _tried(render: Render, turns: Sequence[Message], tools: Sequence[dict[str, Any]]) -> str:
    try:
        return render(turns, tools)
    except Exception:  # templates raise what they like; a part that is refused is written out
        return ""


def _tool(name: str) -> dict[str, Any]:
    key = {"type": "string", "description": "a key"}
    parameters = {"type": "object", "properties": {"zqkey": key}, "required": ["zqkey"]}
    return {"type": "function", "function": {"name": name, "description": "a function", "parameters": parameters}}


def _call(name: str, arguments: Any, id: str) -> dict[str, Any]:
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


# ---- writing out ----


def write_out(
    turns: Sequence[Message], tools: Sequence[dict[str, Any]], parts: frozenset[str], developer: bool
) -> tuple[list[Message], list[dict[str, Any]]]:
    """Return messages and tools for a template that leaves out `parts`, and knows a `developer` or not.

    Tools are in the first message, calls and reasoning in their own, results in a turn of the user's.
    """
    messages: list[Message] = []
    for turn in turns:
        plain = _written(turn, parts)
        if plain["role"] == "developer" and not developer:
            plain["role"] = "system"
        before = messages[-1] if messages else None
        if before and _joins(before, plain, turn, parts):
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


def _written(turn: Message, parts: frozenset[str]) -> Message:
    content: Any = {key: value for key, value in turn.items() if key != "tools"}
    if turn["role"] == "tool" and RESULTS in parts:
        return Message(role="user", content=f"<tool_response>\n{turn['content']}\n</tool_response>")
    fields = [key for part, key in ((CALLS, "tool_calls"), (REASONING, "reasoning_content")) if part in parts]
    fields_text: Any = {key: content.pop(key) for key in fields if key in content}
    if fields_text:
        content["content"] = message_text(fields_text | {"role": turn["role"], "content": turn["content"]})
    return content


def _joins(before: Message, plain: Message, turn: Message, parts: frozenset[str]) -> bool:
    """Whether it belongs into the message before it: one of several results, or a second system turn."""
    if before["role"] != plain["role"]:
        return False
    result = turn["role"] == "tool" and RESULTS in parts and before["content"].startswith("<tool_response>")
    return result or (turn["role"] == "developer" and plain["role"] == "system")


# ---- nothing is left out ----


def lost(render: Render, turns: Sequence[Message], tools: Sequence[dict[str, Any]]) -> str:
    """Return what a template leaves out of a conversation of this shape, for a sentence; empty if that is nothing.

    Every text is replaced by a marked word. Reasoning before the last message may go: some models never read it again.
    """
    marked, marks = [], {}
    for turn_index, turn in enumerate(turns):
        markers, probe = _marked(turn, turn_index)
        if turn_index < len(turns) - 1:
            probe = {mark: part for mark, part in probe.items() if part != REASONING}
        marked.append(markers)
        marks |= probe
    named = [_tool(f"zqtool{index}z") for index in range(len(tools))]
    marks |= {f"zqtool{index}z": TOOLS for index in range(len(tools))}
    try:
        text = render(marked, named)
    except Exception:  # what it raises for the conversation itself is told instead
        return ""
    return next((part for mark, part in marks.items() if mark not in text), "")


def _marked(turn: Message, index: int) -> tuple[Message, dict[str, str]]:
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
            given = value if isinstance(arguments, str) else {"zqkey": value} if arguments else {}
            calls.append(call | {"function": {"name": mark, "arguments": given}})
            markers |= {mark: CALLS} | ({value: CALLS} if given else {})
        marked["tool_calls"] = calls
    return marked, markers
