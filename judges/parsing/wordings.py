"""Wordings that state the same: other languages, ordinals and negations, rewritten as what the grammars read.

Each row of a table is a pattern and its English. What a row does not cover stays as it is, so that an unknown word
beside a verdict (a negation, a condition) leaves no sentence that a grammar reads.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

Rows = Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]

X = r"(?<![A-Za-z0-9])(?:Response )?(?P<x>[AB])(?![A-Za-z0-9]) ?"
Y = r"(?:Response )?(?P<y>[AB])(?![A-Za-z0-9]) ?"


class Language(NamedTuple):
    """Words of a language. No field up to `score` may match an English word, for these tell which language it is."""

    response: str
    first: str
    """The response shown first, by its position."""
    second: str
    better: str
    clause: str
    """X is better, or is better than Y, labelled responses."""
    tie: str
    verdict: str
    """What stands before a colon and a winner."""
    score: str
    """What stands before a colon and a number of points."""
    therefore: str
    because: str
    however: str
    condition: str
    actually: str
    """What takes back what was said."""
    unsure: str


GERMAN_FINAL = r"(?:\b(?:endgültige|abschließende|finale)[rs]? )?"
LANGUAGES = (
    Language(
        response=r"\b(?:die )?Antwort",
        first=r"\b(?:die )?erste Antwort",
        second=r"\b(?:die )?zweite Antwort",
        better=r"\b(?:besser|überlegen)\b",
        clause=r"{X} ist (?:(?:klar|deutlich|insgesamt|etwas) )?{better}(?: als {Y})?",
        tie=r"\b(?:Unentschieden\b|Gleichstand\b|Beide(?: Antworten)? sind gleich gut\b)",
        verdict=rf"{GERMAN_FINAL}\b(?:Gewinner|Sieger|Urteil|Entscheidung|Bessere Antwort)",
        score=rf"{GERMAN_FINAL}\b(?:Gesamt)?(?:bewertung|punktzahl)",
        therefore=r"\b(?:deshalb|daher|insgesamt|somit)\b",
        because=r"\b(?:weil|denn|da sie)\b",
        however=r"\b(?:aber|jedoch|allerdings)\b",
        condition=r"\b(?:wenn|falls|sofern)\b",
        actually=r"\b(?:halt|moment|eigentlich|korrektur)\b",
        unsure=r"\b(?:nicht sicher|unsicher)\b",
    ),
    Language(
        response=r"\b(?:la )?réponse",
        first=r"\b(?:la )?première réponse",
        second=r"\b(?:la )?(?:seconde|deuxième) réponse",
        better=r"\b(?:meilleure|supérieure)\b",
        clause=r"{X} est (?:(?:nettement|clairement|légèrement|la) )?{better}(?: que {Y})?",
        tie=r"\b(?:Égalité\b|Les deux(?: réponses)? se valent\b|Match nul\b)",
        verdict=r"\b(?:Gagnante?|Meilleure réponse) ?",
        score=r"\b(?:Note (?:finale|globale)|Évaluation) ?",
        therefore=r"\b(?:donc|ainsi|globalement|en conclusion)\b",
        because=r"\b(?:car|parce que)\b",
        however=r"\b(?:mais|cependant|toutefois)\b",
        condition=r"\bsi\b",
        actually=r"\b(?:en fait|attendez|correction)\b",
        unsure=r"\bpas sûre?\b",
    ),
    Language(
        response=r"\b(?:la )?respuesta",
        first=r"\b(?:la )?primera respuesta",
        second=r"\b(?:la )?segunda respuesta",
        better=r"\bmejor\b",
        clause=r"{X} es (?:(?:claramente|ligeramente|la) )?{better}(?: que {Y})?",
        tie=r"\b(?:Empate\b|Ambas(?: respuestas)? son igual de buenas\b)",
        verdict=r"\b(?:Ganadora?|Veredicto|Mejor respuesta)(?: final)?",
        score=r"\b(?:Puntuación|Calificación)(?: final)?",
        therefore=r"\b(?:por lo tanto|en general|en conclusión)\b",
        because=r"\bporque\b",
        however=r"\b(?:pero|sin embargo)\b",
        condition=r"\bsi\b",
        actually=r"\b(?:en realidad|espera|corrección)\b",
        unsure=r"\bno estoy segur[oa]\b",
    ),
    Language(
        response=r"(?:回答|答案|回复)",
        first=r"第一个(?:回答|答案|回复)",
        second=r"第二个(?:回答|答案|回复)",
        better=r"(?:更好|更优|更佳|胜出)",
        clause=r"{X}(?:比{Y})?(?:明显|总体上)?{better}",
        tie=r"(?:平局|不分上下|两个回答一样好)",
        verdict=r"(?:胜者|获胜者|最终判断|裁决|更好的回答)",
        score=r"(?:最终)?(?:评分|得分|分数)",
        therefore=r"(?:因此|所以|综上所述|总的来说)",
        because=r"因为",
        however=r"(?:但是?|然而|不过)",
        condition=r"(?:如果|假如)",
        actually=r"(?:等等|不对|其实|更正)",
        unsure=r"(?:不确定|难以判断|不好说)",
    ),
    Language(
        response=r"(?:回答|応答)",
        first=r"(?:最初|1つ目|一つ目)の(?:回答|応答)",
        second=r"(?:2つ目|二つ目|2番目)の(?:回答|応答)",
        better=r"(?:良い|よい|いい|優れてい(?:る|ます))",
        clause=r"{X}(?:の(?:方|ほう)が(?:より)?|は{Y}よりも?){better}(?:です)?",
        tie=r"(?:引き分け|同点)(?:です)?",
        verdict=r"(?:勝者|判定|より良い回答)",
        score=r"(?:総合)?(?:評価|スコア|得点|点数)",
        therefore=r"(?:したがって|よって|総合的に)",
        because=r"(?:なぜなら|理由は)",
        however=r"(?:しかし|ただし)",
        condition=r"もし",
        actually=r"(?:いや|実は|訂正)",
        unsure=r"(?:わかりません|分かりません|判断できません)",
    ),
)
CJK = r"[\u3040-\u30ff\u4e00-\u9fff]"
PUNCTUATION = str.maketrans({"。": ". ", "，": ", ", "、": ", ", "：": ": ", "；": "; ", "！": "! ", "？": "? "})


def in_english(text: str) -> str:
    """Return the text with what `LANGUAGES` has of it in English.

    >>> in_english("Antwort B ist besser als Antwort A."), in_english("回答B不好。")
    ('Response B is better than Response A.', 'Response B 不好. ')
    """
    for language in LANGUAGES:
        if _trigger(language).search(text):
            text = rewritten(text.translate(PUNCTUATION), _rows(language))
    return text


@cache
def _trigger(language: Language) -> re.Pattern[str]:
    words = (language.response, language.better, language.tie, language.verdict, language.score)
    return re.compile("|".join(words), re.IGNORECASE)


@cache
def _rows(language: Language) -> Rows:
    clause = language.clause.format(X=X, Y=Y, better=language.better)
    table = {
        language.first: "Response A",
        language.second: "Response B",
        rf"{language.response} ?[\"'(„“]*(?P<x>[AB])(?![A-Za-z0-9])[\"')“”]*": r"Response \g<x>",
        rf"{clause}(?![^\W\d_])": lambda match: (
            f"Response {match['x']} is better" + (f" than Response {match['y']}" if match["y"] else "")
        ),
        rf"(?<=Response [AB])(?={CJK})": " ",
        language.tie: "Tie",
        rf"(?:\b(?:der|die|das|le|la|el) )?(?:{language.verdict})(?: ?:| (?:ist|est|es)\b|是|は)": "Winner:",
        rf"(?:{language.score}) ?:": "Score:",
        language.therefore: "Therefore ",
        language.because: " because ",
        language.however: " however ",
        language.condition: " if ",
        language.actually: "Actually, ",
        language.unsure: " I am not sure",
    }
    return [(re.compile(pattern, re.IGNORECASE), english) for pattern, english in table.items()]


def rewritten(text: str, rows: Rows) -> str:
    """Return the text with each row's pattern replaced, in order."""
    for pattern, replacement in rows:
        text = pattern.sub(replacement, text)
    return text


