"""Sentences of a text, and the sentence to which each token belongs."""

import re
from collections.abc import Sequence

import numpy as np

END = re.compile(r"[.!?。！？…]+[\"'”’)\]]*\s+|\s*\n\s*")
"""What separates sentences: closing punctuation before a blank, or a line break."""


def sentence_starts(text: str) -> list[int]:
    """Return the indices of the characters at which sentences start; the first is 0.

    >>> sentence_starts("One. Two?\\n- Three")
    [0, 5, 10]
    """
    return [0, *(match.end() for match in END.finditer(text) if match.end() < len(text) and match.start())]


def sentences_of_tokens(text: str, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Return the index of each token's sentence, 0, 1, 2, ... in order, from its character offsets (start, end).

    A token belongs to the sentence of its last character, so that a token with a leading blank belongs to what follows.
    A token without characters (BOS, EOS) belongs to the sentence of the token before it.

    >>> sentences_of_tokens("One. Two", [(0, 0), (0, 3), (3, 4), (4, 8), (0, 0)])
    [0, 0, 0, 1, 1]
    """
    if not offsets:
        return []
    last = np.array([max(end - 1, 0) for _, end in offsets])
    sentences = np.searchsorted(sentence_starts(text), np.maximum.accumulate(last), side="right") - 1
    return np.unique(sentences, return_inverse=True)[1].tolist()
