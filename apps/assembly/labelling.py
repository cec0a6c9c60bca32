"""Responses of a data set, their rewards by one or several labellers, and the files of labels in TRL's columns."""

from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from tqdm import tqdm

from ...judges.audit.agreement import cohen_kappa, krippendorff_alpha
from ...judges.case_rows import unique_ids
from ...policy.decoding.selection import PickedPair
from ...policy.rewards.sources import RewardSources
from ...policy.training.prompts import PROMPT_COLUMNS, PromptRow
from ...rm.data.pairs import IDS, RowReport, collect, refuse_bad_rows
from ...rm.data.scored_rows import LISTS, parse_list
from ...rm.types import AnyCompletion, Example, completion_json, completion_turns, content_hash, prompt_text
from ..runs.resumable_rows import ResumableRows
from ..runs.run_folder import write_rows

READ = (*PROMPT_COLUMNS, *LISTS, "completion", "response", "answer")
"""Columns with the prompt and the responses; only the other columns are passed to labellers as arguments."""
DATA = "data"
"""Name under which the labels of preference pairs in the data count as a further labeller."""
TIED = -1
"""Category of a tie. Any other category is the preferred response's position after sorting the responses by hash."""


class Group(NamedTuple):
    """The responses of a prompt, and their scores in the data (for a pair: P(better)); NaN without a score."""

    id: str
    row: PromptRow
    responses: tuple[AnyCompletion, ...]
    scores: tuple[float, ...]

    @property
    def examples(self) -> list[Example]:
        """One `Example` per response: the prompt with this response."""
        return [Example(self.row.prompt, response) for response in self.responses]


def load_groups(files: Sequence[str], *, skip_bad_rows: bool = False) -> tuple[list[Group], RowReport]:
    """Load groups of responses: lists of responses, preference pairs, and single responses joined by prompt.

    A number is appended to repeated ids. Columns whose values differ between joined rows are ignored and counted.
    """
    parts: dict[Any, list[Group]] = {}
    report = RowReport()
    for file in files:
        parsed, rows = collect(file, _parse_group, "skip", expand=False)
        report += rows
        for number, group in enumerate(parsed):
            key = prompt_text(group.row.prompt) if len(group.responses) == 1 else (file, number)
            parts.setdefault(key, []).append(group)
    if not skip_bad_rows:
        refuse_bad_rows(report)
    groups = [_join_groups(some, report) for some in parts.values()]
    ids = unique_ids(group.id for group in groups)
    return [group._replace(id=id) for id, group in zip(ids, groups, strict=True)], report


def _parse_group(values: Mapping[str, Any]) -> Group:
    parsed = parse_list(values)
    if not parsed.completions:
        raise ValueError(f"no response: '{next(name for name in LISTS if name in values)}' is empty")
    columns = {column: value for column, value in values.items() if column not in READ}
    as_text = isinstance(values.get("prompt", values.get("context")), str)
    return Group(parsed.id, PromptRow(parsed.prompt, as_text, columns), parsed.completions, parsed.scores)


def _join_groups(parts: Sequence[Group], report: RowReport) -> Group:
    first, *others = parts
    if not others:
        return first
    rows = [part.row.columns for part in parts]
    columns = {name: value for name, value in rows[0].items() if all(row.get(name) == value for row in rows)}
    report.ignored.update(dict.fromkeys({*chain(*rows)} - {*columns, *IDS}, len(rows)))
    responses, scores = chain(*(part.responses for part in parts)), chain(*(part.scores for part in parts))
    return Group(first.id, first.row._replace(columns=columns), tuple(responses), tuple(scores))


# ---- rewards ----


class Ratings(NamedTuple):
    """Rewards of the responses of P groups, with M the largest number of responses, padded with NaN."""

    names: tuple[str, ...]
    rewards: Float[np.ndarray, "P M K"]
    members: Float[np.ndarray, "P M V"]
    """Rewards of each member (V of them) if the only labeller is an ensemble; otherwise equal to `rewards`."""

    @property
    def total(self) -> Float[np.ndarray, "P M"]:
        """Mean over the labellers. NaN if a labeller abstained."""
        return self.rewards.mean(2)

    def share(self, pair: PickedPair) -> float:
        """Return the share of labellers, or of ensemble members, that prefer the chosen response; ties count 1/2."""
        chosen, rejected = (self.members[pair.prompt, index] for index in pair[1:])
        gaps = (chosen - rejected)[~np.isnan(chosen - rejected)]
        return float((1 + np.sign(gaps)).mean() / 2)


