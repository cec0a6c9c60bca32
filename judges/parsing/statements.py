"""Extraction of the single verdict or rating that a reply states, or of the reason why there is none.

Only the judge's own words are read: reasoning in tags, quotations and text copied from the request are removed first.

1. An explicit statement is a JSON field, a mark such as `[[A]]`, or a line such as `Final verdict: Response A`.
2. A verdict sentence is `Response A is better`, `I prefer Response A`, or (for numbers) `I would rate it 7`. It may
   begin with a concluding word (`Therefore,`), a setting (`After reading both,`, `While both are short,`) or an opinion
   (`I think that`). It may end with the other response (`than Response B`) or a reason (`because`). A sentence with a
   condition (`If brevity matters,`), a limit (`in terms of style`, `at grammar`), a negation or a question mark is not
   a verdict sentence.
3. Without an explicit statement, the verdict sentences decide if one of them opens the reply, closes it or has a
   concluding word. A sentence with a concluding word does not decide if a passage on a further criterion
   (`Clarity: ...`) follows. All verdict sentences must name the same value.
4. A reply has no verdict if it withdraws the verdict (`Actually, ...`), calls it a tie afterwards, declines to decide,
   or supports the other response in a sentence that begins with `However` or `But`.
5. `Both are equally good.` is a tie if it closes the reply or has a concluding word.
6. Different statements are a contradiction, unless the later line says that it is final or revised.

Common wordings of these forms in English, German, French, Spanish, Chinese and Japanese are first rewritten in the form
that the patterns match (`wordings`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..types import Reason
from . import phrases
from .replies import ParsedReply, Repeated, documents, own_words, sentences, strip_decoration, without_thinking

Value = str | float


class NoVerdict(NamedTuple):
    """Reason why a reply has no usable verdict or rating."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


class Stated(NamedTuple):
    """The value that a reply states, and its reasoning."""

    value: Value
    reasoning: str
    form: str
    """Format of the statement: `json` or `text`."""


class Grammar(NamedTuple):
    """Grammar of one type of value, such as verdicts or ratings."""

    keys: frozenset[str]
    """JSON fields that contain the value, in lower case with underscores."""
    cue: re.Pattern[str]
    """Text before the value on a line, including the colon."""
    mark: re.Pattern[str]
    """A mark that states the value by itself, such as `[[A]]`. Its only non-empty group is the value."""
    value: Callable[[str], tuple[Value | Reason, str] | None]
    """Function that parses the value at the beginning of a text, and returns it with the rest of the text."""
    ambiguous: Callable[[str, str], bool]
    """Function that returns whether cue and value may mean something else, such as a multiple-choice `Answer: B`."""
    sentence: Callable[[str], Value | None]
    """Function that returns the value in a verdict sentence; None for other sentences."""
    tie: Callable[[str], Value | None]
    """Function that returns the value of a sentence that states a tie; None for other sentences."""
    opposes: Callable[[str, Value], bool]
    """Function that returns whether a sentence that begins with a contrast supports a different value."""
    in_plain_words: Callable[[str], str]
    """Function that rewrites other wordings and languages in the form that the patterns match."""
    positions: Mapping[int, Value]
    """Values of JSON numbers that are positions. 1 is not included, since positions may count from 0."""


FINAL = 2


class ReplyLine(NamedTuple):
    """An explicit statement on one line."""

    number: int
    """Index of the line."""
    value: Value | Reason
    rank: int
    """Precedence of the statement: 0 if it calls itself preliminary, `FINAL` if it calls itself final, else 1."""
    rest: str
    """Rest of the line after the statement."""
    ambiguous: bool = False


def read(text: str, grammar: Grammar, quoted: Sequence[str] = (), finish: str = "stop") -> Stated | NoVerdict:
    """Return the value that a reply states, or the reason why there is none. `quoted` are the texts of the request."""
    reply = parse_reply(text, quoted, finish)
    if isinstance(reply, NoVerdict):
        return reply
    visible, own_documents = reply
    held = [(document, _holder(document.value, grammar.keys)) for document in own_documents]
    held = [(document, holder) for document, holder in held if holder is not None]
    if held:
        if is_withdrawn(visible[held[-1][0].end :], quoted):
            return NoVerdict(Reason.CONTRADICTION, "it is taken back")
        for own_document in reversed(own_documents):
            visible = visible[: own_document.start] + " " + visible[own_document.end :]
        return _from_json([holder for _, holder in held], visible, grammar, quoted)
    return _from_text(visible, grammar, quoted)


