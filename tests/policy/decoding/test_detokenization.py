"""Text from tokens: nothing lost, nothing taken back, and ends where it should."""

import random

import pytest
from rewardlab.policy.decoding.guided import CompletionReader, TextStream
from rewardlab.policy.decoding.requests import Request
from rewardlab.rm.backbones.loading import small_tokenizer
from rewardlab.rm.types import user_turn

TEXT = "naïve bees 🌱🐝 hum near the 花园.\n\nQuestion: what is honey? Questions end."


@pytest.fixture(scope="module")
def tokenizer():
    return small_tokenizer(["plain words only, question and honey"], vocabulary=300)


def reader(tokenizer, room=1000, **settings):
    request = Request(user_turn("x"), **{"max_new_tokens": 500} | settings)
    return CompletionReader(request, tokenizer, frozenset({tokenizer.eos_token_id}), room)


def chunks(tokens, size):
    return [tokens[start : start + size] for start in range(0, len(tokens), size)]


@pytest.mark.parametrize("size", [1, 16])
def test_a_stop_string_ends_the_text_before_it_however_many_tokens_come_at_once(tokenizer, size):
    tokens = tokenizer(TEXT).input_ids
    one = reader(tokenizer, stop=("Questions", "\nQuestion:"))
    pieces = []
    for chunk in chunks(tokens, size):
        pieces.append(one.read(chunk))
        if one.finished:
            break
    assert one.finished == "stop"
    assert "".join(pieces) == one.text() == TEXT.partition("\nQuestion:")[0]
    assert tokenizer.decode(one.tokens).endswith("\nQuestion:")


def test_what_only_looked_like_a_stop_string_is_given_after_all_and_a_special_token_may_be_one(tokenizer):
    one = reader(tokenizer, stop=("honey cake",))
    pieces = [one.read([token]) for token in tokenizer("honey tea honey").input_ids]
    assert one.read([tokenizer.eos_token_id]) == "honey"
    assert "".join(pieces) == "honey tea " and one.text() == "honey tea honey"
    user = tokenizer.convert_tokens_to_ids("<|user|>")
    one = reader(tokenizer, stop=("<|user|>",))
    one.read([*tokenizer("tea").input_ids, user, user])
    assert one.finished == "stop" and one.text() == "tea" and one.tokens[-1] == user


@pytest.mark.parametrize("size", [1, 3, 16])
def test_pieces_of_any_tokens_add_up_to_the_text(tokenizer, size):
    user, broken = tokenizer.convert_tokens_to_ids("<|user|>"), tokenizer("🌱").input_ids
    bees, honey = tokenizer("bees and").input_ids, tokenizer(" honey").input_ids
    generator = random.Random(0)
    rows = {
        "a text": [*tokenizer(TEXT).input_ids, tokenizer.eos_token_id],
        "a special token": [*bees, user, *honey],
        "special tokens": [user, *bees, *[user] * 9, *broken[:2], user, *broken[2:], *honey],
        "invalid bytes": broken[:1] * 9,
        "broken characters": [*broken[:3], *broken, *broken[:3], *bees],
        "any ids": generator.choices(range(len(tokenizer)), k=200),
    }
    for name, tokens in rows.items():
        stream, one = TextStream(tokenizer), reader(tokenizer, ignore_eos=True, max_new_tokens=len(tokens))
        pieces = [one.read(chunk) for chunk in chunks(tokens, size)]
        assert "".join(pieces) == one.text() and (name != "a text" or one.text() == TEXT), name
        stream.add(tokens)
        assert one.text().startswith(stream.text) and len(one.text()) - len(stream.text) < 4, name
    assert one.finished == "length"


def test_length_context_and_eos_are_told_apart(tokenizer):
    tokens = tokenizer("plain words only").input_ids[:4]
    for settings, finished, number in [
        ({"max_new_tokens": 3}, "length", 3),
        ({"room": 3}, "context", 3),
        ({"max_new_tokens": 3, "room": 3}, "length", 3),
        ({}, None, 4),
    ]:
        one = reader(tokenizer, **settings)
        one.read(tokens)
        assert (one.finished, len(one.tokens)) == (finished, number)
    eos = tokenizer.eos_token_id
    one, other = reader(tokenizer, max_new_tokens=3), reader(tokenizer, max_new_tokens=3, ignore_eos=True)
    one.read([eos, eos, eos]), other.read([eos, eos, eos])
    assert (one.finished, one.tokens, other.finished) == ("eos", [eos], "length")