# ---- English: which of two ----

NUMBERED = r"(?:response|assistant|output|candidate|completion|reply)"
PLACED = rf"(?:{NUMBERED}|answer|model)"  # no option or choice, which may be the task's
NOT_AN_ARTICLE = r"(?!(?-i:a\b))"
DENIED = (
    r"(?:i|we)\s+(?:(?:would|do|can|could)\s+not|(?:would|do|ca|could)n['’]t|cannot)\s+(?:say|think|believe)\s+"
    r"(?:that\s+)?"
)
WORSE = r"(?:is|was)\s+(?:(?:clearly|much|slightly|overall|far)\s+)*(?:worse|inferior|weaker)\s+(?:than|to)"


def wordings_of(labels: tuple[str, str], label: str, praise: str) -> Rows:
    """Return the rows for two labels: positions, `is worse than`, `beats`, `not A but B`, `not that A is better. B is`.

    `label` (whose group is called `label`) and `praise` match a labelled response, and what is said of the better one.
    """
    x, y = (NOT_AN_ARTICLE + label.replace("?P<label>", f"?P<{name}>") for name in "xy")
    any_label = label.replace("?P<label>", "?:")
    table = {
        rf"\b(?:the\s+first\s+{PLACED}|{NUMBERED}\s*#?(?:1|one))\b(?!['’.]\w)": f"Response {labels[0]}",
        rf"\b(?:the\s+second\s+{PLACED}|{NUMBERED}\s*#?(?:2|two))\b(?!['’.]\w)": f"Response {labels[1]}",
        rf"\b{x}\s+{WORSE}\s+{y}": r"Response \g<y> is better than Response \g<x>",
        rf"\s+(?:outperforms|beats|surpasses)\s+(?={any_label})": " is better than ",
        rf"\bnot\s+{x},?\s+but\s+{y}": r"Response \g<y>",
        rf"\b{x},?\s+(?:and\s+not|not|rather\s+than|instead\s+of)\s+{y},?": r"Response \g<x>",
        rf"(?:^|(?<=[.!?]\s))(?:{DENIED}{any_label}\s+is\s+{praise}|{any_label}\s+(?:is\s+not|isn['’]t)\s+{praise})"
        rf"\s*[.;,]\s*(?:but\s+|rather,?\s+)?{y}\s+is\s*(?=[.!]|$)": r"Response \g<y> is better",
    }
    return [(re.compile(pattern, re.IGNORECASE | re.MULTILINE), english) for pattern, english in table.items()]
