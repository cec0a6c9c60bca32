"""Requests of CDRRM, and extraction of JSON objects from the replies."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..backends.chat import Ask, Reply
from ..judge import failure
from ..parsing.replies import Repeated, documents, without_thinking
from ..prompts import instructions, messages


class Rejected(NamedTuple):
    """Reason for rejecting a reply, rubric or pair. Rejections are counted, and never replaced by a guess."""

    reason: str
    """Category, such as `no reply`, `no JSON` or `wrong form`."""
    detail: str = ""


def system_prompt(name: str) -> str:
    """Return the instructions in `prompts/cdrrm_NAME.txt`."""
    return instructions(f"cdrrm_{name}")


def ask(name: str, parts: Mapping[str, str], schema: Mapping[str, Any] | None = None, max_tokens: int = 1024) -> Ask:
    """Return a request with the instructions `name` and all parts in order, including empty parts."""
    return Ask(messages(system_prompt(name), parts), schema, max_tokens)


def read_part(text: str, name: str) -> str | None:
    """Return the text between the tags of a part; None without such a part."""
    start, end = text.find(f"<{name}>\n"), text.find(f"\n</{name}>")
    return text[start + len(name) + 3 : end] if 0 <= start < end else None


def json_object(reply: Reply) -> dict[str, Any] | Rejected:
    """Return the only JSON object in a reply, at any position, or the reason for rejecting the reply."""
    if reply.finish == "length":
        return Rejected("cut off", reply.text[-60:])
    if no_verdict := failure(reply):
        return Rejected(str(no_verdict.reason), no_verdict.detail)
    text = without_thinking(reply.text)
    try:
        objects = [document.value for document in documents(text or "") if isinstance(document.value, dict)]
    except Repeated as error:
        return Rejected("wrong form", str(error))
    if len(objects) != 1:
        return Rejected("several JSON objects" if objects else "no JSON", reply.text[:60])
    return objects[0]
