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
        self._context: list[int] = []  # the last tokens with text: the first space of a decoded sequence may be lost
        self._pending: list[int] = []
        self._length = 0  # number of characters of the context that the text contains

    def add(self, tokens: Sequence[int]) -> None:
        """Append tokens; an incomplete character is held back for up to `CHARACTER` tokens, invalid bytes are not."""
        self.tokens += tokens
        self._pending += tokens
        size = len(self._pending)
        ends = range(size, max(0, size - CHARACTER), -1)
        windows = {end: self.decode(self._context + self._pending[:end]) for end in ends}
        complete = [end for end, window in windows.items() if not window.endswith("�")]
        if complete:
            self._release(windows[complete[0]], complete[0], held=0)
        elif size >= CHARACTER:
            self._release(windows[size], size, held=CHARACTER - 1)

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode tokens without special tokens."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _release(self, window: str, end: int, held: int) -> None:
        """Append the window's new text except its last `held` characters; the `end` pending tokens become the context.

        Tokens without text (special ones) leave the context as it is.
        """
        news = window[self._length : max(0, len(window) - held)]
        if not news and held:
            return
        self.text += news
        if news or not self.text:
            self._context = self._pending[:end]
            self._length = len(self.decode(self._context)) - held
        self._pending = self._pending[end:]
