"""Agreement of the verdict parser with the winners that LLMBar's authors read from the same stored replies.

    python -m rewardlab.research.speed verdicts DATA --output research/results

DATA is a folder of `<judge>.jsonl.gz` files, or a checkout of the authors' repository, whose replies are in
`Dataset/**/evaluators/<judge>/<prompt style>/result.json`. No text of the data is written, only ids and counts.
"""

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...judges.parsing.statements import NoVerdict
from ...judges.parsing.verdicts import pair_verdict, points
from ...rm.errors import DataError

LABELS = ("a", "b")
RATING_SCALE = (0, 9)
SWAPPED = {False: "swap = False", True: "swap = True"}
NAME = "verdicts-llmbar"
Outcome = Literal["same", "abstained", "opposite", "only ours", "neither"]
OUTCOMES: tuple[Outcome, ...] = ("same", "abstained", "opposite", "only ours", "neither")
READ_BY_HAND: Mapping[str, tuple[str, str]] = {
    "GPT-4 Swap_CoT Adversarial/GPTInst/41 swapped": (
        "parser",
        "it reports an assistant's view that the first is better, and concludes for the second; the authors' pattern "
        "finds the reported one",
    ),
}
"""Every opposite verdict in the measured data: which reading is correct, and why."""


class StoredReply(NamedTuple):
    """One reply of a judge, or two ratings, with the winner that the authors read."""

    judge: str
    style: str
    item: str
    """Subset and number."""
    swapped: bool
    """Whether the outputs were shown in reverse."""
    final: Mapping[str, Any]
    """The authors' record of the last request; empty where the reply was not published."""
    winner: str | None
    """"1", "2" or None, of the outputs in their own order."""

    @property
    def name(self) -> str:
        """Judge, prompt style, item and order."""
        return f"{self.judge} {self.style} {self.item}{' swapped' * self.swapped}"


# ---- reading the files ----


def stored_replies(folder: Path) -> Iterator[StoredReply]:
    """Yield every judgment in a folder, in the order of the file names."""
    packed, published = sorted(folder.glob("*.jsonl.gz")), sorted(folder.rglob("evaluators/*/*/result.json"))
    if not packed and not published:
        raise DataError(
            f"{folder} has neither *.jsonl.gz nor evaluators/*/*/result.json; name the folder of the replies"
        )
    for path in packed:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                winners = (row["winner_order0"], row["winner_order1"])
                yield from _both_orders(
                    path.name.removesuffix(".jsonl.gz"), row["strategy"], row["subset"], row, winners
                )
    for path in published:
        *subset, _, judge, style, _ = path.relative_to(folder).parts
        for index, row in enumerate(json.loads(path.read_text(encoding="utf-8"))):
            yield from _both_orders(judge, style, "/".join(subset), {"i": index, **row}, None)


def _both_orders(
    judge: str, style: str, subset: str, row: Mapping[str, Any], winners: tuple[str | None, str | None] | None
) -> Iterator[StoredReply]:
    """Yield the judgments of one item in both orders; without `winners`, those in the record itself are used."""
    final = next((record for record in reversed(row.get("results", ())) if isinstance(record, dict)), {})
    for swapped, order in SWAPPED.items():
        winner = winners[swapped] if winners else final[order]["winner"]
        yield StoredReply(judge, style, f"{subset}/{row['i']}", swapped, final, winner)


# ---- comparing ----


def withheld(reply: StoredReply) -> bool:
    """Return whether the provider withheld one of two ratings, although the authors count a winner."""
    return "score_1" in reply.final and any(reply.final[name][1] != "stop" for name in ("score_1", "score_2"))


def read_winner(reply: StoredReply) -> str | None:
    """Return "1", "2" or None as the parser reads the reply; of equal ratings the authors choose the second shown."""
    if "score_1" in reply.final:
        first, second = (points(reply.final[name][0], *RATING_SCALE) for name in ("score_1", "score_2"))
        if isinstance(first, NoVerdict) or isinstance(second, NoVerdict):
            return None
        return "21"[reply.swapped] if first.value == second.value else "1" if first.value > second.value else "2"
    text, finish = reply.final[SWAPPED[reply.swapped]]["completion"]
    verdict = pair_verdict(text, labels=LABELS, finish=finish)
    if isinstance(verdict, NoVerdict) or verdict.choice not in LABELS:
        return None
    return "12"[(verdict.choice == LABELS[1]) != reply.swapped]


