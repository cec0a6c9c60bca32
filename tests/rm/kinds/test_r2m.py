import numpy as np
import pytest
import torch
from peft import LoraConfig
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.kernels.dispatch import bounds_of
from rewardlab.kernels.r2m_attention import reference
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.backbones.tokenization import pad
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.r2m.model import R2MHead, R2MRewardModel, reward_tokens, tokens_before_head
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.load import load_reward_model
from torch import nn
from transformers import BertConfig, RobertaConfig

P = 24


@pytest.fixture(scope="module")
def words():
    return models.tokenizer()


@pytest.fixture(scope="module")
def body(words):
    return scalar_from_config(small_config(words, "qwen3", hidden=32), words, objectives=("good", "kind"))


@pytest.fixture(scope="module")
def examples():
    return garden.supervised_examples(9, seed=0)


@pytest.fixture(scope="module")
def states(examples):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(len(one.completion.split()) + 5, P, generator=generator) for one in examples]


def on(body, omega=0.6, **options):
    model = R2MRewardModel.on(body, P, 16, **options)
    model.omega = omega
    return model


def test_with_omega_1_they_are_the_scalar_models_also_with_an_adapters_own_head(words, examples, states):
    for architecture in ["qwen3", "llama"]:
        scalar = scalar_from_config(small_config(words, architecture, hidden=32), words, seed=1)
        np.testing.assert_allclose(on(scalar, 1.0).rate(examples, states), scalar.rate(examples), atol=1e-6, rtol=0)
    lora = LoraConfig(r=2, target_modules="all-linear")
    scalar = scalar_from_config(small_config(words, "llama", hidden=32), words, lora=lora)
    with torch.no_grad():
        for name, weight in scalar.model.named_parameters():
            weight.add_(0.1 * torch.randn_like(weight)) if weight.requires_grad else None
            assert "score" not in name or weight.requires_grad == ("modules_to_save" in name)
    np.testing.assert_allclose(on(scalar, 1.0).rate(examples, states), scalar.rate(examples), atol=1e-6, rtol=0)


