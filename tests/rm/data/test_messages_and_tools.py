import copy
import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rewardlab.judges.case_rows import parse_case
from rewardlab.rm.data.lint import lint
from rewardlab.rm.data.pairs import load_examples, load_pairs, pair_row, parse_examples, parse_pair
from rewardlab.rm.data.scored_rows import load_judged
from rewardlab.rm.data.streaming import PairStream, StreamPosition
from rewardlab.rm.errors import DataError
from rewardlab.rm.types import Completion, completion_turns, prompt_text, tools_of

from tests.rm.data.test_pairs import write

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "Weather of a city", "parameters": CITY}
TOOL = {"type": "function", "function": WEATHER}
QUESTION = {"role": "user", "content": "How warm is it?"}
RESULT = {"role": "tool", "tool_call_id": "call_1", "name": "get_weather", "content": "21 C"}
ANSWER = {"role": "assistant", "content": "It is 21 C."}
ROW = {"prompt": "What is 2 + 2?", "chosen": "4", "rejected": "5"}


def calling(city, **fields):
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": city}}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **fields}


def conversation(city="Paris", **columns):
    other = [calling("Rome"), RESULT, ANSWER]
    return {"prompt": [QUESTION], "chosen": [calling(city), RESULT, ANSWER], "rejected": other} | columns


def test_ids_of_conversations_without_the_new_fields_are_pinned_and_answers_are_text_alone():
    turns = [{"role": "system", "content": "Be kind."}, QUESTION, ANSWER]
    unset = {"tool_calls": None, "name": None, "reasoning_content": None, "tool_call_id": None}
    assert parse_pair(ROW).id == "7f56701957c7a49b"
    assert parse_pair(ROW | {"system": None, "tools": None, "images": []}).id == "7f56701957c7a49b"
    assert parse_examples({"messages": turns})[0][0] == "35511688987f18b2"
    assert parse_examples({"messages": [turn | unset for turn in turns]})[0][0] == "35511688987f18b2"
    assert json.dumps(pair_row(parse_pair(ROW))) == (
        '{"id": "7f56701957c7a49b", "prompt": [{"role": "user", "content": "What is 2 + 2?"}], "chosen": "4", '
        '"rejected": "5", "wins": {"overall": 1.0}}'
    )
    pair = parse_pair({"prompt": [QUESTION], "chosen": [ANSWER], "rejected": [{"role": "assistant", "content": "No."}]})
    assert type(pair.chosen) is str and pair.chosen == "It is 21 C."


def test_every_field_and_column_enters_the_id_and_survives_the_file():
    paris, oslo = parse_pair(conversation("Paris")), parse_pair(conversation("Oslo"))
    assert paris.chosen != paris.rejected and paris.id != oslo.id
    assert '"arguments": {"city": "Paris"}' in paris.texts[0] and "21 C" in paris.texts[0]
    with pytest.raises(ValueError, match="identical"):
        parse_pair(conversation("Rome"))
    for columns in [
        {"system": "Be brief."},
        {"tools": [TOOL]},
        {"prompt": [QUESTION | {"name": "ada"}]},
        {"prompt": [{"role": "developer", "content": "Be brief."}, QUESTION]},
        {"chosen": [calling("Paris", content="I look.") | {"reasoning_content": "Which city?"}, RESULT, ANSWER]},
        {"chosen": [calling("Paris"), RESULT | {"tool_call_id": "call_2"}, ANSWER]},
        {"chosen": [calling("Paris"), RESULT | {"content": "20 C"}, ANSWER]},
    ]:
        plain, pair = parse_pair(conversation()), parse_pair(conversation() | columns)
        assert pair.id != plain.id, columns
        assert parse_pair(json.loads(json.dumps(pair_row(pair)))) == pair, columns
        assert (prompt_text(pair.prompt), pair.chosen) != (prompt_text(plain.prompt), plain.chosen), columns


def test_system_tools_and_reasoning_stand_in_the_text_that_people_and_judges_read():
    thinking = calling("Paris") | {"reasoning_content": "Which city?"}
    pair = parse_pair(conversation(system="Be brief.", tools=[TOOL]) | {"chosen": [thinking, RESULT, ANSWER]})
    text = prompt_text(pair.prompt)
    assert text.startswith("tools:\n{") and '"name": "get_weather"' in text and "system: Be brief." in text
    assert pair.texts[0] == (
        '<think>\nWhich city?\n</think>\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n'
        "</tool_call>\n\ntool get_weather: 21 C\n\nassistant: It is 21 C."
    )


