"""Pairs of the study by objective, split by prompt into those of guides, of raters and of the test.

They are written to one file in the cache, named by its hash, so that jobs need no data.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ....rm.data.conversation_split import first_turn
from ....rm.data.pairs import load_pairs
from ....rm.types import Messages, PreferencePair, prompt_text
from .._runs.texts_file import store_texts, stored_texts
from ..pretrained.texts import SOURCES, at_most, decided

OBJECTIVES = ("helpful", "harmless")
OF_OBJECTIVE: Mapping[str, Sequence[str]] = {
    "helpful": ("HH helpful", "UltraFeedback", "arena"),
    "harmless": ("HH harmless", "just-eval safety"),
}
"""Sources whose labels are of an objective."""
PARTS = {"guides": range(10), "raters": range(10, 18), "test": range(18, 20)}
"""Twentieths of the prompts: raters, guides and tested prompts have no prompt in common."""
MOST = 4
"""Pairs of one prompt, of every source."""
LONGEST, LONGEST_RATED = 400, 1000
"""Characters of a prompt, and of each completion, of pairs for guides, and of pairs for reward models."""


class Texts(NamedTuple):
    """Pairs by part and objective."""

    pairs: Mapping[str, Mapping[str, Sequence[PreferencePair]]]

    def short(self, part: str, objective: str, longest: int = LONGEST) -> list[PreferencePair]:
        """Return the pairs of a part that are labelled for an objective and have no longer text."""
        return [pair for pair in self.pairs[part][objective] if _characters(pair) <= longest]

    def prompts(self, number: int, longest: int = LONGEST) -> list[Messages]:
        """Return distinct prompts of test pairs without a longer text, of both objectives in turn."""
        by_objective = [
            {prompt_text(pair.prompt): pair.prompt for pair in self.short("test", name, longest)}.values()
            for name in OBJECTIVES
        ]
        return [prompt for both in zip(*by_objective, strict=False) for prompt in both][:number]


def prepared(data: Path, cache: Path, rows: int | None) -> tuple[str, dict[str, Any]]:
    """Write the pairs to the cache; return their name, and how many pairs each source has."""
    counts: dict[str, Any] = {}
    parts: dict[str, dict[str, list[list]]] = {part: {name: [] for name in OBJECTIVES} for part in PARTS}
    for objective, sources in OF_OBJECTIVE.items():
        for source in sources:
            pairs, report = load_pairs([str(data / file) for file in SOURCES["dialogue"][source]], on_bad_row="skip")
            kept = list(at_most(decided(pairs), MOST))[:rows]
            counts[source] = {"read": report.read, "kept": len(kept)}
            for pair in kept:
                parts[part_of(pair)][objective].append([pair.prompt, *pair.texts])
    return store_texts(cache, parts), counts


@lru_cache(maxsize=1)
def load_texts(cache: Path, name: str) -> Texts:
    """Read the pairs of a name."""
    values = stored_texts(cache, name)

    def pair(objective: str, index: int, row: list) -> PreferencePair:
        return PreferencePair(f"{objective} {index}", tuple(row[0]), row[1], row[2], wins={objective: 1.0})

    return Texts(
        {
            part: {name: [pair(name, index, row) for index, row in enumerate(rows)] for name, rows in named.items()}
            for part, named in values.items()
        }
    )


def part_of(pair: PreferencePair) -> str:
    """Return the part that a pair is in, by its first user turn alone."""
    digest = hashlib.sha256(f"pretrained guides|{first_turn(pair.prompt)}".encode()).hexdigest()
    twentieth = int(digest, 16) % 20
    return next(part for part, twentieths in PARTS.items() if twentieth in twentieths)


def _characters(pair: PreferencePair) -> int:
    """Return the length of the longest of the prompt and the completions."""
    return max(sum(len(turn["content"]) for turn in pair.prompt), *map(len, pair.texts))
