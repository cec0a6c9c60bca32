"""Preprocessing of replies: removal of reasoning, quotations and copied text; extraction of JSON documents."""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Document = dict[str, Any] | list[dict[str, Any]]

THINKING = re.compile(r"<(think|thinking|reasoning|scratchpad)>.*?</\1>", re.DOTALL | re.IGNORECASE)
THINKING_ENDS = re.compile(r"^.*</(?:think|thinking|reasoning|scratchpad)>", re.DOTALL | re.IGNORECASE)
THINKING_BEGINS = re.compile(r"<(?:think|thinking|reasoning|scratchpad)>", re.IGNORECASE)
FENCE = re.compile(r"```[ \t]*[\w+-]*[ \t]*\n(.*?)(?:\n[ \t]*)?```", re.DOTALL)
VERDICT_TAGS = r"(?:final_?)?(?:verdict|winner|answer|choice|decision|judge?ment|result|score|rating)"
TAGGED_VALUE = re.compile(rf"<({VERDICT_TAGS})>\s*([^<>\n]{{1,60}}?)\s*</\1>", re.IGNORECASE)
VERDICT_TAG = re.compile(rf"</?{VERDICT_TAGS}>", re.IGNORECASE)
QUOTING_TAG = re.compile(rf"<(?!{VERDICT_TAGS}>)([A-Za-z]\w*)[^<>]*>.*?</\1>", re.DOTALL | re.IGNORECASE)
DELIMITED = re.compile(r"\[[^\[\]\n]*\b(?:start|begin)[^\[\]\n]*\].*?\[[^\[\]\n]*\bend\b[^\[\]\n]*\]", re.DOTALL | re.I)
DELIMITER = re.compile(r"\[[^\[\]\n]*\bend\b[^\[\]\n]*\]", re.IGNORECASE)
RESULT = re.compile(r"\[RESULT\][ \t]*:?[ \t]*")  # Prometheus
BLOCK_QUOTE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
QUOTATION = re.compile(
    r"[„“]([^„“”]*)[“”]|「([^「」]*)」|『([^『』]*)』|«([^«»]*)»|(?<![\w\"])\"(?=\S)([^\"]*?)(?<=\S)\"(?!\w)"
)
LEADS_OVER = re.compile(
    r"^(?!.*\b(?:my|our|verdict|judge?ment|decision)\b).*\b(?:says?|said|contains?|reads?|states?|claims?|writes?|wrote"
    r"|includes?|ends with|begins with|tells?|instructs?|injects?|asks|sagt|behauptet|schreibt|dit|affirme|écrit|dice"
    r"|afirma|escribe)\b[^.!?]*:[\s*_]*$|(?:说|写道|声称|言って|書いて|述べて)[^.!?。]*[:：][\s*_]*$",
    re.IGNORECASE,
)
BEGINS_JSON = re.compile(r"[{\[]\s*[\"'{]")
OPENING = re.compile(r"[{\[]")
BRACKET = re.compile(r"[{}\[\]]")
TABLE_ROW = re.compile(r"\|\s*([^|]+?)\s*\|\s*([^|]+?)\s*\|")  # of two cells
SENTENCE_END = re.compile(r"(?<=[.!?。])[\"”')\]]*\s+")
LAYERS = 8  # of decoration or enclosing fences: a reply of nothing else would take its length squared
DECORATION = re.compile(
    r"[*`$]|\\[()\[\]]|^[ \t]*(?:(?:#+|[-•+]|\d+[.)])[ \t]+)+|^\W*[\U0001F300-\U0001FAFF✅⭐☑️]+[ \t]*"
)


class Repeated(ValueError):
    """Error for a JSON object that repeats a key."""


class ParsedReply(NamedTuple):
    """A JSON document with its position in the text."""

    value: Document
    start: int
    end: int


def without_thinking(text: str) -> str | None:
    """Return the text after the model's reasoning; None if the reasoning has no end tag.

    >>> without_thinking("<think>Winner: A?</think>Winner: B")
    'Winner: B'
    >>> without_thinking("<think>Winner: A") is None
    True
    """
    rest = THINKING_ENDS.sub("", THINKING.sub("", text)) if "</" in text else text
    return None if THINKING_BEGINS.search(rest) else rest.strip()


def documents(text: str) -> list[ParsedReply]:
    """Return every JSON object or list of objects that stands alone in the text, with or without a code fence.

    The text from the first to the last brace may also be a Python dictionary. Raise `Repeated` if an object repeats a
    key.

    >>> [found.value for found in documents('So: {"winner": "A"}. Or [1]?')]
    [{'winner': 'A'}]
    """
    return list(_find_documents(text)) or _python_object(text)


def _find_documents(text: str) -> Iterator[ParsedReply]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique_keys, strict=False)
    position = 0
    while opening := OPENING.search(text, position):
        start, position = opening.start(), opening.end()
        if not BEGINS_JSON.match(text, start):
            continue
        try:
            value, end = decoder.raw_decode(text, start)
        except Repeated:
            raise
        except (ValueError, RecursionError):
            if (position := _closing_index(text, start)) < 0:  # what stands inside a torn document is only a part of it
                return
            continue
        if _is_document(value):
            yield ParsedReply(value, start, end)
            position = end


