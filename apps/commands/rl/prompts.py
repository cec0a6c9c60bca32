"""The prompts of policy training and the other columns of their rows."""

from itertools import compress
from typing import Any, NamedTuple

from datasets import Dataset

from ....judges.rubrics.files import rubric_of_row
from ....judges.rubrics.rubric import Rubric
from ....policy.decoding.language_models import DecodingModel, positions
from ....policy.scaffolds._scaffold import Hints
from ....policy.training.arguments import PolicyArguments
from ....policy.training.prompt_sampling import VARIANTS
from ....rm.backbones.chat_templates import prefilled
from ....rm.data.messages_and_tools import as_columns, parsed_messages
from ....rm.data.pairs import RowReport, collect, column, parse_pair, read_prompts, refuse_bad_rows, row_prompt
from ....rm.errors import DataError, UsageError
from ....rm.types import Messages, prompt_text
from ...rewards._run import SHOWN, PromptRow, Row, RunFacts
from ...runs.run_folder import log, log_rows
from .settings import RlConfig

PROMPT_VARIANTS = "prompt_variants"
ASKED = ("prompt", "messages", "chosen", "rejected", PROMPT_VARIANTS)  # columns that prompts are taken from


class Prompts(NamedTuple):
    """Prompts with the other columns of their rows, and counts of those that were dropped."""

    rows: list[PromptRow]
    report: RowReport
    too_long: int = 0

    @property
    def prompts(self) -> list[Messages]:
        """The prompts without their columns."""
        return [row.prompt for row in self.rows]

    def account(self) -> dict[str, Any]:
        """Return everything but the rows, for a manifest."""
        return {"kept": len(self.prompts), "too_long": self.too_long, **self.report.as_json()}

    def dataset(self, first_row: int = 0) -> Dataset:
        """Return the prompts as a dataset for TRL; the column `row` counts from `first_row`."""
        varied = any(row.variants for row in self.rows)
        rows = []
        for index, row in enumerate(self.rows, first_row):
            prompts = [[as_columns(turn) for turn in prompt] for prompt in row.prompts]
            rows.append({"prompt": prompts[0], "row": index} | ({VARIANTS: prompts} if varied else {}))
        return Dataset.from_list(rows)


def load_prompts(config: RlConfig, name: str) -> Prompts:
    """Load the prompts of all files of `data` or `eval_data`, in order, including those of preference files."""
    asked: list[PromptRow] = []
    report = RowReport()
    for source in getattr(config, name):
        if source.endswith(".txt"):
            asked += [PromptRow(prompt, True, {}) for _, prompt in read_prompts(source)]
        else:
            rows_found, read = collect(source, _prompt_row, "skip")
            asked += rows_found
            report += read
    if config.on_bad_row == "refuse":
        refuse_bad_rows(report)
    log_rows(name, report)
    return Prompts(asked, report)


def by_kind(prompts: Prompts, category: str) -> dict[str, list[Row]]:
    """Return the rows of the dataset by their value in a column; a row without it is a `DataError`."""
    kinds: dict[str, list[Row]] = {}
    for read, row in zip(prompts.rows, prompts.dataset(), strict=True):
        try:
            kinds.setdefault(str(column(read.columns, category)), []).append(row)
        except ValueError as error:
            raise DataError(f"the row of the prompt {prompt_text(read.prompt)[:SHOWN]!r}: {error}") from error
    if len(kinds) < 2:
        raise DataError(
            f"the column '{category}' says {next(iter(kinds))!r} of all prompts; a curriculum chooses between kinds"
        )
    return kinds


def rows_of(*parts: Prompts) -> dict[str, list[Row]]:
    """Return the rows by the prompt's text, by which a reward identifies a prompt."""
    rows: dict[str, list[Row]] = {}
    for row in (row for part in parts for row in part.rows):
        for prompt in row.prompts:
            rows.setdefault(prompt_text(prompt), []).append(row.columns)
    return rows


def _prompt_row(row: Row) -> PromptRow:
    columns = {name: value for name, value in row.items() if name not in ASKED}
    is_text = isinstance(parsed_messages(row.get("prompt"), "prompt"), str)
    return PromptRow(_prompt_of(row), is_text, columns, _variants_of(row))