def rate_groups(sources: RewardSources, groups: Sequence[Group], file: Path, batch_size: int) -> tuple[Ratings, int]:
    """Return the rewards of all responses, and how many of them this call computed; the rest were read from `file`.

    A batch of `batch_size` groups is appended to the file when it is complete. Raise `UsageError` if stored rewards
    have another scoring contract, for example because a server changed its model.
    """
    rows = ResumableRows(file, resume=True, overwrite=False)
    texts = ([prompt_text(group.row.prompt), *map(completion_json, group.responses)] for group in groups)
    keys = [content_hash([index, sources.contracts, *of_group]) for index, of_group in enumerate(texts)]
    stored = rows.resume(keys)
    recorded = [row["recorded"] for row in rows.rows([*stored])] if stored else []
    sources.truncate_record(max(recorded, default=0))  # the faults of an incomplete batch are recorded again
    missing = [index for index, key in enumerate(keys) if key not in stored]
    total, remaining = (sum(len(groups[index].responses) for index in part) for part in (range(len(groups)), missing))
    with tqdm(total=total, initial=total - remaining, desc="labelling", unit="response", disable=None) as bar:
        for first in range(0, len(missing), batch_size):
            batch = missing[first : first + batch_size]
            examples = [example for index in batch for example in groups[index].examples]
            of_examples = [index for index in batch for _ in groups[index].responses]
            rewards, _ = sources(examples, rows=of_examples)
            of_one = rewards.members if len(rewards.names) == 1 else None
            members = rewards.values if of_one is None else of_one[:, 0]
            for index in batch:
                mask = np.array(of_examples) == index
                values = {"rewards": rewards.values[mask].tolist(), "members": members[mask].tolist()}
                rows.append(keys[index], values | {"recorded": sources.recorded})
            bar.update(len(examples))
    read = rows.rows(keys)
    return Ratings(sources.names, *(_padded([row[name] for row in read]) for name in ("rewards", "members"))), remaining


def _padded(groups: Sequence[Sequence[Sequence[float | None]]]) -> Float[np.ndarray, "P M K"]:
    shape = len(groups), max(map(len, groups)), max(len(row) for group in groups for row in group)
    values = np.full(shape, np.nan)
    for index, group in enumerate(groups):
        for position, row in enumerate(group):
            values[index, position, : len(row)] = np.array(row, float)
    return values


# ---- agreement ----


def agreement(groups: Sequence[Group], ratings: Ratings) -> dict[str, Any]:
    """Return Krippendorff's alpha of all labellers, and the share of equal labels and kappa of every two labellers.

    A label is the position of the preferred response of a prompt, or a tie. Responses are ordered by hash, so that
    their order in the data has no effect. The labels of preference pairs in the data count as a further labeller,
    `data`. With a single labeller, the result is empty.
    """
    labels = {name: _preferred_positions(groups, ratings.rewards[:, :, k]) for k, name in enumerate(ratings.names)}
    in_data = _preferred_positions(groups, _padded([[[score] for score in group.scores] for group in groups])[:, :, 0])
    if not np.isnan(in_data).all():
        labels[DATA] = in_data
    if len(labels) < 2:
        return {}
    pairs = {}
    for first, second in combinations(labels, 2):
        both = ~np.isnan(labels[first] + labels[second])
        equal = (labels[first] == labels[second])[both]
        kappa = cohen_kappa(labels[first], labels[second])
        pairs[f"{first} ~ {second}"] = {
            "prompts": int(both.sum()), "equal": float(equal.mean()) if len(equal) else float("nan"), "kappa": kappa
        }  # fmt: skip
    return {"alpha": krippendorff_alpha(np.stack([*labels.values()])), "pairs": pairs}


def _preferred_positions(groups: Sequence[Group], rewards: Float[np.ndarray, "P M"]) -> Float[np.ndarray, " P"]:
    labels = np.full(len(groups), np.nan)
    for index, group in enumerate(groups):
        values = rewards[index, : len(group.responses)]
        if len(values) > 1 and not np.isnan(values).any():
            order = sorted(range(len(values)), key=lambda i: content_hash(completion_json(group.responses[i])))
            best = np.flatnonzero(values == values.max())
            labels[index] = order.index(int(best[0])) if len(best) == 1 else TIED
    return labels


# ---- files ----


def write_scores(
    groups: Sequence[Group], ratings: Ratings, usable: np.ndarray, threshold: float | None, path: Path
) -> None:
    """Write the usable responses: `prompt`, `completion`, `reward`, and `reward_NAME` for each of several labellers.

    With a threshold, the column `label`, as used by KTO, is true for rewards above the threshold.
    """

    def row(index: int, position: int) -> dict[str, Any]:
        group, reward = groups[index], float(ratings.total[index, position])
        by_name = zip(ratings.names, ratings.rewards[index, position].tolist(), strict=True)
        return (
            {"id": f"{group.id}/{position}", "prompt": [*group.row.prompt]}
            | {"completion": [*completion_turns(group.responses[position])], "reward": reward}
            | ({f"reward_{name}": value for name, value in by_name} if len(ratings.names) > 1 else {})
            | ({} if threshold is None else {"label": reward > threshold})
        )

    write_rows(path, (row(*picked) for picked in np.argwhere(usable).tolist()))


def write_pairs(groups: Sequence[Group], ratings: Ratings, pairs: Sequence[PickedPair], path: Path) -> None:
    """Write preference pairs with both rewards, and the share of labellers that prefer the chosen response."""

    def row(pair: PickedPair) -> dict[str, Any]:
        group, sides = groups[pair.prompt], {"chosen": pair.chosen, "rejected": pair.rejected}
        turns = {side: [*completion_turns(group.responses[position])] for side, position in sides.items()}
        scores = {f"score_{side}": float(ratings.total[pair.prompt, position]) for side, position in sides.items()}
        return {"id": group.id, "prompt": [*group.row.prompt]} | turns | scores | {"agreement": ratings.share(pair)}

    write_rows(path, map(row, pairs))
