import gzip
import json

import pytest
from rewardlab.research.speed.verdicts import NAME, main, measure, stored_replies


def record(first: str, second: str, winners: tuple[str | None, str | None]) -> dict:
    """A record in the authors' form: the completion in either order, and the winner read from it."""
    return {
        "swap = False": {"completion": [first, "stop"], "winner": winners[0]},
        "swap = True": {"completion": [second, "stop"], "winner": winners[1]},
    }


RECORDS = [
    record("Output (a) is better. It is short.", "Output (b) is better. It is short.", ("1", "1")),
    record("Output (a) is better. It is short.", "Both have a title.", ("2", "1")),
    record("Both have a title.", "Therefore, Output (a) is better.", (None, None)),
]


@pytest.fixture
def packed(tmp_path):
    """A folder with one judge's file: three items with replies, one whose replies were not published."""
    rows = [
        {
            "subset": "Natural", "strategy": "CoT", "i": place, "results": [["a note", "stop"], one],
            "winner_order0": one["swap = False"]["winner"], "winner_order1": one["swap = True"]["winner"],
        }
        for place, one in enumerate(RECORDS)
    ]  # fmt: skip
    rows.append({"subset": "Natural", "strategy": "Metrics", "i": 0, "winner_order0": "1", "winner_order1": "2"})
    with gzip.open(tmp_path / "Judge-1.0.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return tmp_path


def test_replies_are_counted_by_judge_and_prompt_style(packed):
    found = measure(stored_replies(packed))
    assert found["table"] == [
        {"judge": "Judge-1.0", "style": "CoT", "same": 2, "opposite": 1, "abstained": 1, "neither": 1, "only ours": 1},
        {"judge": "Judge-1.0", "style": "Metrics", "not published": 2},
    ]
    assert found["differing"] == {
        "Judge-1.0 CoT Natural/1": "opposite",
        "Judge-1.0 CoT Natural/1 swapped": "abstained",
        "Judge-1.0 CoT Natural/2 swapped": "only ours",
    }


def test_the_report_has_ids_and_counts_but_no_text_of_the_replies(packed, tmp_path):
    before = tmp_path / "before.json"
    before.write_text(json.dumps(measure(stored_replies(packed))), encoding="utf-8")
    main([str(packed), "--output", str(tmp_path / "out"), "--before", str(before)])
    text = (tmp_path / "out" / f"{NAME}.md").read_text(encoding="utf-8")
    assert "| Judge-1.0 | CoT | 6 | 2 (2) | 1 (1) | 1 (1) | 1 (1) | 1 (1) | 0 |" in text
    assert "Natural/1 swapped: abstained" in text and "is better" not in text and "title" not in text


def test_llmbars_stored_replies_are_read_as_their_authors_did(shared_data):
    found = measure(stored_replies(shared_data / "llmbar" / "golden"))
    measured = [row for row in found["table"] if "same" in row]
    assert [(row["judge"], row["style"]) for row in measured] == [
        ("GPT-4", style) for style in ("CoT", "Metrics_Reference", "Rating", "Swap_CoT", "Vanilla")
    ]
    for row in measured:
        assert row["same"] + row.get("opposite", 0) + row.get("withheld", 0) == 838 and row.get("opposite", 0) <= 1, row
    assert found["differing"] == {"GPT-4 Swap_CoT Adversarial/GPTInst/41 swapped": "opposite"}