def test_states_change_rewards_unless_nothing_comes_out_and_a_seed_draws_one_head(body, examples, states):
    before = body.rate(examples)
    assert np.abs(on(body).rate(examples, states) - 0.6 * before).min() > 1e-4
    np.testing.assert_allclose(on(body, zero_out=True).rate(examples, states), 0.6 * before, atol=1e-6, rtol=0)
    first, again, other = (on(body, seed=seed).head.W_q for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_company_order_and_half_precision_change_little(body, examples, states):
    model = on(body)
    together = model.rate(examples, states)
    alone = np.concatenate([model.rate([one], [its]) for one, its in zip(examples, states, strict=True)])
    np.testing.assert_allclose(together, alone, atol=1e-6, rtol=0)
    np.testing.assert_allclose(model.rate(examples[::-1], states[::-1]), together[::-1], atol=1e-6, rtol=0)
    # bfloat16 keeps 8 bits of each number; what is read is a mean of many
    model = on(body, 0.0)
    exact, rounded = model.rate(examples, states), model.rate(examples, [one.bfloat16() for one in states])
    assert np.abs(exact - rounded).max() < 0.01 * np.abs(exact).max()


def test_the_head_is_the_literal_attention_in_value_and_gradient_and_by_hand(states):
    """No further than 1e-5 from the definition in float64, with a key and a value for every state."""
    head = R2MHead(nn.Linear(12, 2), P, 7, seed=3)
    tokens = torch.randn(len(states), 12, generator=torch.Generator().manual_seed(1))
    packed, bounds = torch.cat(states), bounds_of(torch.tensor([len(one) for one in states]))
    rewards = head(tokens, packed, bounds, 0.3)
    rewards.square().sum().backward()

    exact = {name: one.detach().double().requires_grad_() for name, one in head.named_parameters()}
    matrices = [exact[name] for name in ("W_q", "W_k", "W_v", "W_o")]
    read = reference(tokens.double(), packed.double(), bounds, *matrices)
    mixed = 0.7 * read + 0.3 * tokens.double()
    truth = mixed @ exact["score.weight"].T + exact["score.bias"]
    truth.square().sum().backward()
    torch.testing.assert_close(rewards.double(), truth, atol=1e-5, rtol=1e-5)
    for name, one in head.named_parameters():
        torch.testing.assert_close(one.grad.double(), exact[name].grad, atol=1e-5, rtol=1e-5)
    # With one state attention is 1: Ĥ = h W_v W_o = 2 · 3 · 5 = 30; r = 0.5 (0.75 · 30 + 0.25 · 4) = 11.75.
    head = R2MHead(nn.Linear(1, 1, bias=False), 1, 1)
    with torch.no_grad():
        for one, value in ((head.W_v, 3.0), (head.W_o, 5.0), (head.score.weight, 0.5)):
            one.fill_(value)
    found = head(torch.tensor([[4.0]]), torch.tensor([[2.0]]), torch.tensor([0, 1]), 0.25)
    assert found.item() == pytest.approx(11.75)


def test_no_gradient_reaches_the_states(body, examples, states):
    model, watched = on(body), [one.clone().requires_grad_() for one in states]
    with torch.no_grad():
        tokens = reward_tokens(body, examples)
    model.rewards(tokens, watched).sum().backward()
    assert all(one.grad is None for one in watched)
    assert all(one.grad.any() for one in model.head.parameters())
    assert all(one.grad is None for one in body.model.parameters())


def test_a_reward_token_does_not_depend_on_padding_and_is_read_once(body, examples):
    rows = [encoded.ids for encoded in body.encoder.encode_all(examples)]
    right = pad(rows)
    left = [one.flip(1) for one in pad([row[::-1] for row in rows])]
    with torch.no_grad():
        found = tokens_before_head(body.model, *right)
        torch.testing.assert_close(tokens_before_head(body.model, *left), found, atol=1e-6, rtol=0)
        torch.testing.assert_close(tokens_before_head(body.model, *pad(rows[:1])), found[:1], atol=1e-6, rtol=0)
        torch.testing.assert_close(body.model.score(found), body.score(*right), atol=1e-6, rtol=0)
    read = []
    hook = body.model.score.register_forward_pre_hook(lambda _module, inputs: read.append(len(inputs[0])))
    with torch.no_grad():
        found = reward_tokens(body, [*examples, *examples[::-1]])
    hook.remove()
    assert sum(read) == len(examples)
    assert torch.equal(found[: len(examples)], found[len(examples) :].flip(0))
    with torch.no_grad():
        torch.testing.assert_close(reward_tokens(body, examples[3:4]), found[3:4], atol=1e-6, rtol=0)


def test_the_reward_token_of_an_encoder_is_the_input_of_its_last_linear_layer(words, examples, states):
    shape = {"vocab_size": len(words), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    for kind in (BertConfig, RobertaConfig):  # Roberta's head has two linear layers
        encoder = scalar_from_config(kind(**shape), words, max_length=64)
        assert on(encoder, 1.0).rate(examples, states) == pytest.approx(encoder.rate(examples), abs=1e-6)
        assert on(encoder, 0.6).rate(examples, states) != pytest.approx(encoder.rate(examples), abs=1e-3)


def test_without_states_there_is_no_reward(body, examples):
    with pytest.raises(UsageError, match="reads the policy's hidden states, which are missing"):
        on(body).rate(examples)


def test_a_saved_model_gives_the_same_rewards_from_its_whole_folder(body, examples, states, tmp_path, words):
    model = on(body, 0.7, seed=5)
    model.save(tmp_path / "r2m")
    again = load_reward_model(str(tmp_path / "r2m"))
    assert again.contract == model.contract and again.contract.kind == "r2m"
    np.testing.assert_allclose(again.rate(examples, states), model.rate(examples, states), atol=1e-6, rtol=0)
    on(body).save(tmp_path)
    head = (tmp_path / "feedback.safetensors").read_bytes()
    (tmp_path / "feedback.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match=r"feedback.safetensors: not the head of an R2M reward model .* full folder"):
        load_reward_model(str(tmp_path))
    (tmp_path / "feedback.safetensors").write_bytes(head)
    other = scalar_from_config(small_config(words, "qwen3", hidden=32), words, objectives=("good", "bad"))
    other.save(tmp_path / "body")
    with pytest.raises(DataError, match="body is not the file that was saved with the model"):
        load_reward_model(str(tmp_path))
