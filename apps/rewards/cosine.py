"""Cosine reward: similarity of a completion to a reference in an embedding space, and share of the right script."""

import unicodedata
from collections.abc import Sequence

import numpy as np

from ...judges.retrieval.encoder import load_encoder
from ...policy.types import RewardFunction
from ...rm.errors import UsageError
from ...rm.types import Example, prompt_text
from ._open import RunFacts


def cosine(
    *,
    run: RunFacts,
    encoder: str,
    threshold: float,
    reference: str = "reference",
    similarity: float = 1.5,
    script: str = "",
    language: float = 1.0,
) -> RewardFunction:
    """r = a clip((cos(y, y*) - τ) / (1 - τ), 0, 1) + b R_lang                                  2026, arXiv:2605.14366

    The retrieval encoder in folder `encoder` (`rewardlab retriever`) embeds the completion y and the reference y*; cos
    is the mean cosine over the encoder's facets. a = `similarity` and b = `language` have the paper's values; τ =
    `threshold` has no default because the paper's value is not known to us. Ours: R_lang is the share of the letters of
    y in the Unicode `script`, such as HANGUL (0 if no script is given).
    """
    if not -1 <= threshold < 1:
        raise UsageError(f"cosine: threshold must be in [-1, 1), got {threshold}")
    references, model = run.texts_by_prompt(reference), load_encoder(encoder)

    def rate(examples: Sequence[Example]) -> list[float]:
        texts = [example.text for example in examples]
        rights = [references[prompt_text(example.prompt)] for example in examples]
        cosines = (model.embed(texts) * model.embed(rights)).sum(-1).mean(-1)
        scaled = np.clip((cosines - threshold) / (1 - threshold), 0, 1)
        shares = [script_share(text, script) if script else 0.0 for text in texts]
        return [similarity * float(r) + language * share for r, share in zip(scaled, shares, strict=True)]

    return rate


def script_share(text: str, script: str) -> float:
    """Return the share of letters whose Unicode name starts with the script; 0 without letters.

    >>> script_share("Ja, да!", "CYRILLIC")
    0.5
    """
    letters = [unicodedata.name(character, "") for character in text if character.isalpha()]
    return sum(name.startswith(script.upper()) for name in letters) / max(len(letters), 1)
