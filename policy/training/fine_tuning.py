"""Fine-tuning of policies on files: conversations and pairs as token ids, for TRL's SFT and DPO trainers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from datasets import Dataset
from trl import DPOTrainer, SFTTrainer

from ...rm.backbones.tokenization import EncodedCompletion, Encoder
from ...rm.data.pairs import OnBadRow, RowReport, collect, load_pairs, parse_examples, parse_pair
from ...rm.errors import DataError
from ...rm.training.checkpointing import MarkComplete
from ...rm.training.encoding import Encoding, OnLong, encode_each, encode_labelled
from ...rm.training.learning_signal import SignalCheck
from ...rm.types import OVERALL, Example, PreferencePair
from ..decoding.engines import DecodingModel, positions
from ..step.forward import frozen_copy
from .arguments import DpoArguments, SftArguments

UNLEARNED = -100
"""Label of tokens that are not learned, in PyTorch and TRL."""


class Conversation(NamedTuple):
    """A conversation whose last turns are learned."""

    id: str
    example: Example


# ---- rows ----


def load_conversations(sources: Sequence[str], on_bad_row: OnBadRow) -> tuple[list[Conversation], RowReport]:
    """Load prompts with completions, conversations, and the chosen completions of preference files."""
    return collect(sources, _conversation, on_bad_row, unique_ids=True)


def _conversation(row: Mapping[str, Any]) -> Conversation:
    if "chosen" not in row:
        return Conversation(*parse_examples(row)[0])
    pair = parse_pair(row)
    return Conversation(f"{pair.id}/chosen", (pair.preferred() or pair).examples[0])


def load_preferences(sources: Sequence[str], on_bad_row: OnBadRow) -> tuple[list[PreferencePair], RowReport]:
    """Load preference pairs with the more likely winner as chosen. Drop ties and pairs without a label."""
    pairs, report = load_pairs(sources, on_bad_row=on_bad_row)
    preferred = [(pair, pair.preferred()) for pair in pairs]
    undecided = [pair for pair, winner in preferred if winner is None]
    reasons = {True: "a tie", False: f"no label for '{OVERALL}'"}
    report.dropped += [(f"pair '{pair.id}'", reasons[OVERALL in pair.wins]) for pair in undecided]
    winners = [winner for _, winner in preferred if winner is not None]
    if not winners:
        raise DataError(f"{', '.join(sources)}: none of {len(pairs)} pairs has a preference: {report.reasons}")
    return winners, report


def training_encoder(policy: DecodingModel, max_length: int | None) -> Encoder:
    """Return the policy's encoder, which truncates at the end, beyond `max_length` tokens or the policy's context."""
    limit = min(max_length or positions(policy), positions(policy))
    return Encoder(policy.encoder.tokenizer, replace(policy.encoder.contract, max_length=limit, truncation="right"))


def encode_conversations(encoder: Encoder, conversations: Sequence[Conversation], on_long: OnLong) -> Encoding:
    """Tokenise conversations for TRL's SFTTrainer. Labels are the completion's tokens, without results of tools."""

    def row(_: Conversation, encoded: EncodedCompletion) -> dict[str, Any] | None:
        labels = [UNLEARNED] * encoded.start + encoded.ids[encoded.start :]
        for span in encoded.tool_results:
            labels[span.start : span.stop] = [UNLEARNED] * len(span)
        return {"input_ids": encoded.ids, "labels": labels} if {*labels} != {UNLEARNED} else None

    encoded = [encoder.encode_completion(conversation.example) for conversation in conversations]
    limit = encoder.contract.max_length
    encoding = encode_each(conversations, encoded, row, noun="conversation", limit=limit, on_long=on_long)
    if not encoding.rows:
        raise DataError(
            f"none of {len(conversations)} conversations is left to train on: {encoding.over_length} over {limit} "
            "tokens; raise --max_length, or set --on_long truncate"
        )
    return encoding


def encode_preferences(encoder: Encoder, pairs: Sequence[PreferencePair], on_long: OnLong) -> Encoding:
    """Tokenise pairs for TRL's DPOTrainer: the shared beginning of both token sequences, and the rest of each."""

    def row(_: int, pair: PreferencePair, chosen: EncodedCompletion, rejected: EncodedCompletion) -> dict[str, Any]:
        start = min(chosen.start, rejected.start)
        return {
            "prompt_ids": chosen.ids[:start],
            "chosen_ids": chosen.ids[start:],
            "rejected_ids": rejected.ids[start:],
        }

    def encode(examples: list[Example]) -> list[EncodedCompletion]:
        return [*map(encoder.encode_completion, examples)]

    return encode_labelled(encoder, pairs, [OVERALL], row, on_long=on_long, encode=encode)


# ---- trainers ----


class PreferenceTrainer(DPOTrainer):
    """TRL's DPOTrainer for rows that `encode_preferences` has already tokenised."""

    def _prepare_dataset(self, dataset, processing_class, args, dataset_name):
        return dataset


def fine_tuning_trainer(
    policy: DecodingModel,
    arguments: SftArguments | DpoArguments,
    rows: Sequence[Any],
    eval_rows: Sequence[Any] | None,
    *,
    reference: Any = None,
    peft_config: Any = None,
) -> Any:
    """Return the trainer of a policy. The reference policy of DPO is by default the initial policy."""
    options: dict[str, Any] = {}
    if isinstance(arguments, DpoArguments):
        if reference is None and peft_config is None:  # with adapters it is the policy without them
            reference = frozen_copy(policy.model)
        options["ref_model"] = reference
    trainer = PreferenceTrainer if isinstance(arguments, DpoArguments) else SFTTrainer
    return trainer(
        model=policy.model,
        args=arguments,
        train_dataset=Dataset.from_list([*rows]),
        eval_dataset=Dataset.from_list([*eval_rows]) if eval_rows else None,
        processing_class=policy.encoder.tokenizer,
        peft_config=peft_config,
        callbacks=[MarkComplete(), SignalCheck()],
        **options,
    )
