"""Parse messages, tool calls and tool schemas from rows of the common formats."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..io.checked_files import from_json
from ..types import ROLES, Message, Messages, tools_of

FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "tools")
MEDIA = ("image", "images", "audio", "audios", "video", "videos")
"""Columns and message fields that cannot be represented as text."""
PYTHON_LIST = re.compile(r"\s*\[\s*\{'.*\}\s*\]\s*", re.DOTALL)
"""Pattern of a list of dictionaries in Python's notation; NumPy's arrays have no commas between the items."""
PYTHON_REMEDY = (
    "pandas writes lists into CSV files this way; save the data as JSON lines, "
    'df.to_json("data.jsonl", orient="records", lines=True), or as Parquet'
)


def check_characters(values: Sequence[Any]) -> None:
    """Raise `ValueError` for a text within the values that cannot be written as UTF-8."""
    try:
        json.dumps(values, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"an unpaired surrogate: {error.object[error.start]!r} cannot be written as UTF-8") from error


def as_message(raw: Any, name: str) -> Message:
    """Return a message of the column `name` with the fields that are set; raise `ValueError` if it is malformed.

    Content is text, a list of text parts (joined by line breaks), or absent beside tool calls. Arguments of a tool call
    are an object or its JSON text; text that is not valid JSON is kept as text.

    >>> as_message({"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": None}, "prompt")
    {'role': 'user', 'content': 'Hi'}
    """
    if not isinstance(raw, Mapping):
        raise ValueError(f"a message of '{name}' is not {{role, content}} with text: {str(raw)[:60]}")
    if raw.get("role") not in ROLES:
        raise ValueError(f"unknown role {raw.get('role')!r} in '{name}': roles are {', '.join(ROLES)}")
    refuse_media(raw, f"a message of '{name}'")
    calls = [_call(call, name) for call in _parse_list(raw.get("tool_calls"), f"'tool_calls' in '{name}'")]
    if calls and raw["role"] != "assistant":
        raise ValueError(f"a message of role '{raw['role']}' in '{name}' has tool calls; its role must be assistant")
    turn = Message(role=raw["role"], content=_content(raw, name, bool(calls)))
    if calls:
        turn["tool_calls"] = calls
    for field in ("tool_call_id", "name", "reasoning_content"):
        if (value := raw.get(field)) not in (None, ""):
            if not isinstance(value, str):
                raise ValueError(f"'{field}' of a message of '{name}' is not text: {value!r:.60}")
            turn[field] = value
    if tools := as_tools(raw.get("tools")):
        turn["tools"] = tools
    return turn


def parsed_messages(value: Any, name: str) -> Any:
    """Return the messages that a JSON text holds; return any other value unchanged.

    Only lists of objects with `role` and `content` (or `tool_calls`) are parsed. Python's notation of such a list,
    which pandas writes into CSV files, is ambiguous and raises `ValueError`.

    >>> parsed_messages('[{"role": "user", "content": "Hi"}]', "prompt")
    [{'role': 'user', 'content': 'Hi'}]
    >>> parsed_messages('[{"role": "editor"}]', "chosen"), parsed_messages("[INST] Hi", "prompt")
    ('[{"role": "editor"}]', '[INST] Hi')
    """
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    if PYTHON_LIST.fullmatch(value) and all(f"'{field}':" in value for field in ("role", "content")):
        raise ValueError(f"'{name}' is in Python's notation: {PYTHON_REMEDY}")
    try:
        turns = from_json(value)
    except ValueError:
        return value
    return turns if turns and all(map(_is_message, turns)) else value


def parsed_object(value: Any) -> Any:
    """Return the value that a text, such as a cell of a CSV file, holds as JSON; None for a blank one.

    Other values, and text that is not JSON, are returned unchanged.

    >>> parsed_object('{"overall": 0.5}'), parsed_object(" "), parsed_object("yes")
    ({'overall': 0.5}, None, 'yes')
    """
    if not isinstance(value, str):
        return value
    try:
        return from_json(value) if value.strip() else None
    except ValueError:
        return value


def _is_message(turn: Any) -> bool:
    return isinstance(turn, Mapping) and "role" in turn and not turn.keys().isdisjoint(("content", "tool_calls"))


def _content(raw: Mapping[str, Any], name: str, calls: bool) -> str:
    """Return a message's content as text; raise `ValueError` if it is neither text nor a list of texts."""
    content = raw.get("content")
    if isinstance(content, list) and content and all(isinstance(part, Mapping) for part in content):
        content = "\n".join(_part(part, name) for part in content)
    if content is None and (calls or raw.get("reasoning_content")):
        return ""
    if not isinstance(content, str):
        raise ValueError(f"a message of '{name}' is not {{role, content}} with text: {str(raw)[:60]}")
    return content


def _part(part: Mapping[str, Any], name: str) -> str:
    """Return the text of a part of a content; raise `ValueError` for images and other types."""
    if part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise ValueError(f"content of the kind {part.get('type')!r} in '{name}': only text is scored")
    return part["text"]


def _parse_list(value: Any, name: str) -> Sequence[Any]:
    """Return a list; absent values give an empty list and JSON text is parsed."""
    items = _json(value, name) if isinstance(value, str) and value.strip() else value
    if items in (None, "", [], ()):
        return []
    if not isinstance(items, list | tuple):
        raise ValueError(f"{name} is not a list: {str(value)[:60]}")
    return items


