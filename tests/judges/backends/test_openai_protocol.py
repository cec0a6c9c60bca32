"""judges/backends/openai_protocol.py: replies in the bodies of responses."""

import json

import pytest
from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.backends.openai_protocol import NoCompletion, read_reply
from rewardlab.rm.types import user_turn


def said(message, finish="stop", usage=None):
    choice = {"message": {"role": "assistant"} | message, "finish_reason": finish}
    return read_reply(json.dumps({"choices": [choice], "usage": usage}), Ask(user_turn("Which?"), max_tokens=50))


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


def test_parts_of_a_content_are_joined_and_thoughts_kept_apart():
    for content, text, reasoning in [
        ("A", "A", ""),
        ([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}], "AB", ""),
        ([THOUGHT, {"type": "text", "text": "A"}], "A", "hm"),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "output_text", "text": "A"}], "A", "hm"),
        ([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "A"}], "A", "hm"),
    ]:
        reply = said({"content": content})
        assert (reply.text, reply.reasoning, reply.error) == (text, reasoning, "")
    for field in ["reasoning_content", "reasoning"]:
        reply = said({"content": None, field: "[[A]] looks right"}, "length")
        assert (reply.text, reply.finish, reply.error, reply.reasoning) == ("", "length", "", "[[A]] looks right")
    assert said({"content": "good \ud83d"}, "length").text == "good \ufffd"
    assert said({"content": None, "refusal": "I cannot."})[:2] == ("I cannot.", "declined")
    assert said({"content": [{"type": "refusal", "refusal": "I cannot."}]})[:2] == ("I cannot.", "declined")
    assert said({"content": "half of"}, "content_filter")[:2] == ("half of", "declined")
    assert said({"content": "[[A]] of"}, "model_length")[:2] == ("[[A]] of", "length")
    for finish in ["error", "abort", "insufficient_system_resource"]:
        reply = said({"content": "[[A]]"}, finish, {"prompt_tokens": 9, "completion_tokens": 2})
        assert (reply.text, reply.requests, reply.prompt_tokens, reply.completion_tokens) == ("", 1, 9, 2)
        assert reply.error == f"the server did not finish the reply (finish_reason {finish})"
    for finish in ["stop", "eos_token", "end_turn", "tool_calls"]:
        assert said({"content": "[[A]]"}, finish)[:2] == ("[[A]]", "stop")


def test_unstated_tokens_are_upper_bounds_and_a_body_that_is_no_completion_is_no_reply():
    """`Which?` has 6 bytes and a template at most 128 tokens; `A` and its end are 2, a text with thoughts 4."""
    for usage in [
        None, {}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": 9},
        {"prompt_tokens": 1e999, "completion_tokens": 1}, "10", {"total_tokens": 9},
    ]:  # fmt: skip
        reply = said({"content": "A"}, usage=usage)
        assert (reply.prompt_tokens, reply.completion_tokens, reply.estimated) == (6 + 128, 2, 1), usage
        assert said({"content": "A", "reasoning": "hm"}, usage=usage).completion_tokens == 4
        assert said({"content": "A"}, "length", usage).completion_tokens == 50
        assert said({"content": ""}, usage=usage)[3:4] == (50,)
        stated = said({"content": "A"}, usage={"prompt_tokens": 9, "completion_tokens": 0})
        assert (stated.prompt_tokens, stated.completion_tokens, stated.estimated) == (9, 0, 0), usage
    # 32 of the prompt, 9 of the text and 94 of thoughts are 135.
    for total, completion in [(135, 103), (41, 9), (0, 9), (None, 9), ("135", 9)]:
        usage = {"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": total}
        reply = said({"content": "A"}, usage=usage)
        assert (reply.prompt_tokens, reply.completion_tokens, reply.estimated) == (32, completion, 0)
    for body in ["[]", "{}", '{"choices": []}', '{"choices": [{"text": "A"}]}', '"slow down"']:
        with pytest.raises(NoCompletion, match="the response is no completion"):
            read_reply(body, Ask(()))
