"""Finds the one thing that a reply states, be it a winner or a number: strict about what counts as stating it.

A statement is explicit if it is a JSON field, a mark such as `[[A]]`, or a line such as `Final verdict: Response A`; a
closing sentence such as `Therefore, Response A is better.` counts where there is nothing explicit. Nothing else counts.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .phrases import (
    COMMAND,
    CONTRAST,
    DECLINES,
    DENIAL,
    ENDS,
    HYPOTHESIS,
    LEAD,
    PRELIMINARY,
    RANKED_WORDS,
    REASONING_KEYS,
    RETRACTION,
    REVISION,
    TAKEN_BACK,
    WRAPPERS,
)
from .replies import Found, Repeated, documents, own_words, sentences, undecorated, without_thinking
from .types import Reason

Value = str | float


class NoVerdict(NamedTuple):
    """Why a reply gives nothing to count."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


class Stated(NamedTuple):
    """What a reply states, and the reasoning that it gives for it."""

    value: Value
    reasoning: str
    form: str
    """`json` or `text`."""


class Grammar(NamedTuple):
    """How one kind of value is stated."""

    keys: frozenset[str]
    """JSON fields that state it, in small letters with underscores."""
    cue: re.Pattern[str]
    """What stands before it on a line, up to and with the colon."""
    mark: re.Pattern[str]
    """A mark that states it by itself; its only non-empty group is the value."""
    value: Callable[[str], tuple[Value | Reason, str] | None]
    """The value at the beginning of a text, and the rest of the text."""
    ambiguous: Callable[[str, str], bool]
    """Whether a cue and what follows it may speak of something else, such as a multiple-choice `Answer: B`."""
    closing: Callable[[str], Value | None]
    """The value that a closing sentence states."""


class Line(NamedTuple):
    """An explicit statement in a line."""

    place: int
    value: Value | Reason
    rank: int
    """0 where it calls itself preliminary, 2 final, else 1."""
    rest: str
    """What follows it on the line."""
    ambiguous: bool = False


def read(text: str, grammar: Grammar, quoted: Sequence[str] = (), finish: str = "stop") -> Stated | NoVerdict:
    """What the reply states, or why it states nothing; `quoted` are the texts that its writer was shown."""
    if finish == "length":
        return NoVerdict(Reason.CUT_OFF)
    if not text.strip():
        return NoVerdict(Reason.NO_REPLY, "an empty text")
    said = without_thinking(text)
    if not said:
        return NoVerdict(Reason.CUT_OFF, "it ends in its thoughts")
    try:
        found = [one for one in documents(said) if is_own(said, one, quoted)]
    except Repeated as error:
        return NoVerdict(Reason.CONTRADICTION, str(error))
    holders = [part for one in found if (part := _holder(one.value, grammar.keys)) is not None]
    if holders:
        for one in reversed(found):
            said = said[: one.start] + " " + said[one.end :]
        return _from_json(holders, said, grammar, quoted)
    return _from_text(said, grammar, quoted)


LEADING = 400  # characters before a document that may say what it is; of more, many documents would take too long


def is_own(said: str, found: Found, quoted: Sequence[str]) -> bool:
    """Whether a document is the judge's: the whole reply is; not one that an answer has too, nor an example."""
    document = said[found.start : found.end]
    line = said.rfind("\n", 0, found.start) + 1
    before = said[max(line, found.start - LEADING) : found.start]
    whole = len(document) > 0.9 * len(said)
    return whole or not (any(document in one for one in quoted) or HYPOTHESIS.search(before) or DENIAL.search(before))


# ---- JSON ----


