"""Prompts for policy training: rows of prompt and preference files, and their sampling in each step."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from random import Random
from typing import Any, NamedTuple

from datasets import Dataset

from ...rm.data.messages_and_tools import as_columns, parsed_messages
from ...rm.data.pairs import (
    RowReport,
    check_filled,
    collect,
    column,
    parse_pair,
    read_prompts,
    refuse_bad_rows,
    row_prompt,
)
from ...rm.errors import DataError, UsageError
from ...rm.types import Messages, prompt_text
from ..decoding.engines import DecodingModel, positions
from ..types import Curriculum, Cycle
from .arguments import PolicyArguments

Row = Mapping[str, Any]
MESSAGE_LENGTH = 60  # characters of a prompt in a message
PROMPT_VARIANTS = "prompt_variants"
"""Column of a data file with all equivalent variants of a row's prompt."""
VARIANTS = "variants"
"""Column of `Prompts.dataset` with all equivalent variants of a row's prompt, including `prompt`."""
PROMPT_COLUMNS = ("prompt", "messages", "chosen", "rejected", PROMPT_VARIANTS)


class PromptRow(NamedTuple):
    """A prompt of the data and the other columns of its row."""

    prompt: Messages
    as_text: bool
    """Whether the row's prompt is a string; otherwise it is a list of messages."""
    columns: Row
    variants: tuple[Messages, ...] = ()
    """Equivalent variants of the prompt. Their completions form one group with those of the prompt."""

    @property
    def prompts(self) -> tuple[Messages, ...]:
        """The prompt and its variants."""
        return self.prompt, *self.variants


class Prompts(NamedTuple):
    """Prompts with the other columns of their rows, and counts of dropped rows."""

    rows: list[PromptRow]
    report: RowReport
    too_long: int = 0

    @property
    def prompts(self) -> list[Messages]:
        """The prompts without the other columns of their rows."""
        return [row.prompt for row in self.rows]

    def account(self) -> dict[str, Any]:
        """Return all fields except the rows, for a manifest."""
        return {"kept": len(self.prompts), "too_long": self.too_long, **self.report.as_json()}

    def dataset(self, first_row: int = 0) -> Dataset:
        """Return the prompts as a dataset for TRL; the column `row` counts from `first_row`."""
        varied = any(row.variants for row in self.rows)
        rows = []
        for index, row in enumerate(self.rows, first_row):
            prompts = [[as_columns(turn) for turn in prompt] for prompt in row.prompts]
            rows.append({"prompt": prompts[0], "row": index} | ({VARIANTS: prompts} if varied else {}))
        return Dataset.from_list(rows)


def load_prompts(files: Sequence[str], *, skip_bad_rows: bool = False) -> Prompts:
    """Load the prompts of all files in order, including those of preference files and of text files.

    Raise `DataError` for a row without a prompt. With `skip_bad_rows`, skip the row instead.
    """
    prompts: list[PromptRow] = []
    report = RowReport()
    for file in files:
        if file.endswith(".txt"):
            prompts += [PromptRow(prompt, True, {}) for _, prompt in read_prompts(file)]
        else:
            rows, rows_report = collect(file, _prompt_row, "skip")
            prompts += rows
            report += rows_report
    if not skip_bad_rows:
        refuse_bad_rows(report)
    return Prompts(prompts, report)


def group_by_category(prompts: Prompts, category: str) -> dict[str, list[Row]]:
    """Group the rows of the dataset by their value in the column `category`. Raise `DataError` if a row lacks it."""
    kinds: dict[str, list[Row]] = {}
    for prompt, row in zip(prompts.rows, prompts.dataset(), strict=True):
        try:
            kinds.setdefault(str(column(prompt.columns, category)), []).append(row)
        except ValueError as error:
            raise DataError(
                f"the row of the prompt {prompt_text(prompt.prompt)[:MESSAGE_LENGTH]!r}: {error}"
            ) from error
    if len(kinds) < 2:
        raise DataError(
            f"the column '{category}' is {next(iter(kinds))!r} for all prompts; a curriculum needs several kinds"
        )
    return kinds


