"""Backbones without a head: hidden states of any Hugging Face encoder or decoder."""

from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModel, AutoTokenizer

from ..errors import DataError
from .hub import note_model, parse_source


def load_trunk(source: str, *, dtype: str = "float32", trust_remote_code: bool = False) -> tuple[Any, Any]:
    """Load backbone (in eval mode) and tokenizer; `DataError` if a tensor other than an unused pooler's is missing."""
    location = parse_source(source, trust_remote_code=trust_remote_code)
    options = {"revision": location.revision or "main", "trust_remote_code": trust_remote_code}
    try:
        tokenizer = AutoTokenizer.from_pretrained(location.name, **options)
        model, facts = AutoModel.from_pretrained(
            location.name, dtype=getattr(torch, dtype), use_safetensors=True, output_loading_info=True, **options
        )
        note_model(source)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(f"{source}: cannot be loaded as an encoder ({str(error).splitlines()[0]})") from error
    absent = sorted(name for name in facts["missing_keys"] if not name.startswith("pooler."))
    if absent:
        raise DataError(
            f"{source}: the weights lack {', '.join(absent[:4])}, so its states would be random; give the whole folder"
        )
    return model.eval(), tokenizer
