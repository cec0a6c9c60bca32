"""judges/backends/local_model.py: a small language model of the garden as a chat."""

import copy

import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.backends.local_model import chat_from_model, local
from rewardlab.rm.types import Message, user_turn
from transformers import AutoConfig, AutoModelForCausalLM


@pytest.fixture(scope="module")
def words():
    return models.tokenizer()


@pytest.fixture(scope="module")
def model(words):
    policy = models.causal_lm(words, seed=3)
    models.pretrain(policy, words, garden.supervised_examples(200, seed=0), steps=40, batch_size=16)
    return policy


@pytest.fixture(scope="module")
def chat(model, words):
    return chat_from_model(model, words, name="garden")


def asks(number, **options):
    return [Ask(prompt, **{"max_tokens": 40} | options) for prompt in garden.prompts(number, 0)]


def texts(replies):
    return [(reply.text, reply.finish, reply.prompt_tokens, reply.completion_tokens, reply.error) for reply in replies]


def test_a_greedy_reply_is_what_the_model_writes_alone_and_a_seed_draws_the_same_again(chat, model, words):
    for ask, reply in zip(asks(3), chat.ask(asks(3)), strict=True):
        ids = words.apply_chat_template(list(ask.messages), add_generation_prompt=True, return_dict=False)
        read = {"inputs": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids)).long()}
        alone = model.generate(**read, max_new_tokens=40, do_sample=False)
        said = alone[0, len(ids) :].tolist()
        assert reply.text == words.decode(said, skip_special_tokens=True)
        assert (reply.prompt_tokens, reply.completion_tokens) == (len(ids), len(said))
        assert reply.finish == ("stop" if said[-1] == words.eos_token_id else "length")
    (ask,) = asks(1, temperature=1.0)
    seeded = [ask._replace(seed=seed) for seed in (1, 1, 2, 3, 4)]
    said = [reply.text for reply in chat.ask(seeded)]
    assert said[0] == said[1] and len({*said}) > 2
    assert len({reply.text for reply in chat.ask([ask] * 6)}) > 2
    arrived = {}
    replies = chat.ask(asks(5), arrived.__setitem__)
    assert [arrived[place] for place in range(5)] == replies and chat.ask([]) == []


def test_a_request_that_the_template_refuses_or_shortens_has_no_reply(model, words):
    template = copy.deepcopy(words)
    template.chat_template = "{% for m in messages %}{{ m.content[:5] }} {% endfor %}"
    (reply,) = chat_from_model(model, template).ask(asks(1))
    assert reply.text == "" and "chat template leaves out" in reply.error
    words = models.tokenizer()
    words.chat_template = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    words.chat_template += models.TEMPLATE
    (plain,) = asks(1)
    strict = plain._replace(messages=(Message(role="system", content="be strict"), *plain.messages))
    refused, answered = chat_from_model(model, words).ask([strict, plain])
    assert "refuses roles ['system', 'user']: no system here" in refused.error and answered.text


def test_neither_batch_size_nor_order_nor_the_models_own_settings_for_generation_matter(model, words, chat):
    mixed = [ask._replace(temperature=(0.0, 0.7, 1.3)[place % 3], seed=5) for place, ask in enumerate(asks(8))]
    mixed[4] = mixed[4]._replace(max_tokens=3)
    found = [texts(chat_from_model(model, words, batch_size=size).ask(mixed)) for size in (1, 8)]
    assert found[0] == found[1]
    assert texts(chat_from_model(model, words, batch_size=5).ask(mixed[::-1])) == found[0][::-1]
    assert found[0][4][1] == "length" and found[0][4][3] == 3
    assert {one[1] for one in found[0]} == {"stop", "length"}
    other = copy.deepcopy(model)
    other.generation_config.repetition_penalty = 5.0
    other.generation_config.do_sample = True
    assert texts(chat_from_model(other, words).ask(asks(4))) == texts(chat.ask(asks(4)))
    assert other.generation_config.repetition_penalty == 5.0


def test_draws_follow_the_models_probabilities(chat, model, words):
    (ask,) = asks(1, temperature=0.5, max_tokens=1)
    ids = words.apply_chat_template(list(ask.messages), add_generation_prompt=True, return_dict=False)
    with torch.no_grad():
        chances = (model(torch.tensor([ids])).logits[0, -1].double() / 0.5).softmax(-1)
    number, decoded = 600, [words.decode([token], skip_special_tokens=True) for token in range(len(chances))]
    replies = chat_from_model(model, words, batch_size=number).ask([ask._replace(seed=seed) for seed in range(number)])
    for token in chances.topk(5).indices.tolist():
        share = sum(reply.text == decoded[token] for reply in replies) / number
        chance = sum(chances[other] for other, text in enumerate(decoded) if text == decoded[token])
        assert abs(share - chance) < 4 * (chance * (1 - chance) / number) ** 0.5


def test_a_prompt_that_fills_the_context_is_an_error_and_one_beside_a_long_reply_stays_within_it(chat, words):
    long = Ask(user_turn("roses " * 300))
    replies = chat.ask([long, *asks(1)])
    assert replies[0].error == "the prompt has 303 tokens, the model's context is 256" and not replies[1].error
    (cut,) = chat.ask([Ask(user_turn("roses " * 250), max_tokens=50)])
    assert cut.completion_tokens <= 256 - 253
    sizes = {"n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2}
    config = AutoConfig.for_model("gpt2", vocab_size=len(words), eos_token_id=words.eos_token_id, **sizes)
    torch.manual_seed(0)
    chat = chat_from_model(AutoModelForCausalLM.from_config(config), words)
    mixed = [Ask(user_turn("roses " * 50), max_tokens=50), Ask(user_turn("bees"), max_tokens=50)]
    together, alone = chat.ask(mixed), [chat.ask([ask])[0] for ask in mixed]
    assert texts(together) == texts(alone)
    assert together[0].completion_tokens <= 64 - 53 and not any(reply.error for reply in together)


def test_a_folder_is_loaded_and_its_weights_are_in_the_name(model, words, tmp_path):
    other = models.causal_lm(words, seed=4)
    for name, saved in (("judge", model), ("new", other)):
        saved.save_pretrained(tmp_path / name)
        words.save_pretrained(tmp_path / name)
    loaded = local(str(tmp_path / "judge"), device="cpu")
    assert loaded.name == chat_from_model(model, words, name="judge").name
    assert loaded.name != local(str(tmp_path / "new"), device="cpu").name.replace("new", "judge")
    assert texts(loaded.ask(asks(3))) == texts(chat_from_model(model, words).ask(asks(3)))
