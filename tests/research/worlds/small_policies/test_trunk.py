import numpy as np
import pytest
import torch
from rewardlab.benchmarks.garden import supervised_examples
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.policy.step.forward import CompletionBatch, install
from rewardlab.research.worlds.policies import untaught
from rewardlab.research.worlds.small_policies import completion_readings, proxy_rewards
from rewardlab.research.worlds.small_policies.trunk import layout_of, trunk_of
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import Example, user_turn

from tests.research.worlds.small_policies.conftest import random_policy


def test_a_layout_has_each_distinct_prompt_once(rows):
    layout = layout_of(rows)
    T = len(layout.tokens)
    assert T == (3 + 5 + 4) + (2 + 6 + 1 + 4)
    for row in range(4):
        context = layout.context[row]
        assert layout.tokens[context[context < T]].tolist() == rows.tokens[row][rows.attention[row]].tolist()
        assert layout.positions[context[context < T]].tolist() == [*range(int(rows.attention[row].sum()))]


def test_readings_equal_those_of_the_policys_forward(policy, rows):
    read = completion_readings(policy, rows)
    install(policy)
    expected = policy(completions=rows)
    torch.testing.assert_close(read.logprob, expected.logprob, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(read.entropy, expected.entropy, atol=1e-5, rtol=1e-5)
    live = rows.attention[..., None]
    torch.testing.assert_close(read.states * live, expected.states * live, atol=1e-5, rtol=1e-4)


def test_gradients_equal_those_of_the_policys_forward(policy, rows):
    weight = torch.linspace(-1, 1, rows.response.numel()).view_as(rows.response)
    gradients = []
    for read in (completion_readings, lambda model, batch: (install(model), model(completions=batch))[1]):
        (read(policy, rows).logprob * weight).sum().backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in policy.named_parameters()})
        policy.zero_grad()
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-3)


def test_order_and_padding_of_rows_change_nothing(policy, rows):
    read = completion_readings(policy, rows)
    order = torch.tensor([2, 0, 3, 1])
    other = completion_readings(policy, CompletionBatch(*(field[order] for field in rows)))
    torch.testing.assert_close(other.logprob, read.logprob[order], atol=1e-6, rtol=1e-5)
    alone = CompletionBatch(rows.tokens[2:3, :4], rows.attention[2:3, :4], rows.start[2:3], rows.response[2:3])
    torch.testing.assert_close(completion_readings(policy, alone).logprob, read.logprob[2:3], atol=1e-6, rtol=1e-5)


def test_another_architecture_is_refused():
    with pytest.raises(UsageError, match="small Qwen 3 models, got 'llama'"):
        trunk_of(causal_lm(tokenizer(), "llama"))


def test_rewards_equal_those_of_the_model_on_the_texts():
    words = tokenizer()
    model = untaught(random_policy(1), seed=3)
    model.model.eval()
    texts = [*supervised_examples(6, 0), Example(user_turn("tell me about bees"), "honey <unk> hive <|user|> wax")]
    ids = [model.encoder.encode_all([text])[0].ids for text in texts]
    starts = [len(model.encoder.encode_prompt(text.prompt)) for text in texts]
    ids[1] = ids[1][:-1]  # truncated: the end of text is missing
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], batch_first=True)
    attention = torch.arange(tokens.shape[1]) < torch.tensor([len(row) for row in ids])[:, None]
    response = torch.arange(32) < (attention.sum(1) - torch.tensor(starts))[:, None]
    rewards = proxy_rewards(model, CompletionBatch(tokens, attention, torch.tensor(starts), response))
    plain = [*texts[:-1], Example(texts[-1].prompt, words.decode(ids[-1][starts[-1] :], skip_special_tokens=True))]
    np.testing.assert_allclose(rewards.numpy(), model.rate(plain)[:, 0], atol=1e-5)
