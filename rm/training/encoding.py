"""Preference pairs as tokenised rows and batches, with counts of what was dropped or truncated."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ..backbones.tokenization import Encoder
from ..errors import DataError
from ..types import OVERALL, Example, PreferencePair, prompt_text

REMEDY = (
    "give one that renders it with --chat_template FILE, or --chat_template plain, or leave such rows out with "
    "rewardlab lint --model MODEL --fix FILE"
)
"""Remedy in messages about texts that a chat template omits."""
OnLong = Literal["truncate", "skip", "refuse"]


class Encoding(NamedTuple):
    """Rows to train on, and counts of the pairs that were dropped or truncated."""

    rows: list[Any]
    pairs: int
    limit: int | None
    longest: int
    """Number of tokens of the longest sequence before truncation."""
    over_length: int
    """Number of pairs with a sequence over the maximum length: truncated, or dropped with `skip`."""
    identical: int
    """Number of pairs dropped because both completions are identical after truncation."""
    unlabelled: int
    """Number of pairs dropped because they have no label for the objectives."""
    omitted: int = 0
    """Number of pairs with a text that the chat template omits."""
    omitted_text: str = ""
    """First text that the chat template omits."""

    def account(self) -> dict[str, int | str | None]:
        """Return the counts as a JSON object, for the manifest."""
        return {name: value for name, value in self._asdict().items() if name != "rows"} | {"kept": len(self.rows)}

    def lines(self, name: str, noun: str, on_long: OnLong) -> list[str]:
        """Return sentences about the truncated and dropped rows of `name`, and text that the chat template omits."""
        lines = []
        if self.over_length:
            verb = "truncated" if on_long == "truncate" else "left out"
            lines.append(
                f"{name}: {self.over_length} of {self.pairs} {noun} exceed {self.limit} tokens and were {verb}"
            )
        if self.identical or self.unlabelled:
            equal, unlabelled = self.identical, self.unlabelled
            lines.append(f"{name}: left out {equal} {noun} identical after truncation, {unlabelled} unlabelled")
        if self.omitted:
            text = self.omitted_text[:60]
            lines.append(
                f"{name}: the chat template leaves out text of {self.omitted} of {self.pairs} {noun}: {text!r}"
            )
        return lines


def encode_labelled(
    encoder: Encoder,
    pairs: Sequence[PreferencePair],
    objectives: Sequence[str],
    row: Callable[[int, PreferencePair, Any, Any], Any],
    *,
    on_long: OnLong = "truncate",
    allow_empty: bool = False,
    encode: Callable[[list[Example]], Sequence[Any]] | None = None,
) -> Encoding:
    """Return rows of the usable pairs: labelled, different after truncation, and not dropped by `on_long`.

    `row` creates a row from index, pair and encoded completions; `encode` is by default the encoder's `encode_all`.
    Pairs without a label for any objective are dropped. Raise `DataError` if no pair is usable, unless `allow_empty`
    (a block of a stream), or if the completions of a pair differ in a text that the chat template omits.
    """
    sides = (encode or encoder.encode_all)([example for pair in pairs for example in pair.examples])
    encoded, limit = list(zip(sides[::2], sides[1::2], strict=True)), encoder.contract.max_length
    rows, over, identical, unlabelled = [], 0, 0, 0
    for index, (pair, (chosen, rejected)) in enumerate(zip(pairs, encoded, strict=True)):
        length = max(chosen.length, rejected.length)
        too_long = length > (limit or sys.maxsize)
        over += too_long
        if too_long and on_long == "refuse":
            raise _too_long_error(f"pair '{pair.id}'", length, limit)
        if too_long and on_long == "skip":
            continue
        if chosen.ids == rejected.ids:
            if not too_long and (omitted := chosen.omitted or rejected.omitted):
                raise DataError(
                    f"pair '{pair.id}' ({prompt_text(pair.prompt)[:60]!r}): chosen and rejected are the same tokens, "
                    f"since the chat template leaves out {omitted[:60]!r}; {REMEDY}"
                )
            identical += 1
        elif np.isnan([pair.chance(name) for name in objectives]).all():
            unlabelled += 1
        else:
            rows.append(row(index, pair, chosen, rejected))
    if not (rows or allow_empty):
        raise _no_rows_error(pairs, over, on_long, limit, identical, objectives)
    longest = max(max(encoded.length for encoded in both) for both in encoded)
    return Encoding(rows, len(pairs), limit, longest, over, identical, unlabelled, *omitted_texts(encoded))


def encode_each(
    items: Sequence[Any],
    encoded: Sequence[Any],
    row: Callable[[Any, Any], Any],
    *,
    noun: str,
    limit: int | None,
    on_long: OnLong = "truncate",
) -> Encoding:
    """Return rows of single items (each has an `id`) from their encodings, in order; counts are of items, not pairs.

    `row` creates a row, or returns None for an item without anything to learn, which counts as unlabelled.
    """
    rows, over, unlabelled = [], 0, 0
    for item, tokens in zip(items, encoded, strict=True):
        too_long = limit is not None and tokens.length > limit
        over += too_long
        if too_long and on_long == "refuse":
            raise _too_long_error(f"{noun} '{item.id}'", tokens.length, limit)
        if too_long and on_long == "skip":
            continue
        learnable = row(item, tokens)
        unlabelled += learnable is None
        rows += [] if learnable is None else [learnable]
    longest = max((tokens.length for tokens in encoded), default=0)
    return Encoding(rows, len(items), limit, longest, over, 0, unlabelled, *omitted_texts([[t] for t in encoded]))


def _too_long_error(row: str, length: int, limit: int | None) -> DataError:
    """Return the error for a row that is too long where `on_long` is `refuse`."""
    remedy = "raise --max_length, or set --on_long truncate or skip"
    return DataError(f"{row} has {length} tokens and the limit is {limit}; {remedy}")


def concatenate_encodings(parts: Sequence[Encoding]) -> Encoding:
    """Concatenate the rows of several encodings, and add their counts."""
    counts = ((part.over_length, part.identical, part.unlabelled, part.omitted) for part in parts)
    return Encoding(
        [row for part in parts for row in part.rows],
        sum(part.pairs for part in parts),
        parts[0].limit,
        max(part.longest for part in parts),
        *map(sum, zip(*counts, strict=True)),
        next((part.omitted_text for part in parts if part.omitted), ""),
    )


def omitted_texts(encoded: Sequence[Sequence[Any]]) -> tuple[int, str]:
    """Return the number of rows with a text that the chat template omits, and the first such text."""
    texts = [text for row in encoded if (text := next((part.omitted for part in row if part.omitted), ""))]
    return len(texts), texts[0] if texts else ""


def _no_rows_error(
    pairs: Sequence[PreferencePair],
    too_long: int,
    on_long: OnLong,
    limit: int | None,
    identical: int,
    objectives: Sequence[str],
) -> DataError:
    """Return the error for data without usable pairs, with the remedy for the most frequent reason."""
    over = too_long if on_long == "skip" else 0
    unlabelled, labels = len(pairs) - over - identical, sorted({name for pair in pairs for name in pair.wins})
    listed = ", ".join(objectives)
    remedy = f"their labels are {', '.join(labels) or 'none'}: name one of them with --objective"
    if OVERALL in labels:  # which --data NAME=FILE turns into that of NAME
        remedy += f", or say with --data {objectives[0]}=FILE which objective the pairs of a file are labelled for"
    if over + identical >= unlabelled:
        remedy = "raise --max_length" + (", or set --on_long truncate" if over else "")
        remedy = remedy if too_long else "the tokenizer has no tokens for the differences; start from another --model"
    return DataError(
        f"none of {len(pairs)} pairs is left to train on: {over} over {limit} tokens, {identical} identical after "
        f"truncation, {unlabelled} without a label for '{listed}'; {remedy}"
    )