def outcome(ours: str | None, theirs: str | None) -> Outcome:
    """Return how the parser's winner relates to the authors'.

    >>> outcome("1", "2"), outcome(None, "2"), outcome(None, None)
    ('opposite', 'abstained', 'neither')
    """
    if ours is None:
        return "neither" if theirs is None else "abstained"
    return "only ours" if theirs is None else "same" if ours == theirs else "opposite"


def measure(replies: Iterator[StoredReply]) -> dict[str, Any]:
    """Return counts by judge and prompt style, and the ids of all replies that are read differently."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    differing: dict[str, str] = {}
    for reply in replies:
        cell = counts[reply.judge, reply.style]
        if not reply.final:
            cell["not published"] += 1
        elif withheld(reply):
            cell["withheld"] += 1
        else:
            relation = outcome(read_winner(reply), reply.winner)
            cell[relation] += 1
            if relation not in ("same", "neither"):
                differing[reply.name] = relation
    table = [{"judge": judge, "style": style, **cell} for (judge, style), cell in sorted(counts.items())]
    return {"table": table, "differing": differing}


# ---- report ----


def markdown(counts: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """Return the report; `before` is what `measure` gave for an earlier parser."""
    earlier = {(row["judge"], row["style"]): row for row in (before or {"table": []})["table"]}
    measured = [row for row in counts["table"] if any(name in row for name in OUTCOMES)]
    absent = [row for row in counts["table"] if "not published" in row]
    lines = [
        "# Verdicts read from LLMBar's stored replies",
        "",
        "Each reply is one judge's answer in one order; compared with the winner that the dataset's authors read from "
        "it. Abstained: no verdict read where the authors read one. In brackets: the parser before.",
        "",
        "| judge | prompt style | replies | same | abstained | opposite | only ours | neither | withheld |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_table_row(row, earlier.get((row["judge"], row["style"]))) for row in measured),
        "",
        "A rating that the provider withheld is no reply, though the authors count a winner; it is left out of the "
        "comparison.",
        "",
        "## Every difference, read by hand",
        "",
        *([_difference(name, kind) for name, kind in counts["differing"].items()] or ["None."]),
        "",
    ]
    if absent:
        names = Counter(row["judge"] for row in absent)
        not_measured = ", ".join(f"{judge} ({styles} styles)" for judge, styles in names.items())
        count = sum(row["not published"] for row in absent)
        lines += [
            "## Not measured",
            "",
            f"For {count:,} judgments the data hold only the authors' winner and no reply: {not_measured}. "
            "Their replies can be measured from a checkout of the authors' repository.",
            "",
        ]
    return "\n".join(lines)


def _table_row(row: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> str:
    def cell(name: str) -> str:
        return f"{row.get(name, 0)}" + (f" ({earlier.get(name, 0)})" if earlier else "")

    replies = sum(row.get(name, 0) for name in OUTCOMES)
    cells = [row["judge"], row["style"], f"{replies}", *map(cell, OUTCOMES), f"{row.get('withheld', 0)}"]
    return f"| {' | '.join(cells)} |"


def _difference(name: str, kind: str) -> str:
    right, why = READ_BY_HAND.get(name, ("not read yet", ""))
    return f"- {name}: {kind}. Right: {right}{f' ({why})' if why else ''}."


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write `verdicts-llmbar.json` and `.md`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of the stored replies")
    parser.add_argument("--output", type=Path, required=True, help="the folder of the report")
    parser.add_argument("--before", type=Path, help="the JSON file of an earlier parser, to compare with")
    options = parser.parse_args(arguments)
    before = json.loads(options.before.read_text(encoding="utf-8")) if options.before else None
    counts = measure(stored_replies(options.data))
    options.output.mkdir(parents=True, exist_ok=True)
    written = counts | ({"before": {name: before[name] for name in ("table", "differing")}} if before else {})
    (options.output / f"{NAME}.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    (options.output / f"{NAME}.md").write_text(markdown(counts, before), encoding="utf-8")
