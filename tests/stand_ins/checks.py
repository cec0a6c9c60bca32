"""Checks that prompts demand of responses through phrases: whether a response is good is a function of the text."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One test of a text, the phrases by which prompts demand it, and sentences that decide it."""

    name: str
    criterion: str
    """The criterion of a rule: a property that responses must have, or must not have."""
    demands: tuple[str, str]
    sentences: tuple[str, str]
    """Sentences that `detects` accepts."""
    detects: Callable[[str], bool]
    forbids: bool = False
    """Whether a response passes if it lacks the property."""

    def passes(self, text: str) -> bool:
        """Return whether the text has the property, or lacks it if the check forbids it."""
        return self.detects(text) != self.forbids


def _word(word: str) -> Callable[[str], bool]:
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
    return lambda text: bool(pattern.search(text))


def _is_json(text: str) -> bool:
    try:
        return bool(json.loads(text))
    except ValueError:
        return False


def _in_order(text: str) -> bool:
    return 0 <= text.find("First ") < text.find(" then ")


CHECKS = {check.name: check for check in (
    Check("number", "The answer states a number.", ("Say how many days it takes.", "Put a number on the time."),
          ("Plan on 12 days.", "It takes 30 days."), lambda text: bool(re.search(r"\d", text))),
    Check("source", "The answer names its source.", ("Cite a source.", "Tell me where you know it from."),
          ("Source: the county handbook.", "Source: a gardening almanac."), _word("source")),
    Check("greeting", "The answer opens with a greeting.", ("Greet me first.", "Begin with a greeting."),
          ("Hello and welcome.", "Hello there."), lambda text: text.startswith("Hello")),
    Check("question", "The answer ends with a question.",
          ("Close with a question to me.", "Ask me something at the end."),
          ("Shall we go on?", "Do you have room for it?"), lambda text: text.endswith("?")),
    Check("example", "The answer gives an example.", ("Give an example.", "Show me a case of it."),
          ("For example the south wall.", "Take for example a clay pot."), _word("for example")),
    Check("warning", "The answer contains a warning.", ("Warn me of the risks.", "Tell me what is dangerous."),
          ("Caution with the sharp tools.", "Caution on wet steps."), _word("caution")),
    Check("units", "The answer uses metric units.", ("Use metric units.", "Give the depth in cm."),
          ("Dig a few cm deep.", "Leave some cm between them."), _word("cm")),
    Check("price", "The answer states a price in euros.", ("Tell me the price.", "What does it cost in euros?"),
          ("It costs ten euros.", "Expect to pay five euros."), _word("euros")),
    Check("json", "The answer contains a valid JSON object.", ("Add the settings as JSON.", "Include a JSON object."),
          ('Settings {"ready": true} follow.', 'Use {"water": "daily"} here.'),
          lambda text: any(_is_json(part) for part in re.findall(r"\{[^{}]*\}", text))),
    Check("weekday", "The answer names a day of the week.",
          ("Name a day of the week for it.", "Tell me on which weekday to start."),
          ("Start on a Friday.", "Friday suits it well."), _word("friday")),
    Check("steps", "The answer gives its steps in order, first and then.",
          ("Give the steps in order.", "Tell me what comes first and what then."),
          ("First water it and then cut it.", "First clean it and then wait."), _in_order),
    Check("contact", "The answer gives an e-mail address.", ("Tell me whom to write to.", "Add an e-mail address."),
          ("Write to club@garden.org.", "Ask help@garden.org."), lambda text: "@" in text),
    Check("link", "The answer contains a link.", ("Add a link.", "Point me to a web page."),
          ("See https://garden.org for it.", "It is on https://plants.net too."), lambda text: "https://" in text),
    Check("comparison", "The answer compares two options.",
          ("Compare two options.", "Weigh it against something else."),
          ("Take clay rather than plastic.", "Choose shade rather than sun."), _word("rather than")),
    Check("summary", "The answer sums up in short.", ("Sum it up.", "Give me the gist as well."),
          ("In short it needs care.", "In short be patient."), _word("in short")),
    Check("thanks", "The answer says thanks in German.", ("Thank me in German.", "Use the German word for thanks."),
          ("Danke for asking.", "Danke and good luck."), _word("danke")),
    Check("note", "The answer has a line marked NOTE.",
          ("Mark one line with NOTE.", "Write NOTE before the main point."),
          ("NOTE the drainage.", "NOTE the season."), lambda text: "NOTE" in text),
    Check("definition", "The answer defines a term.", ("Define your main term.", "Explain what the word means."),
          ("By mulch we mean loose bark.", "By loam we mean rich soil."), _word("we mean")),
    Check("apology", "The answer apologises.", ("Do not apologise.", "No excuses please."),
          ("Sorry for the length.", "I am told to say sorry."), _word("sorry"), forbids=True),
    Check("hedging", "The answer hedges with perhaps.", ("Do not hedge.", "Be certain in what you say."),
          ("Perhaps it will work.", "That is perhaps enough."), _word("perhaps"), forbids=True),
    Check("exclamation", "The answer has exclamation marks.", ("No exclamation marks.", "Keep a calm tone."),
          ("What a joy!", "Get going now!"), lambda text: "!" in text, forbids=True),
    Check("slang", "The answer uses slang.", ("Avoid slang.", "Write in formal words."),
          ("It is gonna grow.", "You are gonna like it."), _word("gonna"), forbids=True),
    Check("brand", "The answer names a brand.", ("Do not name brands.", "No advertising please."),
          ("Acme sells good ones.", "Buy it from Acme."), _word("acme"), forbids=True),
    Check("metaphor", "The answer uses metaphors.", ("No metaphors.", "Be literal."),
          ("A garden is like a song.", "Roots are like rivers."),
          lambda text: bool(re.search(r"\b(?:is|are) like\b", text)), forbids=True),
)}  # fmt: skip


# ---- true labels ----


def demanded(prompt: str) -> tuple[str, ...]:
    """Return the checks that a prompt demands, in the order of CHECKS.

    >>> demanded("How do I care for bees? Cite a source. Do not hedge.")
    ('source', 'hedging')
    """
    return tuple(name for name, check in CHECKS.items() if any(phrase in prompt for phrase in check.demands))


def satisfied(text: str) -> frozenset[str]:
    """Return all checks that a text passes, whether a prompt demands them or not.

    >>> sorted(CHECKS.keys() - satisfied("Perhaps it will work. Source: the county handbook."))[:3]
    ['comparison', 'contact', 'definition']
    >>> "source" in satisfied("Source: the county handbook."), "hedging" in satisfied("Perhaps it will work.")
    (True, False)
    """
    return frozenset(name for name, check in CHECKS.items() if check.passes(text))


def broken(prompt: str, text: str) -> tuple[str, ...]:
    """Return the demanded checks that a text fails; a good response fails none.

    >>> broken("How do I care for bees? Cite a source. Do not hedge.", "Perhaps it will work.")
    ('source', 'hedging')
    """
    return tuple(name for name in demanded(prompt) if not CHECKS[name].passes(text))