def _key(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _holder(value: Any, keys: frozenset[str], depth: int = 0) -> Mapping[str, Any] | None:
    """The object with one of the keys: this one, or the only one inside it."""
    if not isinstance(value, dict) or depth > 2:
        return None
    fields = {_key(name): part for name, part in value.items()}
    if any(name in keys and not isinstance(part, dict | list) for name, part in fields.items()):
        return value
    inner = [part for name, part in fields.items() if isinstance(part, dict) and (name in WRAPPERS or len(fields) == 1)]
    return _holder(inner[0], keys, depth + 1) if len(inner) == 1 else None


def _from_json(
    holders: Sequence[Mapping[str, Any]], rest: str, grammar: Grammar, quoted: Sequence[str]
) -> Stated | NoVerdict:
    """What the objects state, if nothing in them or beside them says otherwise."""
    fields = [(_key(name), part) for holder in holders for name, part in holder.items()]
    values = [part for name, part in fields if name in grammar.keys and not isinstance(part, dict | list)]
    prose = [part for part in values if _is_prose(part, grammar)]
    prose = prose if len(prose) < len(values) else []
    reasoning = [str(part) for name, part in fields if name in REASONING_KEYS and part] + prose
    values = [part for part in values if part not in prose]
    read_values = [_field(value, grammar) for value in values]
    for found, value in zip(read_values, values, strict=True):
        if isinstance(found, Reason):
            return NoVerdict(found, f"{value!r}")
    beside = [_from_text(part, grammar, quoted) for part in (rest, *reasoning) if part.strip()]
    stated = {*read_values, *(one.value for one in beside if isinstance(one, Stated))}
    contradictory = any(isinstance(one, NoVerdict) and one.reason == Reason.CONTRADICTION for one in beside)
    if len(stated) > 1 or contradictory:
        return NoVerdict(Reason.CONTRADICTION, " and ".join(sorted(map(str, stated))))
    return Stated(read_values[0], "\n".join([*reasoning, *([rest.strip()] if rest.strip(" \n`") else [])]), "json")


def _is_prose(value: Any, grammar: Grammar) -> bool:
    """Whether a field is a sentence rather than a value: `verdict` may be either beside a `winner`."""
    return isinstance(value, str) and len(value.split()) > 3 and _field(value, grammar) == Reason.MALFORMED


def _field(value: Any, grammar: Grammar) -> Value | Reason:
    """A JSON field's value: the whole of it has to be one."""
    if value is None:
        return Reason.DECLINED
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return Reason.MALFORMED
    found = grammar.value(undecorated(str(value)))
    if found is None:
        return Reason.MALFORMED
    return found[0] if isinstance(found[0], Reason) or not found[1].strip(" .!") else Reason.MALFORMED


# ---- text ----


def _from_text(said: str, grammar: Grammar, quoted: Sequence[str]) -> Stated | NoVerdict:
    own = own_words(said, quoted)
    found = _conclusion(own, grammar)
    if not isinstance(found, NoVerdict):
        return Stated(found, said, "text")
    if found.reason != Reason.NO_VERDICT:
        return found
    if re.search(rf"[\"'](?:{'|'.join(grammar.keys)})[\"']\s*:", said, re.IGNORECASE):
        return NoVerdict(Reason.MALFORMED, "JSON that cannot be read")
    if not isinstance(_conclusion(re.sub(r"^[>\s]+", "", said, flags=re.MULTILINE), grammar), NoVerdict):
        return NoVerdict(Reason.ONLY_QUOTED)
    return NoVerdict(Reason.DECLINED) if DECLINES.search(own) else found


def _conclusion(text: str, grammar: Grammar) -> Value | NoVerdict:
    lines = [undecorated(line) for line in text.split("\n")]
    lines = [line for line in lines if re.search(r"\w", line)]
    if len(lines) == 1 and not text.lstrip().startswith("#"):  # a heading alone is what is left of a torn reply
        whole = grammar.value(lines[0])
        if whole is not None and not whole[1].strip(" .!"):
            return NoVerdict(whole[0]) if isinstance(whole[0], Reason) else whole[0]
    explicit = _unambiguous(list(_explicit(lines, grammar)), len(lines) - 1)
    if not explicit:
        closing = _closing(lines, grammar)
        return NoVerdict(Reason.NO_VERDICT) if closing is None else closing
    last = explicit[-1]
    if any(not _overrides(last, one, lines) for one in explicit if one.value != last.value):
        return NoVerdict(Reason.CONTRADICTION, " and ".join(sorted({str(one.value) for one in explicit})))
    if RETRACTION.search(last.rest) or any(map(TAKEN_BACK.match, lines[last.place + 1 :])):
        return NoVerdict(Reason.CONTRADICTION, "it is taken back")
    if isinstance(last.value, Reason):
        return NoVerdict(last.value)
    for after in (_closing([last.rest], grammar), _closing(lines[last.place + 1 :], grammar)):
        if after is not None and after != last.value:
            return NoVerdict(Reason.CONTRADICTION, f"{last.value} and {after}")
    return last.value


def _unambiguous(found: Sequence[Line], end: int) -> list[Line]:
    """The clear statements; where there is none, an ambiguous one in the first or last line."""
    clear = [one for one in found if not one.ambiguous]
    return clear or [one for one in found if one.place in (0, end)]


def _overrides(last: Line, earlier: Line, lines: Sequence[str]) -> bool:
    """A later statement stands against another one only if it says that it is the final or a revised one."""
    if last.place == earlier.place:
        return False
    between = " ".join(lines[earlier.place + 1 : last.place + 1])
    return last.rank > earlier.rank or bool(REVISION.search(between))


def _explicit(lines: Sequence[str], grammar: Grammar) -> Iterator[Line]:
    """Explicit statements in order."""
    for place, line in enumerate(lines):
        yield from _marked(place, line, grammar)
        following = lines[place + 1] if place + 1 < len(lines) else ""
        yield from _cued(place, line, following, grammar)


def _marked(place: int, line: str, grammar: Grammar) -> Iterator[Line]:
    found = [(one, value) for one in grammar.mark.finditer(line) if (value := _mark_value(one, grammar)) is not None]
    several = len({value for _, value in found}) > 1
    for mark, value in found:
        before, rest = line[: mark.start()], line[mark.end() :]
        if several or (ENDS.match(rest) and not _doubted(before)):
            yield Line(place, value, _rank(before), rest, mark[0].startswith("\\boxed"))


def _doubted(before: str) -> bool:
    """Whether what stands before a mark makes it a supposition, a command or somebody else's word."""
    sentence = sentences(before)[-1]
    return any(one.search(sentence) for one in (HYPOTHESIS, COMMAND, DENIAL))


def _mark_value(mark: re.Match[str], grammar: Grammar) -> Value | Reason | None:
    value = grammar.value(next(part for part in mark.groups() if part is not None))
    return None if value is None or value[1].strip(" .") else value[0]


def _cued(place: int, line: str, following: str, grammar: Grammar) -> Iterator[Line]:
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
        if ENDS.match(rest):
            yield Line(place, value[0], _rank(cue[0]), rest, grammar.ambiguous(cue[0], here or following))


def _rank(words: str) -> int:
    found = re.search(RANKED_WORDS, words, re.IGNORECASE)
    if found is None:
        return 1
    return 0 if found["rank"].lower() in PRELIMINARY else 2


def _closing(lines: Sequence[str], grammar: Grammar) -> Value | None:
    """What the last line states in a sentence that nothing takes back."""
    if not lines:
        return None
    units = [undecorated(unit) for unit in sentences(lines[-1])]
    for place in range(len(units) - 1, -1, -1):
        value = grammar.closing(units[place])
        if value is not None:
            after = " ".join(units[place + 1 :])
            led = place == len(units) - 1 or LEAD.match(units[place]) is not None
            return None if not led or CONTRAST.search(after) or DECLINES.search(after) else value
    return None
