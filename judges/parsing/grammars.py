"""Grammars of verdicts and ratings: the words, marks and JSON fields that express them."""

import re
from functools import cache
from typing import NamedTuple

from ..types import Reason
from .phrases import CONCESSION, CONCLUSION, LEAD, LIMITED, NEGATED, RANKED_WORDS, REASONS, SETTING
from .statements import Grammar, Value
from .wordings import Rows, replace_patterns, translate_to_english, wordings_of

LABELS = ("A", "B")
TIE = "tie"
MARKED = re.compile(r"\[\[\s*([^\[\]\n]{1,20}?)\s*\]\]|\\boxed\{\s*(?:\\\w+\{)?\s*([^{}\n]{1,20}?)\s*\}+")

NOUN = r"(?:the\s+)?(?:response|answer|output|assistant|option|candidate|model|completion|reply|solution|choice|text)"
PRAISE = (
    r"(?:(?:clearly|much|slightly|overall|marginally|significantly|definitely|therefore|thus|far|simply|also"
    r"|a bit|somewhat|still|ultimately|generally|by far|considerably|notably|narrowly)\s+)*(?:the\s+|an?\s+)?"
    r"(?:clear\s+|overall\s+)?(?:better|best|winner|superior|preferred|preferable|stronger|winning)"
    r"(?:\s+(?:one|choice|response|answer|output|option|assistant|candidate|model|completion|solution|overall"
    r"|of the two|here))*"
)
BETTER = rf"(?:is|was)\s+{PRAISE}"
CUE = re.compile(
    rf"(?:{LEAD.pattern})?(?:(?:my|the|our)\s+)?(?:{RANKED_WORDS}\s+)?"
    r"(?:verdict|winner|judge?ment|decision|choice|preference|conclusion|pick|vote|selection|result|grade"
    rf"|answer(?=\s*(?:[:=]|[-=]*>|$))|(?<=my )answer|(?<=my final )answer|answer(?=\s+is\s+{NOUN})"
    r"|(?:better|best|preferred|stronger|superior|winning|chosen|selected)"
    r"(?:\s+(?:response|answer|output|assistant|option|candidate|model|completion|one|choice))?)"
    r"\s*(?:\(\s*(?:a|b)\s*[/|]\s*(?:a|b)[^()]*\)\s*)?(?:is\s*:?(?=\s|$)|[:=]|[-=]*>|→|[–—-]|$)\s*",
    re.IGNORECASE,
)
TIES = re.compile(
    r"(?:an?\s+)?(?:tie|draw)\b|tied\b|equal(?:ly good)?\b"
    r"|both(?:\s+(?:are|responses|answers|equal(?:ly)?|good|strong|helpful))*\b",
    re.IGNORECASE,
)
NONE = re.compile(
    r"neither\b|none\b|n/?a\b|unclear\b|undecided\b|unknown\b|undetermined\b|inconclusive\b|\?"
    r"|no (?:clear )?(?:winner|preference|verdict|decision)\b|(?:i )?can(?:not|'t) \w+",
    re.IGNORECASE,
)
TIE_SENTENCE = re.compile(
    r"(?:it(?:'s| is)|this is|the result is|i call (?:it|this))\s+a\s+(?:tie|draw)\s*[.!]?$"
    rf"|both(?:\s+{NOUN}s?)?\s+are\s+(?:tied|equal(?:ly (?:good|strong|helpful))?)\s*[.!]?$",
    re.IGNORECASE,
)
OPINION = re.compile(
    r"(?:(?:i|we)(?:['’](?:d|ve))?(?:\s+(?:would|can|must|have|therefore|still|personally|confidently))*\s+(?:think|believe"
    r"|find|found|judged?|concluded?|feel|say|argue|determined?|decided?|(?:come|came|reached?) (?:to )?the conclusion)"
    r"\s+(?:that\s+)?|(?:it\s+is|it's)\s+(?:clear|evident|obvious|apparent)\s+that\s+|it\s+(?:seems|appears)\s+that\s+"
    r"|my\s+(?:final\s+)?(?:verdict|conclusion|opinion|view|judge?ment|evaluation|assessment|decision)\s+is\s+that\s+)$",
    re.IGNORECASE,
)
PICK = r"i(?:\s+would|['’]d)?\s+(?:choose|pick|select|prefer|vote for|go with|favou?r|declare)"
CHOSEN = ("winner", "choice", "answer", "verdict", "decision", "judgment", "judgement", "preference", "result")
JSON_CHOICE = frozenset(
    {*CHOSEN, "preferred", "better", "best", "selected", "selection", "chosen", "pick", "vote"}
    | {f"{rank}_{name}" for rank in ("final", "overall") for name in CHOSEN}
    | {f"{which}_{name}" for which in ("better", "best", "preferred") for name in ("answer", "response", "output")}
)

