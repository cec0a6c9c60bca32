"""Incremental detokenization: tokens become text that can no longer change."""

from collections.abc import Sequence
from typing import Any

CHARACTER = 4  # maximum number of tokens for one character: one per byte of UTF-8


class TextStream:
    """Incremental text of a growing token sequence; each chunk is decoded once, together with the previous chunk."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self.text = ""
        """Text of complete characters."""
        self._from = self._read = 0  # bounds of the last decoded chunk

    def add(self, tokens: Sequence[int]) -> None:
        """Append tokens; an incomplete character is held back for up to `CHARACTER` tokens, invalid bytes are not."""
        self.tokens += tokens
        ends = range(len(self.tokens), max(self._read, len(self.tokens) - CHARACTER), -1)
        windows = {end: self.decode(self.tokens[self._from : end]) for end in ends}
        complete = [end for end, window in windows.items() if not window.endswith("�")]
        if not complete and len(self.tokens) - self._read < CHARACTER:
            return
        end = complete[0] if complete else len(self.tokens)
        self.text += windows[end][len(self.decode(self.tokens[self._from : self._read])) :]
        self._from, self._read = self._read, end

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode tokens without special tokens."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
