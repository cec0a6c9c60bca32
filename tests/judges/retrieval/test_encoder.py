import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.judges.retrieval.encoder import FacetEncoder, batch_of, load_encoder, new_encoder
from rewardlab.judges.retrieval.settings import EncoderSettings
from rewardlab.rm.backbones.loading import small_tokenizer
from rewardlab.rm.errors import DataError, UsageError
from transformers import AutoConfig, AutoModel

TEXTS = ["Water the roses. They need sun.", "How do bees winter? In a cluster.", "Prune in March.\nNot later!", "Hm"]
SMALL = EncoderSettings(facets=3, width=8, segment_sentences=2, max_length=32)


def small(settings: EncoderSettings = SMALL, seed: int = 0) -> FacetEncoder:
    return new_encoder(settings, None, TEXTS * 5, seed=seed, hidden=16, layers=1, vocabulary=300)


@pytest.fixture(scope="module")
def encoder() -> FacetEncoder:
    return small()


def test_vectors_have_length_one_and_do_not_depend_on_the_batch_or_the_order(encoder):
    vectors = encoder.embed(TEXTS)
    assert vectors.shape == (4, 3, 8) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(TEXTS, batch_size=1), vectors, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(TEXTS[::-1], batch_size=3)[::-1], vectors, atol=1e-5)
    assert encoder.embed([]).shape == (0, 3, 8)
    assert np.isfinite(encoder.embed(["", "  \n"])).all()
    encoder = small(replace(SMALL, pooling="mean", width=24))
    assert encoder.embed(TEXTS).shape == (4, 1, 24)


def test_the_tokens_of_a_text_are_in_its_sentences_a_long_end_is_cut_off_and_every_weight_is_reached(encoder):
    tokenized = encoder.tokenize(TEXTS[:1])[0]
    first = encoder.tokenizer.decode([id for id, of in zip(tokenized.ids, tokenized.sentences, strict=True) if of == 0])
    assert first == "Water the roses." and max(tokenized.sentences) == 1
    long = " ".join(["roses"] * 200)
    assert encoder.over_length([*TEXTS, long]) == 1
    np.testing.assert_array_equal(encoder.embed([long]), encoder.embed([long + " and bees"]))
    made = small()
    made(*batch_of(made.tokenize(TEXTS))).pow(2).mul(torch.arange(8.0)).sum().backward()
    without = [name for name, weight in made.named_parameters() if weight.grad is None or not weight.grad.abs().sum()]
    assert not without


def test_a_saved_encoder_gives_the_same_vectors_and_a_seed_the_same_weights(encoder, tmp_path):
    encoder.save(tmp_path)
    loaded = load_encoder(tmp_path)
    assert loaded.contract == encoder.contract and loaded.settings == encoder.settings
    np.testing.assert_array_equal(loaded.embed(TEXTS), encoder.embed(TEXTS))
    assert small(seed=1).contract == small(seed=1).contract != small(seed=2).contract


def test_a_folder_that_is_not_whole_or_was_changed_and_settings_that_do_not_exist_are_refused(encoder, tmp_path):
    from safetensors.torch import load_file, save_file

    with pytest.raises(DataError, match="no retrieval encoder"):
        load_encoder(tmp_path)
    for name, value in [("max_length", 16), ("similarity", "max"), ("segment_sentences", 1)]:
        encoder.save(tmp_path)
        stored = json.loads((tmp_path / "encoder.json").read_text())
        (tmp_path / "encoder.json").write_text(json.dumps(stored | {name: value}))
        with pytest.raises(DataError, match="have changed since saving"):
            load_encoder(tmp_path)
    encoder.save(tmp_path)
    small(replace(SMALL, facets=2)).save(tmp_path / "other")
    (tmp_path / "other" / "pooling.safetensors").replace(tmp_path / "pooling.safetensors")
    with pytest.raises(DataError, match="the weights do not fit the settings"):
        load_encoder(tmp_path)
    encoder.save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("norm.weight")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"the weights lack norm\.weight"):
        load_encoder(tmp_path)
    for wrong, message in [
        ({"pooling": "cls"}, "pooling must be facets or mean, got 'cls'"),
        ({"similarity": "sum"}, "similarity must be mean or max"),
        ({"granularities": ("word",)}, "granularities must be some of sentence, segment, text"),
        ({"facets": 0}, "facets must be a number >= 1, got 0"),
    ]:
        with pytest.raises(UsageError, match=message):
            EncoderSettings(**wrong)


def test_an_encoder_with_its_own_special_tokens_is_a_backbone_too(tmp_path):
    """BERT's architecture, which sees both sides, with CLS and SEP around the text; its pooler is not used."""
    tokenizer = small_tokenizer(TEXTS * 5, 300)
    tokenizer.add_special_tokens({"cls_token": "<|user|>", "sep_token": "<|eos|>"})
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = AutoConfig.for_model("bert", vocab_size=len(tokenizer), **sizes)
    torch.manual_seed(0)
    AutoModel.from_config(config, add_pooling_layer=False).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder = new_encoder(SMALL, str(tmp_path), [])
    vectors = encoder.embed(TEXTS)
    np.testing.assert_allclose(encoder.embed(TEXTS, batch_size=1), vectors, atol=1e-5)
    encoder.save(tmp_path / "saved")
    np.testing.assert_array_equal(load_encoder(tmp_path / "saved").embed(TEXTS), vectors)