def _variants_of(row: Row) -> tuple[Messages, ...]:
    stated = row.get(PROMPT_VARIANTS) or []
    if not isinstance(stated, list):
        raise ValueError(f"'{PROMPT_VARIANTS}' is a list of prompts, got {str(stated)[:60]}")
    return tuple(_prompt_of({"prompt": prompt}) for prompt in stated)


def _prompt_of(row: Row) -> Messages:
    if row.get("prompt") is None and "chosen" in row:
        return parse_pair(row).prompt
    prompt = row_prompt(row)
    if not any(turn["content"].strip() for turn in prompt):
        raise ValueError("empty prompt")
    return prompt


def fitting(prompts: Prompts, policy: DecodingModel, config: RlConfig, arguments: PolicyArguments) -> Prompts:
    """Drop prompts that are too long, or that leave no room for the longest completion."""
    context, longest = positions(policy), arguments.max_completion_length or 0
    if longest >= context:
        raise UsageError(
            f"--max_completion_length {longest} leaves no room for a prompt in the policy's context of {context} "
            "tokens; lower it"
        )
    limit = context - longest
    limit = min(limit, config.max_prompt_length or limit)
    fits = [max(len(policy.encoder.encode_prompt(prompt)) for prompt in row.prompts) <= limit for row in prompts.rows]
    rows = [*compress(prompts.rows, fits)]
    left_out = len(prompts.rows) - len(rows)
    if left_out and not rows:
        raise DataError(
            f"none of {left_out} prompts has {limit} tokens or fewer; raise --max_prompt_length, or make room for them "
            "with a lower --max_completion_length"
        )
    unread = [text for row in rows for prompt in row.prompts if (text := policy.encoder.rendered(prompt).omitted)]
    if unread:
        log(f"the chat template leaves out text of {len(unread)} of {len(rows)} prompts: {unread[0][:60]!r}")
    if left_out:
        log(f"{left_out} of {len(prompts.prompts)} prompts have more than {limit} tokens and were left out")
    return Prompts(rows, prompts.report, left_out)


def log_prefilled(policy: DecodingModel) -> None:
    """Log the text that the chat template writes of every completion, if there is any."""
    if text := prefilled(policy.encoder.render_turns):
        log(
            f"the chat template begins every completion with {text!r}, which is part of the prompt: rewards read what "
            "follows it"
        )


def check_number(prompts: Prompts, arguments: PolicyArguments) -> None:
    """Raise a `UsageError` for fewer prompts than one generation batch needs: there would be no step."""
    needed = (arguments.generation_batch_size or 1) // (arguments.num_generations or 1)
    if len(prompts.prompts) < needed:
        raise UsageError(
            f"a batch of answers takes {needed} prompts and there are {len(prompts.prompts)}; give more, or lower "
            "--per_device_train_batch_size or --gradient_accumulation_steps"
        )
    size = arguments.num_generations or 1
    if uneven := [len(row.prompts) for row in prompts.rows if size % len(row.prompts)]:
        raise UsageError(
            f"--num_generations is {size} and a prompt has {uneven[0]} variants, which get equally many answers; make "
            "it a multiple"
        )


# ---- rubrics as hints ----


def hints_of(rubric: Rubric) -> Hints:
    """Return what a rubric rewards as hints to include, and what it forbids or penalizes as hints to avoid.

    >>> from ....judges.rubrics.rubric import Principle
    >>> hints_of(Rubric((), (Principle("c1", "Advises rest.", 4.0), Principle("c2", "Invents a dose.", -1.0))))
    Hints(include=('Advises rest.',), avoid=('Invents a dose.',))
    """
    rules = [(rule.criterion, rule.type == "must") for rule in rubric.rules]
    criteria = [*rules, *((principle.description, principle.weight > 0) for principle in rubric.principles)]
    include, avoid = (tuple(text for text, good in criteria if good is is_positive) for is_positive in (True, False))
    return Hints(include, avoid)


def hints_by_prompt(run: RunFacts) -> dict[str, Hints]:
    """Return the hints of the rubric in each prompt's row, by the prompt's text."""
    return {text: hints_of(rubric) for text, rubric in run.one_by_prompt(rubric_of_row).items()}
