"""Requests whose fulfilment can be checked: length, list format, a keyword, capitals, a closing phrase."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# fmt: off
TOPICS = (
    "bread", "tea", "rivers", "bicycles", "owls", "snow", "chess", "gardens", "bridges", "violins", "ants",
    "deserts", "kites", "volcanoes", "libraries", "soap", "honey", "trains", "lemons", "clouds", "pottery", "wolves",
    "islands", "candles", "football", "whales", "maps", "ginger", "windmills", "shoes", "spiders", "poetry",
    "glaciers", "markets", "mirrors", "tractors", "olives", "frogs", "castles", "paper", "bees", "lighthouses",
    "rice", "tigers", "umbrellas", "wool", "dolphins", "mountains", "newspapers", "onions", "parrots", "rockets",
)
# fmt: on
HELD_OUT = 12
"""Number of topics of the held-out requests, the last ones."""
KEYWORDS = ["people", "water", "old", "winter", "morning", "because", "many", "small"]
CLOSING = "The end."


def short(completion: str, keyword: str) -> bool:
    """Return whether the completion has 3 to 12 words."""
    return 3 <= len(completion.split()) <= 12


def listed(completion: str, keyword: str) -> bool:
    """Return whether the completion is three lines, each an item of a list."""
    lines = [line for line in completion.strip().splitlines() if line.strip()]
    return len(lines) == 3 and all(re.match(r"- \S", line) for line in lines)


def with_keyword(completion: str, keyword: str) -> bool:
    """Return whether the keyword is a word of the completion, which has at most 40 words."""
    return bool(re.search(rf"\b{re.escape(keyword)}\b", completion, re.IGNORECASE)) and len(completion.split()) <= 40


def capital(completion: str, keyword: str) -> bool:
    """Return whether the completion has three words or more, all in capital letters."""
    return completion.isupper() and len(completion.split()) >= 3


def closed(completion: str, keyword: str) -> bool:
    """Return whether the completion ends with the closing phrase, behind other words."""
    text = completion.strip()
    return text.endswith(CLOSING) and len(text.split()) > 4


CHECKS: Mapping[str, Callable[[str, str], bool]] = {
    "short": short,
    "list": listed,
    "keyword": with_keyword,
    "capitals": capital,
    "closing": closed,
}
REQUESTS = {
    "short": "Write one sentence about {topic}. Use at most 12 words.",
    "list": "Name three things about {topic} as a list of exactly three lines. Begin every line with '- '.",
    "keyword": "Write one or two short sentences about {topic}. Use the word '{keyword}'.",
    "capitals": "Write one short sentence about {topic} in CAPITAL LETTERS ONLY.",
    "closing": f"Write one short sentence about {{topic}}, then finish with the words '{CLOSING}'",
}


def requests(*, held_out: bool) -> list[dict[str, str]]:
    """Return the requests of the training topics, or of the held-out ones, with kind and keyword."""
    topics = TOPICS[-HELD_OUT:] if held_out else TOPICS[:-HELD_OUT]
    return [
        {"prompt": text.format(topic=topic, keyword=keyword), "kind": kind, "keyword": keyword}
        for index, topic in enumerate(topics)
        for keyword in [KEYWORDS[index % len(KEYWORDS)]]
        for kind, text in REQUESTS.items()
    ]


def fulfilled(
    prompts: Sequence[Any], completions: Sequence[Any], kind: Sequence[str], keyword: Sequence[str], **columns: Any
) -> list[float]:
    """Return 1 for completions that do what their row asks for, else 0; a reward function with TRL's signature."""
    rows = zip(completions, kind, keyword, strict=True)
    return [float(CHECKS[name](_text(completion), word)) for completion, name, word in rows]


def _text(completion: Any) -> str:
    return completion if isinstance(completion, str) else completion[-1]["content"]


def pass_shares(texts: np.ndarray) -> np.ndarray:
    """Return whether each of the held-out completions [P, S + 1] does what its request says, as 0 or 1."""
    rows: Sequence[Mapping[str, str]] = requests(held_out=True)[: len(texts)]
    return np.array(
        [
            [CHECKS[row["kind"]](str(text), row["keyword"]) for text in of_prompt]
            for row, of_prompt in zip(rows, texts, strict=True)
        ],
        float,
    )
