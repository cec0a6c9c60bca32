import dataclasses
import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rewardlab.rm.data.conversation_split import first_turn
from rewardlab.rm.data.pairs import load_examples, load_pairs, pair_row, parse_pair, read_prompts
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import PreferencePair, content_hash, user_turn

ROW = {"prompt": "What is 2 + 2?", "chosen": "4", "rejected": "5"}
USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
OTHER = {"role": "assistant", "content": "Go away"}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


TURNS = [USER, ANSWER, {"role": "user", "content": "And you?"}]
SHAPES = {
    "text": (ROW, user_turn("What is 2 + 2?"), "4", "5"),
    "messages": ({"prompt": [USER], "chosen": [ANSWER], "rejected": [OTHER]}, (USER,), "Hello", "Go away"),
    "the common head of conversations": (
        {"chosen": [*TURNS, ANSWER], "rejected": [*TURNS, OTHER]},
        tuple(TURNS), "Hello", "Go away",
    ),
    "a prompt that the answers repeat": (
        {"prompt": "Hi", "chosen": [USER, ANSWER], "rejected": [USER, OTHER]},
        (USER,), "Hello", "Go away",
    ),
    "an implicit prompt that ends at a word": (
        {"chosen": "The sky is blue.", "rejected": "The sky is black."},
        user_turn("The sky is"), "blue.", "black.",
    ),
}  # fmt: skip


def test_rows_of_every_shape_become_a_prompt_and_two_answers():
    for shape, (row, *expected) in SHAPES.items():
        pair = parse_pair(row)
        assert [pair.prompt, pair.chosen, pair.rejected] == expected, shape
    assert parse_pair(ROW).wins == {"overall": 1.0} and parse_pair(ROW).margin is None


def test_an_hh_dialogue_and_implicit_prompts_that_end_with_a_line():
    head = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Bye\n\nAssistant: "
    pair = parse_pair({"chosen": head + "See you.", "rejected": head + "Finally."})
    assert [turn["role"] for turn in pair.prompt] == ["user", "assistant", "user"]
    assert (pair.chosen, pair.rejected) == ("See you.", "Finally.")
    for prompt, chosen, rejected in [("What is 2+2?", "A:4", "A:5"), ("Question:\nHow?", "Yes", "No")]:
        for blank in ("\n", "\n\n", "  ", "\t"):
            pair = parse_pair({"chosen": prompt + blank + chosen, "rejected": prompt + blank + rejected})
            assert (pair.prompt, pair.chosen, pair.rejected) == (user_turn(prompt), chosen, rejected), blank


def test_ultrafeedback_scores_decide_the_label_and_equal_scores_tie():
    for metadata, chance in (
        ({"score_chosen": 9.0, "score_rejected": 8.0}, 1.0),
        ({"score_chosen": 7, "score_rejected": 7}, 0.5),
        ("from a forum", 1.0),
    ):
        assert parse_pair(ROW | {"metadata": metadata}).wins == {"overall": chance}


def test_margin_subset_and_id_are_kept_and_a_missing_id_is_made_from_the_content():
    pair = parse_pair(ROW | {"margin": 2, "subset": "maths", "id": 7})
    assert (pair.margin, pair.subset, pair.id) == (2.0, "maths", "7")
    assert parse_pair(ROW).id == parse_pair(dict(ROW)).id != parse_pair(ROW | {"chosen": "four"}).id
    pair = PreferencePair("a", (USER,), "x", "y", "s", {"helpful": 0.25, "overall": 1.0}, 0.5)
    assert parse_pair(json.loads(json.dumps(pair_row(pair)))) == pair


