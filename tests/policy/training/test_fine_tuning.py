"""Conversations and pairs as token ids, beside TRL's own tokenisation."""

from dataclasses import replace

import pytest
from datasets import Dataset
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.policy.decoding.engines import decoding_model
from rewardlab.policy.training.arguments import DpoArguments, SftArguments
from rewardlab.policy.training.fine_tuning import (
    Conversation,
    encode_conversations,
    encode_preferences,
    load_conversations,
    load_preferences,
    training_encoder,
)
from rewardlab.rm.data.pairs import pair_row
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import Completion, Example, Message, user_turn
from trl import DPOTrainer, SFTTrainer

from tests.apps.judging import write

OFF = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none", "disable_tqdm": True}


@pytest.fixture(scope="module")
def policy():
    return decoding_model(models.causal_lm(models.tokenizer()), models.tokenizer())


@pytest.fixture(scope="module")
def pairs():
    return garden.pairs(6, 0)


def texts(pair) -> dict:
    sides = {name: [dict(role="assistant", content=getattr(pair, name))] for name in ("chosen", "rejected")}
    return {"prompt": [dict(turn) for turn in pair.prompt]} | sides


def test_rows_are_those_of_trl_where_its_tokens_are_those_of_the_contract(policy, pairs, tmp_path):
    encoder = training_encoder(policy, 64)
    theirs = DPOTrainer(
        policy.model,
        ref_model=models.causal_lm(models.tokenizer()),
        args=DpoArguments(str(tmp_path), **OFF),
        train_dataset=Dataset.from_list([texts(pair) for pair in pairs]),
        processing_class=models.tokenizer(),
    ).train_dataset
    ours = encode_preferences(encoder, pairs, "truncate").rows
    assert ours == [{name: row[name] for name in ("prompt_ids", "chosen_ids", "rejected_ids")} for row in theirs]
    rows = [{"prompt": texts(pair)["prompt"], "completion": texts(pair)["chosen"]} for pair in pairs]
    theirs = SFTTrainer(
        models.causal_lm(models.tokenizer()),
        args=SftArguments(str(tmp_path), **OFF),
        train_dataset=Dataset.from_list(rows),
        processing_class=models.tokenizer(),
    ).train_dataset
    ours = encode_conversations(encoder, [Conversation(pair.id, pair.examples[0]) for pair in pairs], "truncate").rows
    assert ours == [{name: row[name] for name in ("input_ids", "labels")} for row in theirs]


def test_long_rows_lose_their_end_or_are_left_out(policy, pairs):
    whole = encode_preferences(training_encoder(policy, None), pairs, "truncate")
    lengths = [len(row["prompt_ids"]) + max(map(len, (row["chosen_ids"], row["rejected_ids"]))) for row in whole.rows]
    limit = sorted(lengths)[2]
    encoder = training_encoder(policy, limit)
    cut = encode_preferences(encoder, pairs, "truncate")
    assert cut.over_length == sum(length > limit for length in lengths) > 0
    for row, before in zip(cut.rows, whole.rows, strict=True):
        room = limit - len(before["prompt_ids"])
        assert row["chosen_ids"] == before["chosen_ids"][:room] and row["prompt_ids"] == before["prompt_ids"]
    assert len(encode_preferences(encoder, pairs, "skip").rows) == len(pairs) - cut.over_length
    with pytest.raises(DataError, match="raise --max_length"):
        encode_preferences(encoder, pairs, "refuse")
    conversations = [Conversation("x", pair.examples[0]) for pair in pairs]
    with pytest.raises(DataError, match=r"none of 6 conversations is left to train on: 6 over 2 tokens"):
        encode_conversations(training_encoder(policy, 2), conversations, "skip")


def test_results_of_tools_are_read_and_not_learned(policy):
    calls = [{"type": "function", "function": {"name": "look", "arguments": {}}}]
    turns = (
        Message(role="assistant", content="bees", tool_calls=calls),
        Message(role="tool", content="honey honey"),
        Message(role="assistant", content="wings"),
    )
    encoder = training_encoder(policy, None)
    (row,) = encode_conversations(
        encoder, [Conversation("x", Example(user_turn("tell me about bees"), Completion(turns)))], "truncate"
    ).rows
    spans = encoder.encode_completion(Example(user_turn("tell me about bees"), Completion(turns))).tool_results
    assert spans and all(row["labels"][index] == -100 for span in spans for index in span)
    assert row["labels"][-2:] == row["input_ids"][-2:]


def test_preferences_are_ordered_by_their_labels_and_others_dropped_by_reason(tmp_path, pairs):
    labels = [{"overall": share} for share in (1.0, 0.2, 0.5)] + [{"helpful": 1.0}]
    rows = [pair_row(replace(pair, wins=wins)) for pair, wins in zip(pairs, labels, strict=False)]
    loaded, report = load_preferences([write(tmp_path / "pairs.jsonl", rows)], "refuse")
    assert [pair.chosen for pair in loaded] == [pairs[0].chosen, pairs[1].rejected]
    assert report.reasons == {"a tie": 1, "no label for 'overall'": 1} and report.read == 4
    with pytest.raises(
        DataError, match="none of 2 pairs has a preference: {'a tie': 1, \"no label for 'overall'\": 1}"
    ):
        load_preferences([write(tmp_path / "ties.jsonl", rows[2:])], "refuse")


def test_conversations_are_completions_messages_and_what_is_preferred(tmp_path, pairs):
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    rows = [{"prompt": "q", "completion": "a"}, {"messages": turns}]
    rows += [dict(pair_row(replace(pairs[0], wins={"overall": share}))) for share in (0.9, 0.5, 0.2)]
    rows = [row | {"id": number} for number, row in enumerate(rows)]
    loaded, _ = load_conversations([write(tmp_path / "rows.jsonl", rows)], "refuse")
    chosen, rejected = pairs[0].examples
    assert [item.example for item in loaded] == [Example(user_turn("q"), "a")] * 2 + [chosen, chosen, rejected]


def test_arguments_without_an_effect_are_refused(tmp_path):
    for arguments, name in ((SftArguments, "assistant_only_loss"), (DpoArguments, "padding_free")):
        with pytest.raises(UsageError, match=f"{name} is not read here"):
            arguments(str(tmp_path), **OFF, **{name: True})
