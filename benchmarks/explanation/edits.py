"""Counterfactual texts: without Markdown, with sentences in another order, of another length, without words."""

import re
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from ...judges.audit.attacks import padding
from ...rm.data.text_style import FENCED, UNITS

SENTENCE = re.compile(r"(?:[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+|\n)\s*")
LINE_MARKS = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-*+][ \t]+|\d+[.)][ \t]+)", re.MULTILINE)
INLINE_MARKS = re.compile(r"\*\*|__|~~|`")
LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
FENCE = re.compile(r"^[ \t]*```.*\n?", re.MULTILINE)
END = re.compile(r"[.,;:!?。！？]*\s*\Z")
Position = tuple[int, int]
"""Index of a sentence, and of a word in it."""


def plain(text: str) -> str:
    """Return a text without Markdown's marks; the contents of blocks of code are not changed.

    >>> plain("# Title\\n- **one** [two](http://x)\\n```python\\n# code\\n```\\n1. `three`")
    'Title\\none two\\n# code\\n\\nthree'
    """
    code, end = [], 0
    for block in FENCED.finditer(text):
        code += [_unmarked(text[end : block.start()]), FENCE.sub("", block[0])]
        end = block.end()
    return "".join([*code, _unmarked(text[end:])]).replace("\n\n\n", "\n\n")


def _unmarked(text: str) -> str:
    """Return a text outside code blocks without links, inline marks and marks at line beginnings."""
    return INLINE_MARKS.sub("", LINE_MARKS.sub("", LINK.sub(r"\1", text)))


def shortened(text: str, length: int) -> str:
    """Return the beginning of a text with about `length` characters, up to the end of a word."""
    end = text.find(" ", length)
    return text if end < 0 or length >= len(text) else text[:end]


def repeated(text: str, length: int) -> str:
    """Return a text with its own beginning appended until it has about `length` characters."""
    return shortened(" ".join([text] * (2 + length // (len(text) + 1))), length)


def padded(text: str, length: int) -> str:
    """Return a text with filler words appended until it has about `length` characters."""
    return shortened(f"{text} {padding(length, text)}", length) if length > len(text) else text


def sentences(text: str) -> list[str]:
    """Split a text into sentences and lines with their trailing white space, whose concatenation is the text.

    A sentence also ends at the full stop of an abbreviation.

    >>> sentences("One, e.g. 1.5. Two!\\n\\nThree")
    ['One, e.g. ', '1.5. ', 'Two!\\n\\n', 'Three']
    """
    begins = len(text) - len(text.lstrip())
    cuts = [0, *(match.end() for match in SENTENCE.finditer(text) if match.end() > begins), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


def words(text: str) -> list[str]:
    """Split a text into words with the blanks after them, or into characters for scripts without blanks.

    >>> words("two words, 植物")
    ['two ', 'words, ', '植', '物']
    """
    cuts = [0, *(match.start() for match in UNITS.finditer(text) if match.start()), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


class Parts(NamedTuple):
    """A text split into sentences and words, from which changed texts are made."""

    sentences: tuple[tuple[str, ...], ...]

    def orders(self, most: int) -> list[list[int]]:
        """Return up to `most` evenly spaced rotations of the order of the sentences, the original order first."""
        size = len(self.sentences)
        starts = [index * size // min(size, most) for index in range(min(size, most))]
        return [[*range(start, size), *range(start)] for start in starts] or [[]]

    def text(self, order: Sequence[int] | None = None, without: Collection[Position] = ()) -> str:
        """Return the text with its sentences in another order, without some words, and without Markdown.

        The white space between sentences stays in its place, and punctuation behind a removed word stays.
        """
        gaps = [self._joined(index)[len(self._joined(index).rstrip()) :] for index in range(len(self.sentences))]
        order = range(len(self.sentences)) if order is None else order
        bodies = [self._joined(index, without).rstrip() for index in order]
        remaining = [(body, gap) for body, gap in zip(bodies, gaps, strict=True) if body]
        text = plain("".join(f"{body}{gap or ' '}" for body, gap in remaining))
        return text if gaps and gaps[-1] else text.rstrip()

    def _joined(self, index: int, without: Collection[Position] = ()) -> str:
        """Return a sentence without some words. The punctuation behind a removed word stays."""
        text = ""
        for position, word in enumerate(self.sentences[index]):
            end = END.findall(word)[0]
            if (index, position) not in without:
                text += word
            elif text and end.strip():
                text = text.rstrip(" ,;:") + end
        return text

    def beyond(self, order: Sequence[int], length: int) -> set[Position]:
        """Return the positions of the words that end beyond `length` characters if the sentences are in this order."""
        positions = [position for index in order for position in self.positions(index)]
        ends = accumulate(len(self.sentences[i][j]) for i, j in positions)
        return {position for position, end in zip(positions, ends, strict=True) if end > length}

    def positions(self, index: int) -> list[Position]:
        """Return the positions of a sentence's words."""
        return [(index, j) for j in range(len(self.sentences[index]))]


def parts_of(text: str) -> Parts:
    """Split a text into sentences and words."""
    return Parts(tuple(tuple(words(sentence)) for sentence in sentences(text)))