CONDITION = re.compile(
    r"\b(?:if|unless|would|could|might|whether|when|not|never|neither|nor|or|assuming)\b|n't\b", re.IGNORECASE
)
SENTENCE_ENDS = re.compile(
    rf"\s*(?:[.!]?\s*$|(?:[,;:–—-]*\s*{REASONS}|[;:–—-]+\s*(?:it|its|this|they)\b)(?!.*\b(?:if|unless|otherwise)\b))",
    re.IGNORECASE | re.DOTALL,
)
FOR_THIS = re.compile(
    r"\s*(?:for|in|to)\s+(?:this|the)\s+(?:(?:given|above|specific|current|present)\s+)?"
    r"(?:instruction|task|question|prompt|request|case)\b",
    re.IGNORECASE,
)

LETTERED = re.compile(
    rf"(?:{LEAD.pattern})?(?:(?:my|the|our)\s+)?(?:(?:final|best)\s+)*(?:answer|option|grade)\b", re.IGNORECASE
)
NOUNED = re.compile(rf"\W*{NOUN}\b", re.IGNORECASE)


class Labelled(NamedTuple):
    """Patterns around the labels of two responses. The group `label` matches the label that a pattern names."""

    label: re.Pattern[str]
    """Label with optional words around it: `the Response "A"`."""
    order: re.Pattern[str]
    """Order of two labels: `A > B`."""
    praise: re.Pattern[str]
    """Praise after a label: ` is better than B`."""
    sentences: tuple[re.Pattern[str], ...]
    """Sentences that express a verdict. The groups `before` and `rest` are the text before and after it."""
    praised: re.Pattern[str]
    """Label and praise at any position: `B is better`."""
    comparison: re.Pattern[str]
    """Comparison after the praise: ` than B`."""
    wordings: Rows
    """Alternative wordings of these patterns."""


def _labelled(labels: tuple[str, str]) -> Labelled:
    either = "|".join(map(re.escape, labels))
    closed = rf"(?:['’]s\s+{NOUN}|(?![\w'’]\w)(?!\w)[)\]}}>\"'”’]*)"
    label = rf"(?:{NOUN}\s*[-#:]?\s*)?[(\[{{<\"'“‘]*(?P<label>{either}){closed}"
    other = label.replace("?P<label>", "?:")
    flags = re.IGNORECASE | re.DOTALL
    return Labelled(
        re.compile(label, re.IGNORECASE),
        re.compile(rf"({either})\s*(>>?|<<?|=)\s*({either})(?!\w)", re.IGNORECASE),
        re.compile(rf"\s+(?:{BETTER}|wins|is right)\b(?:\s+than\s+{other})?", re.IGNORECASE),
        (
            re.compile(rf"(?P<before>[^.;:!?]*?){label}\s+(?:{BETTER}|wins)\b(?P<rest>.*)$", flags),
            re.compile(rf"(?P<before>[^.;:!?]*?){PICK}\s+{label}(?P<rest>.*)$", flags),
        ),
        re.compile(rf"\b{label}\s+(?:{BETTER}|wins)\b", re.IGNORECASE),
        re.compile(rf"\s*(?:(?:than|over|to)\s+{other}|as the (?:better|winner|best)[\w ]*)", re.IGNORECASE),
        wordings_of(labels, label, PRAISE),
    )


@cache
def choice_between(labels: tuple[str, str]) -> Grammar:
    """Return the grammar of verdicts: one of two labels, or a tie."""
    patterns = _labelled(labels)
    canonical = {name.lower(): name for name in labels}

    def value(text: str) -> tuple[str | Reason, str] | None:
        if match_ := patterns.order.match(text):
            return _first_of(*(canonical.get(part.lower(), part) for part in match_.groups())), text[match_.end() :]
        if match_ := TIES.match(text):
            return TIE, text[match_.end() :]
        if NONE.match(text):
            return Reason.DECLINED, ""
        if match_ := patterns.label.match(text):
            praised = patterns.praise.match(text, match_.end())
            return canonical[match_["label"].lower()], text[(praised or match_).end() :]
        return None

    def sentence(unit: str) -> str | None:
        statement = next((match for sentence in patterns.sentences if (match := sentence.match(unit))), None)
        if statement is None or not _is_unlimited(statement["before"]):
            return None
        label = canonical[statement["label"].lower()]
        rest = FOR_THIS.sub("", patterns.comparison.sub("", statement["rest"], count=1), count=1)
        praised = {canonical[match_["label"].lower()] for match_ in patterns.praised.finditer(rest)}
        return label if SENTENCE_ENDS.match(rest) and praised <= {label} else None

    def tie(unit: str) -> str | None:
        return TIE if TIE_SENTENCE.search(LEAD.sub("", unit, count=1)) and not CONDITION.search(unit) else None

    def opposes(unit: str, choice: Value) -> bool:
        opening = CONCESSION.match(unit)
        subject = patterns.label.match(unit, opening.end()) if opening else None
        return subject is not None and canonical[subject["label"].lower()] != choice and not NEGATED.search(unit)

    def in_plain_words(text: str) -> str:
        return replace_patterns(translate_to_english(text), patterns.wordings)

    return Grammar(
        JSON_CHOICE, CUE, MARKED, value, _names_a_letter, sentence, tie, opposes, in_plain_words, {2: labels[1]}
    )


