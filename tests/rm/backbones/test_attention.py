from contextlib import nullcontext

import numpy as np
import pytest
import torch
from peft import LoraConfig, TaskType, get_peft_model
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.backbones.packing import attention as attention_module
from rewardlab.rm.backbones.packing.attention import check_padding_free, padding_free, set_attention
from rewardlab.rm.backbones.sequence_scores import sequence_scores
from rewardlab.rm.backbones.tokenization import pad
from rewardlab.rm.errors import UsageError
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.kinds.scalar.training import PairRow, ScalarTask
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from tests.rm.backbones.test_packing import GPT2, PACKED, PLAIN, SIZES, model_of

WORDS = small_tokenizer(["kano roba miba " * 9] * 20, 280)
DROPOUT_FREE = {"gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}}


def ragged_rows(longest: int = 70) -> list[list[int]]:
    """Sequences of 1 to `longest` tokens: two equal ones, and two that share 40 tokens."""
    random = np.random.default_rng(0)
    rows = [random.integers(2, 120, length).tolist() for length in (1, longest, 7, longest // 2)]
    return [*rows, rows[2], [*rows[1][:40], 1, 1][:longest]]


def gradients(model, tokens, attention, context) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    with context:
        rewards = sequence_scores(model, tokens, attention)[:, 0]
        loss = (rewards * torch.arange(1.0, len(rewards) + 1)).tanh().mean()
        loss.backward()
    return loss.item(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


def check_same(first, second) -> None:
    assert first[0] == pytest.approx(second[0], abs=1e-6)
    for name, gradient in first[1].items():
        torch.testing.assert_close(gradient, second[1][name], rtol=0, atol=1e-5 * gradient.abs().max().item() + 1e-9)


@pytest.mark.parametrize(
    ("name", "recomputed"), [*((name, False) for name in PACKED), ("gpt2", True), ("gemma3", True)]
)
def test_loss_and_gradient_without_padding_are_those_of_the_padded_batch(name, recomputed):
    kind, sizes, limit = PACKED[name]
    model = model_of(kind, sizes | DROPOUT_FREE.get(name, {})).train()
    if recomputed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    tokens, attention = pad(ragged_rows(min(limit, 70)))
    padded = gradients(model, tokens, attention, nullcontext())
    check_same(gradients(model, tokens, attention, padding_free(model)), padded)
    assert model.config._attn_implementation == "sdpa" and not model.base_model._forward_pre_hooks


def flash_like(module, query, key, value, mask, scaling, cu_seq_lens_q, cu_seq_lens_k, **options):
    """Attention by `cu_seq_lens`, as FlashAttention reads them: offsets of the sequences of one row."""
    assert mask is None and torch.equal(cu_seq_lens_q, cu_seq_lens_k) and cu_seq_lens_q.dtype == torch.int32
    assert options["max_length_q"] == options["max_length_k"] == cu_seq_lens_q.diff().max()
    sequences = [tensor.split(cu_seq_lens_q.diff().tolist(), dim=2) for tensor in (query, key, value)]
    how = {"is_causal": True, "scale": scaling, "enable_gqa": True}
    outputs = [scaled_dot_product_attention(*qkv, **how) for qkv in zip(*sequences, strict=True)]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def test_flash_attention_reads_each_sequence_by_its_offsets(monkeypatch):
    """By the arguments of Transformers' padding-free path; FlashAttention itself needs a GPU."""
    monkeypatch.setitem(AttentionInterface._global_mapping, "varlen", flash_like)
    monkeypatch.setattr(attention_module, "_is_flash", lambda name: name == "varlen")
    model = model_of("llama", SIZES).train()
    tokens, attention = pad(ragged_rows())
    padded = gradients(model, tokens, attention, nullcontext())
    check_same(gradients(model, tokens, attention, padding_free(model, "varlen")), padded)


def test_backbones_that_cannot_be_packed_are_refused_and_an_adapter_with_dropout_is_not():
    for name in PLAIN:
        kind, sizes = PLAIN[name]
        with pytest.raises(UsageError, match=f"^--padding_free supports .*, unlike this {kind}; remove the option$"):
            check_padding_free(model_of(kind, sizes), None, None)
    # Its dropout is on while it is trained on, and would make any two states differ
    lora = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, lora_dropout=0.5, init_lora_weights=False)
    model = get_peft_model(model_of("llama", SIZES), lora)
    check_padding_free(model, None, 100)
    assert model.training


def test_attention_that_cannot_be_packed_sequences_beyond_the_window_and_what_is_not_here_are_refused():
    with pytest.raises(UsageError, match="^--padding_free needs --attn_implementation sdpa or .*, not eager"):
        check_padding_free(model_of("llama", SIZES), "eager", None)
    model = model_of(*PACKED["mistral, sliding"][:2])
    check_padding_free(model, None, 20)
    for max_length in [21, None]:
        with pytest.raises(UsageError, match="the sliding window of this mistral, 20 tokens, but --max_length"):
            check_padding_free(model, None, max_length)
    for name in ["flash_attention_2", "flsh"]:
        model = model_of("gpt2", GPT2)
        with pytest.raises(UsageError, match=f"^--attn_implementation {name} does not work with this gpt2 .* sdpa"):
            set_attention(model, name)
        assert model.config._attn_implementation == "sdpa", name


def trained(folder, **settings) -> RewardTrainer:
    model = scalar_from_config(small_config(WORDS, hidden=16, layers=2), WORDS, max_length=80)
    rows = [PairRow(row, [*row[:40], 7, 8], 1.0, 0.0) for row in ragged_rows()]
    arguments = RewardArguments(
        output_dir=str(folder), max_steps=2, per_device_train_batch_size=4, learning_rate=0.1, optim="sgd",
        save_strategy="no", use_cpu=True, report_to="none", disable_tqdm=True, **settings,
    )  # fmt: skip
    trainer = RewardTrainer(model, arguments, ScalarTask(bradley_terry()), rows, rows)
    trainer.train()
    trainer.final = trainer.evaluate()["eval_loss"]
    return trainer


def test_training_and_evaluation_are_those_of_padded_batches(tmp_path):
    """Nothing of it stays on the trained model, so that it is scored by its own default."""
    plain = trained(tmp_path)
    for settings in ({"padding_free": True}, {"attn_implementation": "eager"}):
        changed = trained(tmp_path, **settings)
        assert changed.final == pytest.approx(plain.final, abs=1e-6), settings
        for (name, weight), other in zip(plain.model.named_parameters(), changed.model.parameters(), strict=True):
            torch.testing.assert_close(weight, other, rtol=0, atol=1e-6, msg=name)
        assert changed.model.config._attn_implementation == "sdpa", settings


def test_the_named_attention_computes_training_and_evaluation(tmp_path, monkeypatch):
    calls = []

    def counted(module, query, key, value, mask, scaling, **_options):
        calls.append(module.training)
        mixed = scaled_dot_product_attention(query, key, value, mask, scale=scaling, enable_gqa=True)
        return mixed.transpose(1, 2), None

    monkeypatch.setitem(AttentionInterface._global_mapping, "counted", counted)
    trained(tmp_path, attn_implementation="counted")
    layers, steps, evaluations = 2, 2, 1
    assert calls == [True] * steps * layers + [False] * evaluations * layers