def parse_reply(text: str, quoted: Sequence[str], finish: str) -> tuple[str, list[ParsedReply]] | NoVerdict:
    """Return a reply without its reasoning, and the judge's JSON documents in it, or the reason for an abstention."""
    if finish == "length":
        return NoVerdict(Reason.CUT_OFF)
    if not text.strip():
        return NoVerdict(Reason.NO_REPLY, "an empty text")
    visible = without_thinking(text)
    if not visible:
        return NoVerdict(Reason.CUT_OFF, "it ends in its thoughts")
    try:
        return visible, [document for document in documents(visible) if is_own(visible, document, quoted)]
    except Repeated as error:
        return NoVerdict(Reason.CONTRADICTION, str(error))


LEADING = 400  # characters before a document that may say what it is; of more, many documents would take too long


def is_own(text: str, candidate: ParsedReply, quoted: Sequence[str]) -> bool:
    """Return whether a JSON document is the judge's own.

    True if it makes up nearly the whole reply, or if it does not occur in `quoted` and no words such as "for example"
    precede it.
    """
    document = text[candidate.start : candidate.end]
    line = text.rfind("\n", 0, candidate.start) + 1
    before = text[max(line, candidate.start - LEADING) : candidate.start]
    is_most = len(document) > 0.9 * len(text)
    return is_most or not (
        any(document in quotation for quotation in quoted)
        or phrases.HYPOTHESIS.search(before)
        or phrases.DENIAL.search(before)
    )


ALSO_SOLVED = frozenset({"answer", "final_answer", "result", "final_result"})
"""JSON fields that may contain the solution of the task. A number in such a field is not a position."""


