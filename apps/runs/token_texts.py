"""Text of each token of a completion, for pages and files."""

from collections.abc import Sequence
from typing import Any


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return the text that each token adds: the name of a special token, `·` for a token within a character."""
    from ...policy.decoding.detokenization import TextStream

    stream, texts = TextStream(tokenizer), []
    special = {*tokenizer.all_special_ids}
    for id in ids:
        before = len(stream.text)
        stream.add([id])
        text = stream.text[before:]
        texts.append(text or (str(tokenizer.convert_ids_to_tokens(id)) if id in special else "·"))
    return texts