def _is_unlimited(before: str) -> bool:
    """Return whether the text before a verdict does not restrict it: a conclusion's first word, or `I think that`."""
    led = CONCLUSION.match(before)
    rest = OPINION.sub("", before[led.end() if led else 0 :])
    if not rest.strip() or (led and (based := LEAD.fullmatch(rest)) and "," in based[0]):
        return True
    return bool(SETTING.fullmatch(rest)) and not LIMITED.search(rest)


def _names_a_letter(cue: str, text: str) -> bool:
    """Return whether a cue with a letter may be a multiple-choice answer or a school grade: `Answer: B`, `Grade: B`."""
    return bool(LETTERED.match(cue)) and not NOUNED.match(text)


def _first_of(first: str, sign: str, second: str) -> str | Reason:
    """Return the better label in `A > B`."""
    return Reason.MALFORMED if first == second else {">": first, "<": second, "=": TIE}[sign[0]]


NUMBER = r"[-+−]?\d+(?:\.\d+)?"
SCORED = ("score", "rating", "points", "grade")
JSON_POINTS = frozenset(
    {*SCORED, "value", "overall"} | {f"{rank}_{n}" for rank in ("final", "overall") for n in SCORED}
)
POINTS_CUE = re.compile(
    rf"(?:{LEAD.pattern})?(?:(?:my|the|our)\s+)?(?:{RANKED_WORDS}\s+)?(?:score|rating|grade|points|mark|result"
    r"|(?:final|overall)(?=\s*[:=]))\s*(?:\([^()]*\)\s*)?(?:is\s*:?(?=\s|$)|[:=]|[-=]*>|→|[–—]|$)\s*",
    re.IGNORECASE,
)
RATED = re.compile(
    r"(?:i(?:\s+would|['’]d)?\s+(?:rate|give|score|assign|say)|(?:this|it|the\s+(?:response|answer|output))\s+"
    r"(?:deserves|earns|merits|gets|scores))\s+(?:(?:it|it['’]s|this|the|that|an?|solid|response|answer|output|score|rating"
    rf"|of|at|as)\s+)*(?P<number>{NUMBER}.*)$",
    re.IGNORECASE,
)

PERCENT = 100


def _names_a_number(cue: str, text: str) -> bool:
    """Return whether the number after a cue may be something other than a rating: `Result: 4`."""
    return re.search(r"\b(?:result|points|mark)\b|\bfinal\s*[:=]", cue, re.IGNORECASE) is not None


@cache
def points_between(low: float, high: float) -> Grammar:
    """Return the grammar of ratings: numbers in [low, high]."""
    percent = "%?" if high == PERCENT else ""
    number_pattern = re.compile(
        rf"[\"'(\[]*(?P<number>{NUMBER})[\"')\]]*(?:\s*(?:/|out of|of|von|sur|de)\s*(?P<of>{NUMBER}))?"
        rf"(?:\s*(?:points?|stars?|分|点))?{percent}(?![\w%])[\"')\]]*"
    )

    def value(text: str) -> tuple[float | Reason, str] | None:
        text = text.replace("½", ".5")
        if NONE.match(text):
            return Reason.DECLINED, ""
        match_ = number_pattern.match(text)
        if match_ is None:
            return None
        number, rest = float(match_["number"].replace("−", "-")), text[match_.end() :]
        if re.match(r"\s*(?:[-–—~/]|to|or|and)\s*\d|[.,]\d", rest):
            return Reason.MALFORMED, ""
        if match_["of"] and float(match_["of"]) != high:
            return Reason.MALFORMED, ""
        return (number, rest) if low <= number <= high else (Reason.OUT_OF_RANGE, "")

    def sentence(unit: str) -> float | None:
        match_ = RATED.match(LEAD.sub("", unit, count=1))
        inner = value(match_["number"]) if match_ else None
        if inner is None or isinstance(inner[0], Reason) or not SENTENCE_ENDS.match(inner[1]):
            return None
        return inner[0]

    return Grammar(
        JSON_POINTS, POINTS_CUE, MARKED, value, _names_a_number, sentence, lambda unit: None,
        lambda unit, points: False, translate_to_english, {},
    )  # fmt: skip