def test_a_call_is_no_text_that_looks_like_it_and_keeps_its_messages_when_copied():
    called = Completion((calling("Paris") | {"content": ""},))
    assert called != called.text and called.text != called and called == Completion(called.turns)
    pair = parse_pair({"prompt": "How warm is it?", "chosen": [calling("Paris")], "rejected": [calling("Rome")]})
    as_text = parse_pair({"prompt": "How warm is it?", "chosen": pair.texts[0], "rejected": pair.texts[1]})
    assert pair.id != as_text.id
    answer = parse_pair(conversation()).chosen
    for other in (copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
        assert other == answer and completion_turns(other) == completion_turns(answer) and hash(other) == hash(answer)


def test_conversations_part_at_the_call_whose_results_differ():
    head = [QUESTION, calling("Paris"), RESULT, ANSWER, {"role": "user", "content": "And in Rome?"}]
    colder = RESULT | {"content": "9 C"}
    pair = parse_pair(
        {"chosen": [*head, calling("Rome"), RESULT, ANSWER], "rejected": [*head, calling("Rome"), colder, ANSWER]}
    )
    assert len(pair.prompt) == 5 and [turn["role"] for turn in completion_turns(pair.chosen)] == [
        "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert "9 C" in pair.texts[1]


def test_forms_of_one_conversation_are_one_conversation_and_broken_arguments_stay():
    standard = parse_pair(conversation(tools=[TOOL], system="Be brief."))
    text = json.dumps({"city": "Paris"})
    call = {"id": "call_1", "name": "get_weather", "arguments": text}
    chosen = [{"role": "assistant", "tool_calls": [call], "name": ""}, RESULT, ANSWER]
    parts = [{"role": "user", "content": [{"type": "text", "text": "How warm is it?", "image_url": None}]}]
    system = {"role": "system", "content": "Be brief."}
    cases = [
        {"chosen": chosen}, {"tools": json.dumps([TOOL])}, {"tools": [TOOL["function"]]}, {"prompt": parts},
        {"prompt": [system, QUESTION], "system": None},
        {"prompt": [system | {"tools": [TOOL]}, QUESTION], "tools": None},
    ]  # fmt: skip
    for columns in cases:
        assert parse_pair(conversation(tools=[TOOL], system="Be brief.") | columns).id == standard.id, columns
    broken = calling("Rome")
    broken["tool_calls"][0]["function"]["arguments"] = '{"city": "Ro'
    pair = parse_pair({"prompt": [QUESTION], "chosen": [calling("Rome")], "rejected": [broken]})
    assert r'"arguments": "{\"city\": \"Ro"' in pair.texts[1]


def test_a_table_a_stream_and_rated_answers_keep_calls_and_tools(tmp_path):
    other = calling("x")
    other["tool_calls"][0]["function"] = {"name": "add", "arguments": {"a": 1}}
    rows = [conversation(tools=[TOOL], system="Be brief."), conversation() | {"rejected": [other, RESULT, ANSWER]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    lines, table = write(tmp_path / "a.jsonl", rows), str(tmp_path / "a.parquet")
    expected, _ = load_pairs(lines)
    assert load_pairs(table)[0] == expected
    for source in (lines, table):
        stream = PairStream([source], lambda pairs: pairs)
        assert stream.read(stream._blocks[0].position)[0] == expected, source
    messages = [QUESTION, calling("Paris"), RESULT, ANSWER | {"reasoning_content": "Warm."}]
    path = write(tmp_path / "a.jsonl", [{"messages": messages, "tools": [TOOL], "helpful": 1.0}])
    (_, example), *_ = load_examples(path)[0]
    assert tools_of(example.prompt) == [TOOL] and "tool_calls" in example.prompt[1]
    assert "<think>\nWarm." in example.text
    assert load_judged(path, ["helpful"])[0].completions[0].example == example


def test_what_cannot_be_read_is_one_sentence_with_its_row(tmp_path):
    for row, says in [
        (ROW | {"images": ["a.png"]}, "the row has 'images', but only text is scored"),
        (ROW | {"audio": {"path": "a.wav"}}, "the row has 'audio'"),
        (conversation() | {"prompt": [QUESTION | {"content": [{"type": "image"}]}]}, "the kind 'image' in 'prompt'"),
        (conversation() | {"prompt": [QUESTION | {"images": ["a.png"]}]}, "a message of 'prompt' has 'images'"),
        (conversation() | {"prompt": [calling("Paris") | {"role": "user"}]}, "its role must be assistant"),
        (conversation() | {"chosen": [calling("Paris"), RESULT]}, "'chosen' must be one assistant turn"),
        (conversation() | {"chosen": [ANSWER, ANSWER]}, "'chosen' must be one assistant turn"),
        (conversation() | {"chosen": [{"role": "assistant", "content": None}]}, "is not {role, content} with text"),
        (conversation() | {"chosen": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}, "a tool call in 'chosen'"),
        (conversation(tools="get_weather"), "'tools' is not JSON"),
        (conversation(tools=["get_weather"]), "an item of 'tools' is not JSON"),
        (conversation(tools=[{"type": "function"}]), "not the schema of a function"),
        (conversation(system="A", prompt=[{"role": "system", "content": "B"}, QUESTION]), "turn of the prompt differ"),
    ]:
        path = write(tmp_path / "a.jsonl", [ROW, row])
        with pytest.raises(DataError) as refused:
            load_pairs(path)
        assert f"{path}:2: " in str(refused.value) and says in str(refused.value)


def test_ignored_columns_and_fields_are_counted_also_in_messages_that_are_stored_as_text(tmp_path):
    rows = [ROW | {"source": "forum", "note": None}, conversation() | {"source": "forum"}, ROW | {"id": "c"}]
    rows[1]["prompt"] = [QUESTION | {"weight": 1}]
    _, report = load_pairs(write(tmp_path / "a.jsonl", rows))
    assert report.ignored == {"source": 2, "prompt[].weight": 1}
    assert report.as_json()["ignored"] == {"prompt[].weight": 1, "source": 2}
    assert report.ignored_columns == "prompt[].weight (1 rows), source (2 rows)"
    assert "ignored" not in load_pairs(write(tmp_path / "b.jsonl", [ROW]))[1].as_json()
    row = as_text({"prompt": [QUESTION | {"mood": "curious"}], "chosen": "a", "rejected": "b"}, json.dumps)
    assert load_pairs(write(tmp_path / "pairs.jsonl", [row]))[1].ignored == {"prompt[].mood": 1}


def test_calls_that_differ_in_a_sign_are_neither_near_identical_nor_a_duplicate():
    def pair(number, chosen, rejected):
        turns = [calling(""), calling("")]
        for turn, value in zip(turns, (chosen, rejected), strict=True):
            turn["tool_calls"][0]["function"] = {"name": "add", "arguments": {"a": value}}
        return parse_pair({"id": number, "prompt": [QUESTION], "chosen": [turns[0]], "rejected": [turns[1]]})

    assert not lint([pair("1", 1, -1), pair("2", 2, -2)]).findings
    assert {one.reason for one in lint([pair("1", 1, -1), pair("2", 1, -1)]).findings} == {"duplicate"}
    assert {one.reason for one in lint([pair("1", 1, -1), pair("2", -1, 1)]).findings} == {"contradictory duplicate"}


TURNS = [QUESTION, ANSWER, {"role": "user", "content": "It's [cold]?"}]
GOOD, BAD = ({"role": "assistant", "content": content} for content in ("No.", "Yes."))
STORED = {
    "prompt": {"prompt": TURNS, "chosen": "No.", "rejected": "Yes."},
    "completions": {"prompt": TURNS, "chosen": [GOOD], "rejected": [BAD]},
    "conversations": {"chosen": [*TURNS, GOOD], "rejected": [*TURNS, BAD]},
}


def numpy_text(turns):
    """Return a NumPy array of messages as pandas writes it: without commas."""
    return f"[{chr(10).join(map(str, turns))}]"


def as_text(row, dump):
    return {name: dump(value) if isinstance(value, list) else value for name, value in row.items()}


def test_json_text_is_parsed_as_messages_and_pythons_notation_refused_by_every_reader(tmp_path):
    for form in STORED.values():
        assert parse_pair(as_text(form, json.dumps)) == parse_pair(STORED["prompt"])
        for dump in (str, numpy_text):
            with pytest.raises(ValueError, match=r"'(prompt|chosen)' is in Python's notation: .*df\.to_json"):
                parse_pair(as_text(form, dump))
    for name, parse, row in [
        ("messages", parse_examples, {"messages": [*TURNS, GOOD]}),
        ("answers", parse_case, {"prompt": "Hot?", "answers": [[GOOD], [BAD]], "best": 0}),
        ("completion", parse_examples, {"prompt": TURNS, "completion": [GOOD]}),
    ]:

        def stored(dump, name=name, row=row):
            value = [dump(item) for item in row[name]] if name == "answers" else dump(row[name])
            return row | {name: value}

        assert parse(stored(json.dumps)) == parse(row), name
        with pytest.raises(ValueError, match="Python's notation"):
            parse(stored(str))
    with pytest.raises(ValueError, match="'tools' is in Python's notation"):
        parse_pair(ROW | {"tools": str([TOOL])})
    file = write(tmp_path / "pairs.jsonl", [as_text(STORED["conversations"], json.dumps)])
    assert PairStream([file], list).read(StreamPosition())[0] == load_pairs(file)[0]
    assert load_pairs(file)[0] == [parse_pair(STORED["prompt"])]


def test_a_text_that_only_begins_like_a_conversation_stays_text():
    texts = [json.dumps(value) for value in ([{"role": "editor", "name": "Ann"}], [QUESTION, "and so on"], [1, 2])]
    texts += ['[{"role": "user", "content": "cut o', f"{json.dumps([QUESTION])} is how", "[{'role': 'user'}]"]
    for text in texts:
        pair = parse_pair({"prompt": text, "chosen": text, "rejected": "no"})
        assert pair.prompt == ({"role": "user", "content": text},) and pair.chosen == text
