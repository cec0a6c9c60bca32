"""Tiny models in place of the pretrained ones that `make models` fetches."""

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def tiny_pretrained(tmp_path_factory) -> Callable[[str], str]:
    """Name of a pretrained model -> the folder of a tiny one of its kind, with random weights."""
    from rewardlab.rm.backbones.loading import small_config, small_tokenizer
    from rewardlab.rm.kinds.scalar.model import scalar_from_config
    from transformers import BertConfig, BertForSequenceClassification

    folder = tmp_path_factory.mktemp("models")
    tokenizer = small_tokenizer(["some words to learn a vocabulary from"] * 4, 300)
    decoder = scalar_from_config(small_config(tokenizer, hidden=16, layers=1), tokenizer, max_length=64, seed=0)
    decoder.model.model.save_pretrained(folder / "smollm2")
    encoder = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=600,
        pad_token_id=tokenizer.pad_token_id,
    )
    BertForSequenceClassification(encoder).bert.save_pretrained(folder / "minilm")
    for name in ("smollm2", "minilm"):
        tokenizer.save_pretrained(folder / name)
    return lambda name: str(folder / name)
