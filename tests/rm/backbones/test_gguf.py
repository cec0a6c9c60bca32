"""GGUF files: converted once, with the weights of the file; what is damaged is one sentence."""

import errno
import json
from pathlib import Path

import pytest
import torch
from rewardlab.rm.backbones import gguf as ours
from rewardlab.rm.backbones.gguf import convert_gguf
from rewardlab.rm.backbones.loading import load_causal_lm, load_tokenizer, small_config, small_tokenizer
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.scalar.model import load_scalar
from rewardlab.rm.types import Example
from transformers import AutoModelForCausalLM

gguf = pytest.importorskip("gguf", reason="needs the package gguf")
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    **{
        f"blk.{i}.attn_{ours_}": f"model.layers.{i}.self_attn.{name}_proj"
        for i in (0, 1)
        for ours_, name in (("k", "k"), ("v", "v"), ("q", "q"), ("output", "o"))
    },
    **{f"blk.{i}.ffn_{name}": f"model.layers.{i}.mlp.{name}_proj" for i in (0, 1) for name in ("gate", "up", "down")},
    **{f"blk.{i}.attn_norm": f"model.layers.{i}.input_layernorm" for i in (0, 1)},
    **{f"blk.{i}.ffn_norm": f"model.layers.{i}.post_attention_layernorm" for i in (0, 1)},
}
"""Names of a Llama's tensors in GGUF files -> in Transformers."""


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """The rows of a query's or key's projection in the order of GGUF, whose rotary pairs are neighbours."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """A small Llama in 8 bits; beside it the same weights after rounding, as a model of Transformers."""
    folder = tmp_path_factory.mktemp("gguf")
    tokenizer = small_tokenizer(["a fox reads a book about foxes"] * 4, 300)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(small_config(tokenizer, "llama", heads=2)).float()
    writer = gguf.GGUFWriter(folder / "small.gguf", "llama")
    config = model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(2)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokenizer))
    described = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])])
    writer.add_token_types([3 if index < 6 else 1 for index in range(len(tokenizer))])
    writer.add_token_merges([" ".join(pair) for pair in described["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_bos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_unk_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    for name, other in NAMES.items():
        parameter = model.get_parameter(f"{other}.weight")
        weight = parameter.detach()
        if "norm" in name:
            writer.add_tensor(f"{name}.weight", weight.numpy())
            continue
        quantised = gguf.quants.quantize(weight.numpy(), gguf.GGMLQuantizationType.Q8_0)
        rounded = torch.tensor(gguf.quants.dequantize(quantised, gguf.GGMLQuantizationType.Q8_0))
        parameter.data = rounded
        stored = interleaved(rounded, 2) if name.endswith(("attn_q", "attn_k")) else rounded
        data = gguf.quants.quantize(stored.numpy(), gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model.save_pretrained(folder / "same")
    tokenizer.save_pretrained(folder / "same")
    return folder / "small.gguf"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("REWARDLAB_CACHE", str(folder))
    return folder


@pytest.mark.filterwarnings("ignore:.*dequantised to float32")
def test_a_gguf_file_is_the_model_of_its_weights(file, monkeypatch):
    same = file.parent / "same"
    tokenizer = load_tokenizer(str(file))
    model, other = load_causal_lm(str(file), tokenizer), load_causal_lm(str(same), load_tokenizer(str(same)))
    tokens = torch.arange(6, 20)[None]
    torch.testing.assert_close(model(tokens).logits, other(tokens).logits, rtol=0, atol=1e-5)
    assert tokenizer.chat_template == load_tokenizer(str(same)).chat_template
    monkeypatch.setattr(ours, "_convert", lambda *_: pytest.fail("a second conversion"))
    assert {path.suffix for path in Path(convert_gguf(str(file))).iterdir()} >= {".safetensors", ".json"}


def test_a_full_disk_is_no_fault_of_the_file(file, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("REWARDLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(ours, "_load_dequantised", full)
    with pytest.raises(DataError, match="no space left on device; its disk has .*; make room, or name another folder"):
        convert_gguf(str(file))


@pytest.mark.filterwarnings("ignore:.*dequantised to float32")
def test_a_reward_model_of_a_gguf_file_names_its_quantisation_and_is_saved_as_safetensors(file, tmp_path):
    model = load_scalar(str(file), fresh=True)
    assert model.contract.weights.startswith("8-bit weights (Q8_0), dequantised; GGUF file with SHA-256 ")
    model.save(tmp_path / "rm")
    again = load_scalar(str(tmp_path / "rm"))
    assert again.contract == model.contract and not list((tmp_path / "rm").glob("*.gguf"))
    row = [Example(({"role": "user", "content": "a fox"},), "reads a book")]
    assert again.rate(row) == pytest.approx(model.rate(row), abs=1e-6)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read (No such file or directory); give the path of a GGUF file"),
        (b"PK\x03\x04 and more", r"not a GGUF file (it begins with b'PK\x03\x04'); fetch the file again"),
        (b"GGUF\x03\x00\x00\x00", "cannot be read as the GGUF file of a language model"),
    ],
)
def test_a_damaged_file_is_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as refusal:
        load_tokenizer(str(path))
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_cut_file_leaves_nothing_behind(file, tmp_path, cache):
    (tmp_path / "cut.gguf").write_bytes(file.read_bytes()[:-4000])
    with pytest.raises(DataError, match="fetch the file again"):
        convert_gguf(str(tmp_path / "cut.gguf"))
    assert not list((cache / "gguf").glob("cut-*[!k]"))


def test_without_the_package_the_extra_is_named(file, monkeypatch, tmp_path):
    monkeypatch.setenv("REWARDLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(ours, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'rewardlab\[gguf\]'"):
        convert_gguf(str(file))