def rows_by_prompt(rows: Iterable[PromptRow]) -> dict[str, list[Row]]:
    """Group the rows by the text of the prompt, which identifies a prompt in reward sources."""
    columns: dict[str, list[Row]] = {}
    for row in rows:
        for prompt in row.prompts:
            columns.setdefault(prompt_text(prompt), []).append(row.columns)
    return columns


def _prompt_row(row: Row) -> PromptRow:
    columns = {name: value for name, value in row.items() if name not in PROMPT_COLUMNS}
    is_text = isinstance(parsed_messages(row.get("prompt"), "prompt"), str)
    return PromptRow(_prompt_of(row), is_text, columns, _variants_of(row))


def _variants_of(row: Row) -> tuple[Messages, ...]:
    variants = row.get(PROMPT_VARIANTS) or []
    if not isinstance(variants, list):
        raise ValueError(f"'{PROMPT_VARIANTS}' must be a list of prompts, got {str(variants)[:60]}")
    return tuple(_prompt_of({"prompt": prompt}) for prompt in variants)


def _prompt_of(row: Row) -> Messages:
    if row.get("prompt") is None and "chosen" in row:
        return parse_pair(row).prompt
    return check_filled(row_prompt(row))


# ---- checks before a run ----


def drop_long_prompts(
    prompts: Prompts, policy: DecodingModel, longest: int, max_length: int | None, log: Callable[[str], None]
) -> Prompts:
    """Drop prompts of more than `max_length` tokens, or that leave no room for a completion of `longest` tokens."""
    context = positions(policy)
    if longest >= context:
        raise UsageError(
            f"--max_completion_length {longest} leaves no room for a prompt in the policy's context of {context} "
            "tokens; lower this option"
        )
    limit = context - longest
    limit = min(limit, max_length or limit)
    fits = [max(len(policy.encoder.encode_prompt(prompt)) for prompt in row.prompts) <= limit for row in prompts.rows]
    rows = [*compress(prompts.rows, fits)]
    too_long = len(prompts.rows) - len(rows)
    if too_long and not rows:
        raise DataError(
            f"none of {too_long} prompts has {limit} tokens or fewer; raise --max_prompt_length, or make room for them "
            "with a lower --max_completion_length"
        )
    omitted = [text for row in rows for prompt in row.prompts if (text := policy.encoder.rendered(prompt).omitted)]
    if omitted:
        log(f"the chat template leaves out text of {len(omitted)} of {len(rows)} prompts: {omitted[0][:60]!r}")
    if too_long:
        log(f"{too_long} of {len(prompts.prompts)} prompts have more than {limit} tokens and were left out")
    return Prompts(rows, prompts.report, too_long)


def check_number(prompts: Prompts, arguments: PolicyArguments) -> None:
    """Raise `UsageError` if there are fewer prompts than in one generation batch, since there would be no step."""
    needed = (arguments.generation_batch_size or 1) // (arguments.num_generations or 1)
    if len(prompts.prompts) < needed:
        raise UsageError(
            f"a generation batch needs {needed} prompts, got {len(prompts.prompts)}; add prompts, or lower "
            "--per_device_train_batch_size or --gradient_accumulation_steps"
        )
    size = arguments.num_generations or 1
    if uneven := [len(row.prompts) for row in prompts.rows if size % len(row.prompts)]:
        raise UsageError(
            f"--num_generations must be a multiple of a prompt's number of variants, {uneven[0]}, got {size}"
        )


# ---- sampling ----


CURRICULUM = "curriculum"  # its name in logs and checkpoints, beside the names of online reward models