def test_every_format_reads_the_same_and_so_does_a_hub_style_folder(tmp_path):
    for name in ["a.jsonl", "a.json", "a.parquet", "a.jsonl.gz", "a.json.gz", "a.parquet.gz"]:
        rows = [ROW, ROW | {"chosen": "four \u2028 or so"}]
        path = tmp_path / name.removesuffix(".gz")
        if ".parquet" in name:
            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
            path.write_text(lines if ".jsonl" in name else json.dumps(rows))
        if name.endswith(".gz"):
            (tmp_path / name).write_bytes(gzip.compress(path.read_bytes()))
        pairs, report = load_pairs(str(tmp_path / name))
        assert [pair.chosen for pair in pairs] == ["4", "four \u2028 or so"] and report.read == 2 and not report.dropped
    (tmp_path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist([ROW]), tmp_path / "data" / "train-00000-of-00001.parquet")
    pairs, _ = load_pairs(f"{tmp_path}")
    assert pairs[0].chosen == "4"
    for name in ["a.jsonl", "a.json"]:
        text = json.dumps(ROW if name == "a.jsonl" else [ROW])
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert len(load_pairs(str(tmp_path / name))[0]) == 1


BAD = {
    "no column 'rejected'": {"prompt": "a", "chosen": "b"},
    "empty completion: 'rejected'": ROW | {"rejected": "  "},
    "empty prompt": ROW | {"prompt": ""},
    "identical": ROW | {"rejected": "4"},
    "'margin' is not a finite number: 'large'": ROW | {"margin": "large"},
    "a margin must be a finite number >= 0, got -1": ROW | {"margin": -1},
    "must lie in": ROW | {"wins": {"overall": 1.4}},
    "the chosen completion has the lower score": ROW | {"score_chosen": 1, "score_rejected": 2},
    "'wins' is not {objective: number}": ROW | {"wins": 1.0},
    "'overall' is not a finite number": ROW | {"wins": {"overall": [1]}},
    "an unpaired surrogate": ROW | {"chosen": "smile \ud83d"},
    "an unpaired surrogate: '\\ud83e' cannot be written": ROW | {"id": "smile \ud83e"},
    "unknown role 'robot'": ROW | {"prompt": [{"role": "robot", "content": "x"}]},
    "one of chosen and rejected is text": ROW | {"chosen": [ANSWER]},
    "differ before their last turn": {"chosen": [USER, ANSWER], "rejected": [{"role": "user", "content": "?"}, ANSWER]},
    "'rejected' has text before its first 'Human:': 'Be brief.'": {
        "chosen": "\n\nHuman: Hi\n\nAssistant: a",
        "rejected": "Be brief.\n\nHuman: Hi\n\nAssistant: b",
    },
    "have no common beginning": {"chosen": "abc", "rejected": "xyz"},
    "must be one assistant turn after the prompt": {"prompt": "Hi", "chosen": [USER], "rejected": [ANSWER]},
}


def test_a_bad_row_is_refused_with_file_line_and_reason(tmp_path):
    for reason in BAD:
        path = write(tmp_path / "bad.jsonl", [ROW, BAD[reason]])
        with pytest.raises(DataError) as refused:
            load_pairs(path)
        assert all(part in str(refused.value) for part in (f"{path}:2", reason, "--on_bad_row skip"))


def test_bad_rows_are_counted_by_reason_with_their_first_places(tmp_path):
    path = write(tmp_path / "mixed.jsonl", [ROW, *BAD.values(), ROW | {"rejected": ""}])
    with open(path, "a") as file:
        file.write("{broken\n[1]\n")
    with open(path, "ab") as file:
        file.write(b'{"prompt": "\xff"}\n')
    pairs, report = load_pairs(path, on_bad_row="skip")
    assert len(pairs) == 1 and report.read == len(BAD) + 5 and len(report.dropped) == report.read - 1
    assert report.reasons["empty completion"] == 2
    assert {"not JSON", "not an object", "not UTF-8"} <= set(report.reasons)
    assert report.dropped[0][0] == f"{path}:2"
    rows = [ROW, *[ROW | {"chosen": ""}] * 4, ROW | {"rejected": None}]
    path = write(tmp_path / "bad.jsonl", rows)
    with pytest.raises(DataError) as refused:
        load_pairs(path)
    text = str(refused.value)
    assert "5 of 6 rows cannot be used" in text
    assert f"4 x empty completion ({path}:2, {path}:3, {path}:4, ...)" in text
    assert f"1 x column 'rejected' is null ({path}:6)" in text