def _json(text: str, name: str) -> Any:
    """Parse JSON text; raise `ValueError` with the name of its column if it is invalid."""
    try:
        return from_json(text)
    except ValueError as error:
        if PYTHON_LIST.fullmatch(text):
            raise ValueError(f"{name} is in Python's notation: {PYTHON_REMEDY}") from None
        raise ValueError(f"{name} is not JSON: {error}") from None


def _call(raw: Any, name: str) -> dict[str, Any]:
    """Return a tool call in OpenAI's format; raise `ValueError` if it is malformed."""
    function = raw.get("function") or raw if isinstance(raw, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"a tool call in '{name}' is not {{function: {{name, arguments}}}}: {str(raw)[:60]}")
    call = {"type": "function", "function": {"name": function["name"], "arguments": _arguments(function, name)}}
    return call | ({"id": raw["id"]} if isinstance(raw.get("id"), str) and raw["id"] else {})


def _arguments(function: Mapping[str, Any], name: str) -> dict[str, Any] | str:
    """Return the arguments of a tool call as an object; text that holds no JSON object stays text."""
    stated = function.get("arguments")
    if stated is None or stated == "":
        return {}
    if isinstance(stated, str):
        try:
            arguments = from_json(stated)
        except ValueError:  # a model may have generated an invalid call
            return stated
        return arguments if isinstance(arguments, dict) else stated
    if not isinstance(stated, Mapping):
        raise ValueError(f"the arguments of '{function['name']}' in '{name}' are not an object: {stated!r:.60}")
    return dict(stated)


def as_tools(value: Any) -> list[dict[str, Any]]:
    """Return the tool schemas in a column `tools`, a list or its JSON text; an empty list for an empty column."""
    tools = []
    for tool in _parse_list(value, "'tools'"):
        schema = _json(tool, "an item of 'tools'") if isinstance(tool, str) else tool
        if isinstance(schema, Mapping) and isinstance(schema.get("name"), str) and "function" not in schema:
            schema = {"type": "function", "function": dict(schema)}
        function = schema.get("function") if isinstance(schema, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError(f"a tool is not the schema of a function with a name: {str(tool)[:60]}")
        tools.append(dict(schema))
    return tools


def refuse_media(values: Mapping[str, Any], location: str = "the row") -> None:
    """Raise a `ValueError` for a row or message with images, audio or video."""
    for name in MEDIA:
        if values.get(name) not in (None, "", [], (), {}):
            raise ValueError(f"{location} has '{name}', but only text is scored: remove such rows, or empty the column")


def with_columns(prompt: Messages, values: Mapping[str, Any]) -> Messages:
    """Return the prompt with the row's columns `system` and `tools` applied; raise `ValueError` if it has images."""
    refuse_media(values)
    return with_tools(_with_system(prompt, values.get("system")), as_tools(values.get("tools")))


def _with_system(prompt: Messages, system: Any) -> Messages:
    if system is None or system == "":
        return prompt
    if not isinstance(system, str):
        raise ValueError(f"the column 'system' is not text: {system!r:.60}")
    if prompt[0]["role"] not in ("system", "developer"):
        return (Message(role="system", content=system), *prompt)
    if prompt[0]["content"] != system:
        raise ValueError("the column 'system' and the system turn of the prompt differ; keep one of them")
    return prompt


def with_tools(prompt: Messages, tools: list[dict[str, Any]]) -> Messages:
    """Return the prompt with these functions declared on its first message."""
    declared = tools_of(prompt)
    if declared and tools and declared != tools:
        raise ValueError("the column 'tools' and the tools of the prompt's first message differ; keep one of them")
    return prompt if declared or not tools else ({**prompt[0], "tools": tools}, *prompt[1:])


def as_columns(turn: Message) -> dict[str, str]:
    """Return a message with text fields only, for tables. Calls and tools become JSON, which `as_message` parses."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in turn.items()}


def _unread_fields(values: Mapping[str, Any], columns: Sequence[str]) -> Iterator[str]:
    """Yield the names of unused message fields, as `column[].field`."""
    for column in columns:
        stored = parsed_messages(values[column], column)
        turns = stored if isinstance(stored, list) else []
        messages = [turn for turn in turns if isinstance(turn, Mapping) and "role" in turn]
        unread = {key for turn in messages for key in turn if key not in FIELDS and turn[key] not in (None, "", [], {})}
        yield from sorted(f"{column}[].{key}" for key in unread)


class TrackedRow(Mapping[str, Any]):
    """A row that records which of its columns were read."""

    def __init__(self, values: Mapping[str, Any]):
        self.values_, self.read = values, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)

    @property
    def read_values(self) -> list[Any]:
        """Return the values of the columns that were read."""
        return [value for name, value in self.values_.items() if name in self.read]

    @property
    def ignored(self) -> list[str]:
        """Return non-empty columns that were not read, and unknown message fields of columns that were read."""
        unread = [str(name) for name, value in self.values_.items() if name not in self.read and value is not None]
        return [*unread, *_unread_fields(self.values_, [name for name in self.values_ if name in self.read])]