class CurriculumSampler:
    """Draws the training prompts of a process when completions are generated, instead of in the data loader's sampler.

    A data loader's sampler could not depend on the previous step, because Transformers fetches the batches of a
    complete optimizer step plus one more before it trains on the first.

    The kind of each group's prompt is drawn with the shares as probabilities. Prompts of a kind are shuffled and used
    once before any is repeated. All draws depend only on the seed and on the number of previous draws.
    """

    def __init__(self, curriculum: Curriculum, rows: Mapping[str, Sequence[Any]], *, seed: int = 0):
        self.curriculum, self.rows, self.seed = curriculum, rows, seed
        self._formula, self.shares = curriculum({}, {kind: [] for kind in rows})
        self._counts = dict.fromkeys(rows, 0)
        self._kinds: list[str] = []

    def draw(self, rows: Sequence[Any], size: int) -> list[Any]:
        """Draw prompts to replace `rows`, with `size` consecutive copies of each prompt."""
        random = Random(f"{self.seed} {sum(self._counts.values())}")
        self._kinds = random.choices([*self.shares], [*self.shares.values()], k=len(rows) // size)
        return [row for kind in self._kinds for row in [self._next(kind)] * size]

    def _next(self, kind: str) -> Any:
        """Return the next row of a kind, in a shuffled order that changes after each pass."""
        number = len(self.rows[kind])
        turn, index = divmod(self._counts[kind], number)
        self._counts[kind] += 1
        return self.rows[kind][Random(f"{self.seed} {kind} {turn}").sample(range(number), number)[index]]

    def learn(self, cycle: Cycle) -> dict[str, float]:
        """Update the shares from the mean |A| per token, or the reward, of each completion. Return the metrics."""
        response = cycle.rollout.response
        gain = (cycle.advantage.abs() * response).sum(1) / response.sum(1).clamp_min(1)
        if getattr(self.curriculum, "reads_rewards", False):
            gain = cycle.total
        gains: dict[str, list[float]] = {kind: [] for kind in self.rows}
        for group, gain_of_row, total in zip(
            *(part.tolist() for part in (cycle.rollout.group, gain, cycle.total)), strict=True
        ):
            if total == total:
                gains[self._kinds[group]].append(gain_of_row)
        self._formula, self.shares = self.curriculum(self._formula, gains)
        counts = {f"prompts/{kind}": self._kinds.count(kind) for kind in self.rows}
        return {f"share/{kind}": share for kind, share in self.shares.items()} | counts

    def state(self) -> dict[str, Any]:
        """Return the JSON-serializable state."""
        return {"formula": self._formula, "shares": self.shares, "given": self._counts}

    def load(self, state: Mapping[str, Any]) -> None:
        """Load the state from a checkpoint."""
        self._formula, self.shares, self._counts = state["formula"], dict(state["shares"]), dict(state["given"])


# ---- variants ----


def spread_over_variants(rows: Sequence[Mapping[str, Any]], size: int, *, first: int = 0) -> list[Any]:
    """Return the rows with the prompts of each group of `size` consecutive rows replaced by the prompt's variants.

    With V variants the first size / V completions of a group are for the first variant, and so on, so that a reward
    that depends on the variant differs within the group. `first` is the index of the first row among those of all
    processes.

    >>> rows = [{"prompt": "ab", "variants": ["ab", "ba"]}] * 4 + [{"prompt": "c"}] * 4
    >>> [row["prompt"] for row in spread_over_variants(rows, 4)]
    ['ab', 'ab', 'ba', 'ba', 'c', 'c', 'c', 'c']
    """
    return [_with_variant(row, (first + index) % size, size) for index, row in enumerate(rows)]


def refuse_variants(*datasets: Any) -> None:
    """Raise `UsageError` for prompts with variants if the completions are not generated by this process's policy."""
    if any(VARIANTS in (dataset.column_names or ()) for dataset in datasets if dataset is not None):
        raise UsageError(
            "prompts with variants need completions of this process's policy; remove the rollout function or server"
        )


def _with_variant(row: Mapping[str, Any], position: int, size: int) -> Mapping[str, Any]:
    """Return the row with the prompt variant for a completion's `position` in its group of `size`."""
    variants = row.get(VARIANTS)
    return {**row, "prompt": variants[position * len(variants) // size]} if variants else row