def test_an_id_that_stands_twice_is_a_bad_row_and_one_that_is_missing_is_made(tmp_path):
    rows = [ROW | {"id": name, "chosen": f"good {n}"} for n, name in enumerate("abca")]
    path = write(tmp_path / "a.jsonl", rows)
    for read in (load_pairs, load_examples):
        with pytest.raises(DataError, match=r"a.jsonl:4: duplicate id: 'a' is the id of line 1 too"):
            read(path)
        assert len(read(path, on_bad_row="skip")[1].dropped) == 1
    write(tmp_path / "b.jsonl", [row | {"subset": str(n)} for n, row in enumerate(rows)])
    assert len(load_pairs([str(tmp_path / "b.jsonl"), str(tmp_path / "b.jsonl")])[0]) == 8
    for stated in [{}, {"id": None}]:
        rows = [stated | {"prompt": "q", "completion": text} for text in ("a", "b")]
        (first, _), (second, _) = load_examples(write(tmp_path / "a.jsonl", rows))[0]
        assert first == content_hash([user_turn("q"), "a"]) and second == content_hash([user_turn("q"), "b"]), stated
        rows = [{"unique_id": "u7", "prompt": "q", "completion": "a"}]
        assert load_examples(write(tmp_path / "b.jsonl", rows))[0][0][0] == "u7", stated
        assert read_prompts(str(tmp_path / "b.jsonl"))[0][0] == "u7", stated
    (tmp_path / "a.csv").write_text("id,prompt\n,q\nx,r\n")
    assert [name for name, _ in read_prompts(str(tmp_path / "a.csv"))] == ["0", "x"], "an empty id is none"


def test_labels_in_csv_cells_are_json_and_an_empty_cell_is_none(tmp_path):
    file = tmp_path / "a.csv"
    cells = ('""', '"{""overall"": 0.2}"', '"{""helpful"": ""1""}"', "yes", '"[1]"')
    file.write_text("prompt,chosen,rejected,wins\n" + "".join(f"q{n},a,b,{cell}\n" for n, cell in enumerate(cells)))
    loaded, report = load_pairs(str(file), on_bad_row="skip")
    assert [pair.wins for pair in loaded] == [{"overall": 1.0}, {"overall": 0.2}, {"helpful": 1.0}]
    assert [why for _, why in report.dropped] == [f"'wins' is not {{objective: number}}: {v}" for v in ("'yes'", "[1]")]


