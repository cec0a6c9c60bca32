"""The text of each token of an answer, as pages and files show it."""

from collections.abc import Sequence
from typing import Any


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The text that each token adds; a special token by its name, and `·` for one that is a part of a character."""
    from ...policy.decoding.detokenization import TextStream

    stream, texts = TextStream(tokenizer), []
    special = {*tokenizer.all_special_ids}
    for id in ids:
        before = len(stream.text)
        stream.add([id])
        text = stream.text[before:]
        texts.append(text or (str(tokenizer.convert_ids_to_tokens(id)) if id in special else "·"))
    return texts