def _closing_index(text: str, start: int) -> int:
    """Return the index at which the brackets opened at `start` are closed; -1 if they are not closed."""
    depth = 0
    for bracket in BRACKET.finditer(text, start):
        depth += 1 if bracket[0] in "{[" else -1
        if depth == 0:
            return bracket.end()
    return -1


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise Repeated(f"a key occurs twice among {', '.join(key for key, _ in pairs)}")
    return dict(pairs)


def _is_document(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(isinstance(value, dict) for value in values)


def _python_object(text: str) -> list[ParsedReply]:
    """Parse the text from the first to the last brace as a Python literal. Empty if it is not an object."""
    start, end = text.find("{"), text.rfind("}") + 1
    if start < 0 or end <= start:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            written = ast.parse(text[start:end], mode="eval").body
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return []
    if not isinstance(written, ast.Dict) or not all(isinstance(key, str) for key in value):
        return []
    if len(value) < len(written.keys):
        raise Repeated(f"a key occurs twice among {', '.join(value)}")
    return [ParsedReply(value, start, end)]


def unwrap(text: str) -> str:
    """Return the text without enclosing fences or quotation marks. At most `LAYERS` layers are removed.

    >>> unwrap('```text\\nWinner: A\\n```'), unwrap('"A is better."')
    ('Winner: A', 'A is better.')
    """
    text = text.strip()
    for _ in range(LAYERS):
        wrapped = FENCE.fullmatch(text) or QUOTATION.fullmatch(text)
        if wrapped is None:
            break
        text = next(part for part in wrapped.groups() if part is not None).strip()
    return text


def own_words(text: str, quoted: Sequence[str] = ()) -> str:
    """Return the judge's own words: the text without fences, quotations of more than two words and copied passages.

    Block quotes and text in quoting tags are removed too. `quoted` are the texts in the judge's request; passages
    copied from them are removed.

    >>> own_words('It says "Winner: A, clearly".\\n> Winner: A\\nWinner: "B"')
    'It says  .\\n\\nWinner: "B"'
    """
    text = FENCE.sub(" ", unwrap(text))
    text = DELIMITED.sub(" ", text) if DELIMITER.search(text) else text
    if "</" in text:
        text = VERDICT_TAG.sub("\n", TAGGED_VALUE.sub(r"\n\1: \2\n", QUOTING_TAG.sub(" ", text)))
    text = RESULT.sub("\nResult: ", BLOCK_QUOTE.sub(" ", text))
    return without_copies(QUOTATION.sub(_keep_short_quotation, text), quoted)


def _keep_short_quotation(quotation: re.Match[str]) -> str:
    """Return a quotation of one or two words, which may be a label; reduce a longer one to its final punctuation."""
    if len(quotation[0].split()) < 3 and ":" not in quotation[0]:
        return quotation[0]
    return f" {quotation[0][-2]} " if quotation[0][-2] in ".!?" else " "


def without_copies(text: str, quoted: Sequence[str]) -> str:
    """Return the text without sentences copied from `quoted` and without quotations after a lead-in such as "B says:".

    A sentence that also occurs in `quoted` counts as copied, unless it ends the text and no lead-in precedes it:
    the judge's own verdict may coincide with a sentence of a response.
    """
    quoted_sentences = [
        {normalize_sentence(unit) for line in quotation.split("\n") for unit in sentences(line)} - {""}
        for quotation in quoted
    ]
    lines = [sentences(line) for line in text.split("\n")]
    flat = [unit for line in lines for unit in line if normalize_sentence(unit)]
    copied = set()
    for index, unit in enumerate(flat):
        before = flat[index - 1] if index else ""
        if LEADS_OVER.search(before):
            copied.add(index)
        for sentences_shown in quoted_sentences:
            inside = before.rstrip(" *_").endswith(":") or normalize_sentence(before) in sentences_shown
            if normalize_sentence(unit) in sentences_shown and (index < len(flat) - 1 or inside):
                copied.add(index)
    kept_indices = iter(range(len(flat)))
    return "\n".join(
        " ".join(u for u in line if not normalize_sentence(u) or next(kept_indices) not in copied) for line in lines
    )


def sentences(line: str) -> list[str]:
    """Split a line into sentences by punctuation."""
    return SENTENCE_END.split(line.strip())


def normalize_sentence(unit: str) -> str:
    """Normalize a sentence for comparison: remove punctuation and letter case.

    >>> normalize_sentence("- **Winner:**  A!")
    'winner a'
    """
    return " ".join(re.findall(r"\w+", unit.casefold()))


def strip_decoration(unit: str) -> str:
    """Return a sentence or line without Markdown, list marks and emoji.

    >>> strip_decoration("## **Winner**: `A`"), strip_decoration("3. Verdict: answer_a")
    ('Winner: A', 'Verdict: answer a')
    """
    unit = unit.replace("：", ":").replace("_", " ").strip()
    if row := TABLE_ROW.fullmatch(unit):
        unit = f"{row[1]}: {row[2]}"
    for _ in range(LAYERS):
        unit = DECORATION.sub("", unit).strip()
    return unit
