"""What run folders are written with."""

import json
import math

import pytest
from rewardlab.apps.runs.run_folder import write_rows


def test_rows_are_a_line_each_with_null_for_what_is_no_finite_number(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows(path, ({"n": n, "text": "é|"} for n in (1.5, math.nan)))
    assert path.read_text(encoding="utf-8") == '{"n": 1.5, "text": "é|"}\n{"n": null, "text": "é|"}\n'


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows(path, [{"kept": 1}])
    with pytest.raises(TypeError):
        write_rows(path, [{"fine": 1}, {"bad": object()}])
    assert json.loads(path.read_text()) == {"kept": 1} and [one.name for one in tmp_path.iterdir()] == ["rows.jsonl"]
