"""Files of a sample: selected rows in TRL's columns, their random controls, and a table of all completions."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....policy.decoding.selection import Pick, PickedPair, win_shares
from ....rm.data.messages_and_tools import as_columns
from ....rm.types import OVERALL, Message
from ...runs.run_folder import write_rows
from .rewards import Sample

ALL, CONTROL = "all.parquet", "_control"


def write_selection(sample: Sample, name: str, picks: Sequence[Any], control: Sequence[Any], folder: Path) -> None:
    """Write the selected rows to `NAME.jsonl` and the control to `NAME_control.jsonl`.

    Pairs by several rewards or by an ensemble have `wins`, the share that prefers the chosen completion.
    """
    texts, ids, rewards, parts = sample.texts(), sample.ids(), sample.total, sample.parts

    def row(pick: Pick | PickedPair, is_control: bool) -> dict[str, Any]:
        prompt = list(sample.prompts[pick.prompt].prompt)
        chosen, *others = [_assistant_turn(texts[pick.prompt][index]) for index in pick[1:]]
        scores = [float(rewards[pick.prompt, index]) for index in pick[1:]]
        if not others:
            number = f"{ids[pick.prompt]}/{pick[1]}"
            return {"id": number, "prompt": prompt, "completion": chosen, "reward": scores[0]}
        pair = {"id": ids[pick.prompt], "prompt": prompt, "chosen": chosen, "rejected": others[0]}
        if is_control:
            return pair
        pair |= dict(zip(("score_chosen", "score_rejected"), scores, strict=True))
        return pair if parts is None else pair | {"wins": {OVERALL: float(win_shares([pick], parts)[0])}}

    write_rows(folder / f"{name}.jsonl", (row(pick, False) for pick in picks))
    write_rows(folder / f"{name}{CONTROL}.jsonl", (row(pick, True) for pick in control))


def _assistant_turn(text: str) -> list[Message]:
    return [Message(role="assistant", content=text)]


def write_all(sample: Sample, contracts: Mapping[str, str], path: Path) -> None:
    """Write every completion with its rewards; the hashes of the scoring contracts are metadata of the table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids, n = sample.ids(), len(sample.completions) // len(sample.prompts)
    prompts = [[as_columns(turn) for turn in row.prompt] for row in sample.prompts]
    columns: dict[str, Any] = {
        "id": [id for id in ids for _ in range(n)],
        "index": [*range(n)] * len(ids),
        "prompt": [prompt for prompt in prompts for _ in range(n)],
        "completion": [completion.text for completion in sample.completions],
        "finished": [completion.finished for completion in sample.completions],
        "tokens": [completion.tokens for completion in sample.completions],
    }
    reserved = {*columns, "reward", "spread"}
    names = [f"reward_{name}" if name in reserved else name for name in sample.rewards.names]
    values = dict(zip(names, sample.rewards.values.numpy().T, strict=True)) | {"reward": sample.total.ravel()}
    if sample.spread is not None:
        values["spread"] = sample.spread
    columns |= {name: pa.array(column, from_pandas=True) for name, column in values.items()}
    pq.write_table(pa.table(columns).replace_schema_metadata({"contracts": json.dumps(contracts)}), path)
