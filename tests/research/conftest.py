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


@pytest.fixture(scope="session")
def small_language_model(tmp_path_factory) -> str:
    """Folder of a small causal language model with random weights and room for long conversations."""
    from rewardlab.rm.backbones.loading import small_config, small_tokenizer
    from transformers import AutoModelForCausalLM

    folder = str(tmp_path_factory.mktemp("language_model"))
    tokenizer = small_tokenizer(
        ["how do I help a plant that is ill without harm, which answer is better, A or B "] * 20, 300
    )
    AutoModelForCausalLM.from_config(small_config(tokenizer, hidden=16, layers=1, positions=8192)).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder
