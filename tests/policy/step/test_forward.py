"""What a policy says of whole answers, however they are padded."""

import copy

import pytest
import torch
from rewardlab.benchmarks.garden import models
from rewardlab.policy.step.forward import (
    completion_batch,
    completion_states,
    frozen_copy,
    install,
    own_states,
    prompt_logprobs,
    soup,
    vocabulary_logprobs,
)
from rewardlab.rm.errors import DataError, UsageError
from transformers import AutoConfig, AutoModelForCausalLM

PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12]]
SAID = [[13, 14, 15, 16], [17, 18]]


def rows(prompts=PROMPTS, said=SAID, *, left=0, right=0):
    """As TRL pads them: prompts on the left, answers on the right; with more padding where asked."""
    P, L = max(map(len, prompts)) + left, max(map(len, said)) + right
    prompt = torch.tensor([[1] * (P - len(one)) + one for one in prompts])
    prompt_mask = torch.tensor([[0] * (P - len(one)) + [1] * len(one) for one in prompts])
    answer = torch.tensor([one + [1] * (L - len(one)) for one in said])
    mask = torch.tensor([[1] * len(one) + [0] * (L - len(one)) for one in said])
    return completion_batch(prompt, prompt_mask, answer, mask, mask.bool())


def of_architecture(name, **shape):
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 2} if name != "gpt2" else {}
    edges = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, vocab_size=50, **edges, **sizes, **shape)
    model = AutoModelForCausalLM.from_config(config).double().eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)
    return model


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("llama", {}),
        ("gemma2", {"final_logit_softcapping": 5.0, "head_dim": 8}),
        ("granite", {"logits_scaling": 7.0}),
        ("gpt2", {"n_embd": 16, "n_layer": 2, "n_head": 2}),
    ],
)
def test_log_probabilities_and_entropies_are_those_of_the_models_own_logits(name, shape):
    model, temperature = of_architecture(name, **shape), 0.7
    direct = copy.deepcopy(model)
    install(model, temperature=temperature)
    read = model(completions=rows())
    for row, (prompt, said) in enumerate(zip(PROMPTS, SAID, strict=True)):
        logits = direct(torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1] / temperature
        logp = logits.log_softmax(-1)
        truth = logp[torch.arange(len(said)), said]
        torch.testing.assert_close(read.logprob[row, : len(said)], truth, atol=1e-6, rtol=0)
        entropy = -(logp.exp() * logp).sum(-1)
        torch.testing.assert_close(read.entropy[row, : len(said)], entropy, atol=1e-6, rtol=0)
        assert not read.logprob[row, len(said) :].any()


def test_prompts_and_whole_vocabularies_have_the_models_own_log_probabilities():
    model, temperature = of_architecture("gemma2", final_logit_softcapping=5.0, head_dim=8), 0.7
    direct, padded = copy.deepcopy(model), rows(left=2)
    install(model, temperature=temperature)
    states = completion_states(model(completions=padded).states, padded)[:, :-1]
    over = vocabulary_logprobs(model, temperature)(states[padded.response]).split([4, 2])
    found = prompt_logprobs(lambda batch: model(completions=batch), padded)
    assert found.shape == (2, 4) and found[0, 2:].isnan().all()
    for row, (prompt, said) in enumerate(zip(PROMPTS, SAID, strict=True)):
        logp = (direct(torch.tensor([prompt + said])).logits[0] / temperature).log_softmax(-1)
        truth = logp[torch.arange(len(prompt) - 1), prompt[1:]]
        torch.testing.assert_close(found[row, : len(prompt) - 1], truth, atol=1e-6, rtol=0)
        truth = logp[len(prompt) - 1 : -1].float()
        torch.testing.assert_close(over[row].float(), truth, atol=1e-4, rtol=0)
    with pytest.raises(UsageError, match="head that is a linear layer on the last hidden states"):
        vocabulary_logprobs(of_architecture("granite", logits_scaling=7.0), 1.0)


def test_padding_changes_nothing_and_other_calls_are_as_before():
    model = of_architecture("gpt2", n_embd=16, n_layer=2, n_head=2)  # absolute positions
    install(model)
    plain, padded = model(completions=rows()), model(completions=rows(left=3, right=2))
    torch.testing.assert_close(plain.logprob, padded.logprob[:, :4], atol=1e-12, rtol=0)
    model = of_architecture("llama")
    tokens = torch.tensor([[5, 6, 7]])
    before, drawn = model(tokens).logits, model.generate(tokens, max_new_tokens=4, do_sample=False)
    install(model)
    assert torch.equal(model(tokens).logits, before)
    assert torch.equal(model.generate(tokens, max_new_tokens=4, do_sample=False), drawn)


def test_states_of_answers_and_of_whole_rows():
    model = of_architecture("llama")
    install(model)
    padded = rows(left=2)
    read = model(completions=padded)
    alone = model.get_decoder()(torch.tensor([PROMPTS[0] + SAID[0]])).last_hidden_state[0]
    chosen = completion_states(read.states, padded)
    torch.testing.assert_close(chosen[0], alone[2:7], atol=1e-12, rtol=0)  # 3 tokens of prompt, 4 of the answer
    own = own_states(read.states, padded)
    assert [len(one) for one in own] == [6, 6]  # 7 tokens each, the first is predicted by none
    assert torch.equal(own[0], alone[:6].bfloat16()) and own[0]._base is None  # a copy, not a view of padded rows


def test_gradients_reach_the_policy_and_not_a_frozen_copy():
    model = of_architecture("llama")
    reference = frozen_copy(model)
    for one in (model, reference):
        install(one)
    model(completions=rows()).logprob.sum().backward()
    assert all(one.grad is not None for one in model.parameters())
    assert not any(one.requires_grad for one in reference.parameters())
    with torch.no_grad():
        model.get_input_embeddings().weight.zero_()
    assert reference.get_input_embeddings().weight.any()


def test_a_soup_lies_between_two_models():
    words = models.tokenizer()
    one, other = (models.causal_lm(words, seed=seed) for seed in (0, 1))
    mixed = soup(one, other, 0.25)
    name = "model.layers.0.self_attn.q_proj.weight"
    ours, theirs = (model.state_dict()[name] for model in (one, other))
    torch.testing.assert_close(mixed.state_dict()[name], 0.75 * ours + 0.25 * theirs)
    assert torch.equal(soup(one, other, 0.0).state_dict()[name], ours)
    with pytest.raises(DataError, match="of this shape; pass two fine-tunings"):
        soup(one, models.causal_lm(words, "llama"), 0.5)
    with pytest.raises(ValueError, match=r"\[0, 1\], got 2"):
        soup(one, other, 2.0)