def _field_name(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _holder(value: Any, keys: frozenset[str], depth: int = 0) -> Mapping[str, Any] | None:
    """Return the object with one of the keys: this object, or the only nested one."""
    if not isinstance(value, dict) or depth > 2:
        return None
    fields = {_field_name(name): part for name, part in value.items()}
    if any(name in keys and not isinstance(part, dict | list) for name, part in fields.items()):
        return value
    inner = [
        part
        for name, part in fields.items()
        if isinstance(part, dict) and (name in phrases.WRAPPERS or len(fields) == 1)
    ]
    return _holder(inner[0], keys, depth + 1) if len(inner) == 1 else None


def _from_json(
    holders: Sequence[Mapping[str, Any]], rest: str, grammar: Grammar, quoted: Sequence[str]
) -> Stated | NoVerdict:
    """Return the value in the JSON documents, unless other parts of them or of the reply contradict it."""
    fields = [(_field_name(name), part) for holder in holders for name, part in holder.items()]
    values: list[Any] = [
        grammar.positions.get(part, part) if name not in ALSO_SOLVED else part
        for name, part in fields
        if name in grammar.keys and not isinstance(part, dict | list)
    ]
    prose = [  # a sentence rather than a value: `verdict` may be either beside a `winner`
        part
        for part in values
        if isinstance(part, str) and len(part.split()) > 3 and _field(part, grammar) == Reason.MALFORMED
    ]
    prose = prose if len(prose) < len(values) else []
    reasoning = [str(part) for name, part in fields if name in phrases.REASONING_KEYS and part] + prose
    values = [part for part in values if part not in prose]
    read_values = [_field(value, grammar) for value in values]
    for document, value in zip(read_values, values, strict=True):
        if isinstance(document, Reason):
            return NoVerdict(document, f"{value!r}")
    beside = [_from_text(part, grammar, quoted) for part in (rest, *reasoning) if part.strip()]
    stated = {*read_values, *(statement.value for statement in beside if isinstance(statement, Stated))}
    contradictory = any(
        isinstance(statement, NoVerdict) and statement.reason == Reason.CONTRADICTION for statement in beside
    )
    if len(stated) > 1 or contradictory:
        return NoVerdict(Reason.CONTRADICTION, " and ".join(sorted(map(str, stated))))
    return Stated(read_values[0], "\n".join([*reasoning, *([rest.strip()] if rest.strip(" \n`") else [])]), "json")


def _field(value: Any, grammar: Grammar) -> Value | Reason:
    """Return the value of a JSON field. The field must contain nothing else."""
    if value is None:
        return Reason.DECLINED
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return Reason.MALFORMED
    value_ = grammar.value(strip_decoration(grammar.in_plain_words(str(value))))
    if value_ is None:
        return Reason.MALFORMED
    return value_[0] if isinstance(value_[0], Reason) or not value_[1].strip(" .!") else Reason.MALFORMED


def _from_text(text: str, grammar: Grammar, quoted: Sequence[str]) -> Stated | NoVerdict:
    text_own = own_words(text, quoted)
    conclusion = _conclusion(text_own, grammar)
    if not isinstance(conclusion, NoVerdict):
        return Stated(conclusion, text, "text")
    if conclusion.reason != Reason.NO_VERDICT:
        return conclusion
    if re.search(rf"[\"'](?:{'|'.join(grammar.keys)})[\"']\s*:", text, re.IGNORECASE):
        return NoVerdict(Reason.MALFORMED, "JSON that cannot be read")
    if not isinstance(_conclusion(re.sub(r"^[>\s]+", "", text, flags=re.MULTILINE), grammar), NoVerdict):
        return NoVerdict(Reason.ONLY_QUOTED)
    return NoVerdict(Reason.DECLINED) if phrases.DECLINES.search(text_own) else conclusion


def _conclusion(text: str, grammar: Grammar) -> Value | NoVerdict:
    """Return the value that a text states, or the reason why there is none."""
    lines = [strip_decoration(line) for line in grammar.in_plain_words(text).split("\n")]
    lines = [line for line in lines if re.search(r"\w", line)]
    if len(lines) == 1 and not text.lstrip().startswith("#"):  # a heading alone is what is left of a torn reply
        first_value = grammar.value(lines[0])
        if first_value is not None and not first_value[1].strip(" .!"):
            return NoVerdict(first_value[0]) if isinstance(first_value[0], Reason) else first_value[0]
    explicit = _unambiguous(list(_explicit(lines, grammar)), len(lines) - 1)
    if not explicit:
        concluded = _verdict_sentence_value(lines, grammar)
        return NoVerdict(Reason.NO_VERDICT) if concluded is None else concluded
    last = explicit[-1]
    if any(not _overrides(last, line, lines) for line in explicit if line.value != last.value):
        return NoVerdict(Reason.CONTRADICTION, " and ".join(sorted({str(line.value) for line in explicit})))
    if phrases.RETRACTION.search(last.rest) or _taken_back(lines[last.number + 1 :]):
        return NoVerdict(Reason.CONTRADICTION, "it is taken back")
    if isinstance(last.value, Reason):
        return NoVerdict(last.value)
    parts = [[last.rest], lines[last.number + 1 :], *([lines[: last.number]] if last.rank < FINAL else [])]
    for concluded in (_verdict_sentence_value(part, grammar) for part in parts):
        if concluded is not None and concluded != last.value:
            return NoVerdict(Reason.CONTRADICTION, f"{last.value} and {concluded}")
    return last.value


def is_withdrawn(after: str, quoted: Sequence[str]) -> bool:
    """Return whether the judge's own words after a statement withdraw it."""
    return _taken_back([strip_decoration(line) for line in own_words(after, quoted).split("\n")])


def _taken_back(lines: Sequence[str]) -> bool:
    """Return whether one of the lines after a verdict withdraws it."""
    return any(map(phrases.TAKEN_BACK.match, lines))


def _unambiguous(candidates: Sequence[ReplyLine], end: int) -> list[ReplyLine]:
    """Return the unambiguous statements. Without any, return the ambiguous ones if the first or last line has one."""
    clear = [line for line in candidates if not line.ambiguous]
    return clear or (list(candidates) if any(line.number in (0, end) for line in candidates) else [])


def _overrides(last: ReplyLine, earlier: ReplyLine, lines: Sequence[str]) -> bool:
    """Return whether a later statement replaces an earlier one: only if it declares itself final or revised."""
    if last.number == earlier.number:
        return False
    between = " ".join(lines[earlier.number + 1 : last.number + 1])
    return last.rank > earlier.rank or bool(phrases.REVISION.search(between))


def _explicit(lines: Sequence[str], grammar: Grammar) -> Iterator[ReplyLine]:
    """Yield the explicit statements in order."""
    for index, line in enumerate(lines):
        yield from _marked_lines(index, line, grammar)
        following = lines[index + 1] if index + 1 < len(lines) else ""
        yield from _cued_lines(index, line, following, grammar)


def _marked_lines(line_index: int, line: str, grammar: Grammar) -> Iterator[ReplyLine]:
    """Yield the statements on a line that are made by marks such as `[[A]]`."""
    matches = [
        (match_, value) for match_ in grammar.mark.finditer(line) if (value := _mark_value(match_, grammar)) is not None
    ]
    several = len({value for _, value in matches}) > 1
    for mark, value in matches:
        before, rest = line[: mark.start()], line[mark.end() :]
        if several or (phrases.ENDS.match(rest) and not _is_doubted(before)):
            yield ReplyLine(line_index, value, _rank(before), rest, mark[0].startswith("\\boxed"))


def _is_doubted(before: str) -> bool:
    """Return whether the text before a mark makes it a hypothesis, a command or a quotation."""
    sentence = sentences(before)[-1]
    return any(pattern.search(sentence) for pattern in (phrases.HYPOTHESIS, phrases.COMMAND, phrases.DENIAL))


def _mark_value(mark: re.Match[str], grammar: Grammar) -> Value | Reason | None:
    value = grammar.value(next(part for part in mark.groups() if part is not None))
    return None if value is None or value[1].strip(" .") else value[0]


def _cued_lines(line_index: int, line: str, following: str, grammar: Grammar) -> Iterator[ReplyLine]:
    """Yield the statements on a line that follow a cue such as `Winner:`. The value may be on the line `following`."""
    units = sentences(line)
    for number, unit in enumerate(units):
        cue = grammar.cue.match(unit)
        if cue is None:
            continue
        here = " ".join([unit[cue.end() :], *units[number + 1 :]]).strip()
        if again := grammar.cue.match(here):  # "Final judgment: Winner: A"
            here = here[again.end() :]
        value = grammar.value(here or following)
        if value is None:
            continue
        rest = value[1] if here else ("" if not value[1].strip(" .!") else "?")
        if phrases.ENDS.match(rest):
            yield ReplyLine(line_index, value[0], _rank(cue[0]), rest, grammar.ambiguous(cue[0], here or following))


def _rank(words: str) -> int:
    """Return the precedence of a statement (see `ReplyLine`) from the words before it."""
    match_ = re.search(phrases.RANKED_WORDS, words, re.IGNORECASE)
    if match_ is None:
        return 1
    return 0 if match_["rank"].lower() in phrases.PRELIMINARY else FINAL


class Sentence(NamedTuple):
    """A sentence of the reply without Markdown."""

    line: int
    text: str
    announced: bool
    """Whether the sentence before it ends in a colon and introduces an example, a command or a quotation."""


def _verdict_sentence_value(lines: Sequence[str], grammar: Grammar) -> Value | NoVerdict | None:
    """Return the value on which all verdict sentences agree. None if no sentence is decisive."""
    texts = [(index, strip_decoration(unit)) for index, line in enumerate(lines) for unit in sentences(line)]
    before = ["", *(text for _, text in texts)]
    units = [
        Sentence(index, text, last.endswith(":") and _is_doubted(last))
        for (index, text), last in zip(texts, before, strict=False)
    ]
    end = len(units) - 1
    stated = {
        index: value
        for index, unit in enumerate(units)
        if not unit.announced and (value := grammar.sentence(unit.text)) is not None
    }
    last = max(stated, default=-1)
    closing = [unit.text for unit in units[last + 1 : end] if phrases.CONCLUSION.match(unit.text)]
    closing += [units[end].text] if end > last else []
    ties = [value for text in closing if (value := grammar.tie(text))]
    if not stated:
        return ties[-1] if ties else None
    if ties or len(set(stated.values())) > 1:
        return NoVerdict(Reason.CONTRADICTION, " and ".join(sorted({*map(str, stated.values()), *map(str, ties)})))
    if not any(_decides(index, units, lines) for index in stated):
        return None
    if any(_unsettles(unit.text, stated[last], grammar) for unit in units[last + 1 :]):
        return NoVerdict(Reason.CONTRADICTION, "it is taken back")
    return stated[last]


def _decides(index: int, units: Sequence[Sentence], lines: Sequence[str]) -> bool:
    """Return whether a verdict sentence opens or closes the reply, or is a conclusion without a later criterion."""
    if index in (0, len(units) - 1):
        return True
    led = phrases.CONCLUSION.match(units[index].text) is not None
    return led and not any(map(phrases.TOPIC.match, lines[units[index].line + 1 :]))


def _unsettles(unit: str, value: Value, grammar: Grammar) -> bool:
    """Return whether a sentence after a verdict withdraws it, declines to decide, or supports a different value."""
    declines = phrases.DECLINES.search(unit)
    is_own_refusal = declines is not None and phrases.SPEAKER.search(unit[: declines.start()]) is not None
    return bool(
        is_own_refusal
        or phrases.TAKEN_BACK.match(unit)
        or phrases.UNDECIDED.search(unit)
        or grammar.opposes(unit, value)
    )