def test_csv_cells_and_keys_that_stand_twice_lose_no_text(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("id,prompt,chosen,rejected\n,q,hello, world,b\n,r,a,b\n,s,a,b\n")
    with pytest.raises(DataError, match="row 1: more cells than columns: 5 and 4; put a text with commas in quotes"):
        load_pairs(str(file))
    pairs, report = load_pairs(str(file), on_bad_row="skip")
    assert [pair.prompt[0]["content"] for pair in pairs] == ["r", "s"] and len(report.dropped) == 1
    assert len({pair.id for pair in pairs}) == 2, "an empty id is none"
    file.write_text('prompt,chosen,rejected\nq,"a,b\nr,c,d\n')
    with pytest.raises(DataError, match="row 1: unexpected end of data; is a quotation mark not closed"):
        load_pairs(str(file))
    file.write_text(f"prompt,chosen,rejected\nq,{'a' * 200_000},b\n")
    assert len(load_pairs(str(file))[0][0].chosen) == 200_000
    line = '{"prompt": "q", "chosen": "a", "chosen": "b", "rejected": "c"}'
    (tmp_path / "a.jsonl").write_text(line)
    (tmp_path / "a.json").write_text(f"[{line}]")
    (tmp_path / "a.csv").write_text("prompt,chosen,chosen,rejected\nq,a,b,c\n")
    for name in ("a.jsonl", "a.json"):
        with pytest.raises(DataError, match="duplicate key: 'chosen' occurs twice"):
            load_pairs(str(tmp_path / name))
    with pytest.raises(DataError, match="two columns are called 'chosen'"):
        load_pairs(str(tmp_path / "a.csv"))


def test_files_that_are_damaged_or_hold_bad_rows_only_are_one_clear_sentence(tmp_path):
    for name, content, says in [
        ("a.jsonl.gz", gzip.compress(json.dumps(ROW).encode() * 99, mtime=0)[:-20], "damaged or cut off"),
        ("a.parquet", b"PAR1 and no more", "not a complete Parquet file"),
        ("a.json", b'[{"prompt": ', "not JSON"),
        ("a.json", b'{"prompt": "a"}', "not a list of rows"),
        ("a.json", b'["\xff"]', "not UTF-8 at byte 2"),
        ("a.jsonl", b"", "the file is empty"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=says) as refused:
            load_pairs(str(tmp_path / name))
        assert name in str(refused.value)
    files = [str(write(tmp_path / name, [{"x": 1}])) for name in ("a.jsonl", "b.jsonl")]
    for number in (1, 2):
        named = re.escape(", ".join(files[:number]))
        with pytest.raises(DataError, match=f"^{named}: no usable row among {number}"):
            load_pairs(files[:number], on_bad_row="skip")


def test_a_missing_file_an_unknown_format_and_an_unknown_data_set(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError, match=r"no file nowhere\.jsonl"):
        load_pairs("nowhere.jsonl")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UsageError, match=r"cannot tell the format from '\.txt'"):
        load_pairs(str(tmp_path / "a.txt"))
    with pytest.raises(UsageError, match="no file and no dataset 'no-such/set'"):
        load_pairs("no-such/set")


def test_examples_come_from_completions_messages_and_pairs_and_are_known_by_their_first_user_turn(tmp_path):
    rows = [{"id": "a", "prompt": "Hi", "completion": "Hello"}, {"id": "b", "messages": [USER, ANSWER]}]
    named, _ = load_examples(write(tmp_path / "a.jsonl", [*rows, ROW | {"id": "c"}]))
    assert [name for name, _ in named] == ["a", "b", "c/chosen", "c/rejected"]
    assert named[0][1] == named[1][1]
    system = {"role": "system", "content": "Be kind"}
    assert first_turn((system, {"role": "user", "content": "Hello,  World!"}, ANSWER)) == "hello world"


def test_public_preference_data_load_with_every_drop_accounted_for(shared_data):
    expected = {
        "hh_rlhf/harmless_base_test.public.jsonl.gz": (1704, 7),
        "hh_rlhf/helpful_rmgallery.public.jsonl.gz": (868, 12),
        "ultrafeedback_sample/train.jsonl.gz": (1000, 6),
        "ultrafeedback_sample/eval.jsonl.gz": (200, 1),
        "rewardbench_v1/filtered-00000-of-00001.parquet": (2985, 0),
    }
    for name, (read, dropped) in expected.items():
        pairs, report = load_pairs(str(shared_data / name), on_bad_row="skip")
        assert (report.read, len(report.dropped), len(pairs)) == (read, dropped, read - dropped)


def test_rationales_belong_to_their_completions_and_come_back():
    row = {"prompt": "p", "chosen": "a", "rejected": "b", "rationale_chosen": "a is kind", "rationale_rejected": None}
    pair = parse_pair(row)
    assert pair.rationales == ("a is kind", "")
    assert parse_pair(pair_row(pair)) == pair
    turned = dataclasses.replace(pair, wins={"overall": 0.0}).preferred()
    assert turned is not None and (turned.chosen, turned.rationales) == ("b", ("", "a is kind"))
    with pytest.raises(ValueError, match="'rationale_chosen' is not a text: 3"):
        parse_pair(row | {"rationale_chosen": 3})
    with pytest.raises(ValueError, match="an unpaired surrogate"):
        parse_pair(row | {"rationale_chosen": "\ud800"})
