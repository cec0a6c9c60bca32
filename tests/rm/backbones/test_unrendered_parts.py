import numpy as np
import pytest
import torch
from rewardlab.rm.backbones.loading import SMALL_TEMPLATE, small_config, small_tokenizer
from rewardlab.rm.backbones.tokenization import Encoder, describe_tokenizer
from rewardlab.rm.contract.scoring_contract import PLAIN_TEMPLATE, ScoringContract
from rewardlab.rm.data.pairs import parse_pair
from rewardlab.rm.errors import DataError
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.autoregressive.preference_task import PreferenceTask, encode_preferences
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.types import Example, user_turn

from tests.rm.backbones.test_logprobs import save_lm
from tests.rm.data.test_messages_and_tools import ANSWER, QUESTION, RESULT, TOOL, calling, conversation

NATIVE = """
{%- if tools %}[TOOLS]{% for tool in tools %}{{ tool | tojson }}{% endfor %}[/TOOLS]{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}<result>{{ m.content }}</result>
{%- else %}<{{ m.role }}>
{%- if m.reasoning_content and loop.last %}({{ m.reasoning_content }}){% endif %}{{ m.content }}
{%- for call in m.tool_calls or [] %}[CALL]{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}
{{- '</s>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""
"""A template that knows all of it, in a form of its own."""
HALF = NATIVE.replace(
    "{{ m.content }}\n{%- for call", "{% if not m.tool_calls %}{{ m.content }}{% endif %}\n{%- for call"
)
"""Llama 3.1's leaves out the content beside a call likewise."""
OLD = """{%- for m in messages %}
{%- if m.role not in ('user', 'assistant') %}{{ raise_exception('unknown role') }}{% endif %}
{{- '<' ~ m.role ~ '>' ~ m.content ~ '</s>' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
TEXTS = ["how warm is it in Paris and in Rome, look it up with get_weather", "It is 21 C."] * 4
WEATHER = conversation(system="Be brief.", tools=[TOOL])


def encoder(template: str, max_length: int = 2048) -> Encoder:
    words = small_tokenizer(TEXTS, 400)
    words.chat_template = template
    described = describe_tokenizer(words)
    return Encoder(words, ScoringContract("scalar", truncation="left", max_length=max_length, **described))


@pytest.fixture(scope="module")
def small() -> Encoder:
    return encoder(SMALL_TEMPLATE)


def test_a_template_renders_calls_itself_or_has_them_as_text(small):
    read = encoder(NATIVE)
    text = read.render(parse_pair(WEATHER).examples[0])
    assert not read.unrendered_parts
    assert text.startswith('[TOOLS]{"type": "function"') and "<system>Be brief.</s><user>How warm" in text
    assert '[CALL]get_weather{"city": "Paris"}</s><result>21 C</result><assistant>It is 21 C.</s>' in text
    assert small.unrendered_parts == {"declared tools", "tool calls", "reasoning"}
    thinking = [calling("Paris"), RESULT, ANSWER | {"reasoning_content": "Warm."}]
    text = small.render(parse_pair(WEATHER | {"chosen": thinking}).examples[0])
    assert text.startswith("<|system|>Be brief.\n\n# Tools\n\n<tools>\n{") and '"name": "get_weather"' in text
    assert text.endswith(
        '<|assistant|><tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call><|eos|>'
        "<|tool|>21 C<|eos|><|assistant|><think>\nWarm.\n</think>\n\nIt is 21 C.<|eos|>"
    )


def test_what_a_model_reads_and_its_score_differ_where_the_call_alone_differs(small):
    for template in [NATIVE, SMALL_TEMPLATE, PLAIN_TEMPLATE, OLD]:
        columns = {} if template == OLD else {"system": "Be brief."}
        read = encoder(template)
        for pair in (conversation(**columns), conversation(tools=[TOOL], **columns)):
            chosen, rejected = map(read.render, parse_pair(pair).examples)
            assert chosen != rejected and "Paris" in chosen and "Rome" in rejected and "21 C" in chosen, pair
    torch.manual_seed(0)
    model = scalar_from_config(small_config(small.tokenizer), small.tokenizer, max_length=512)
    chosen, rejected = model.rate(parse_pair(WEATHER).examples)[:, 0]
    assert chosen != rejected
    with_tools, without = (model.rate([parse_pair(row).examples[0]])[0, 0] for row in (WEATHER, conversation()))
    assert with_tools != without


def test_roles_that_a_template_refuses_are_turns_of_roles_that_it_has():
    developer = [{"role": "developer", "content": "Be brief."}, QUESTION]
    two = [calling("Paris"), RESULT, RESULT | {"content": "9 C"}, ANSWER]
    text = encoder(OLD).render(parse_pair(conversation(tools=[TOOL]) | {"chosen": two}).examples[0])
    assert text.startswith("<user># Tools\n\n<tools>\n") and text.count("<user>") == 2
    response = "<tool_response>\n{}\n</tool_response>"
    assert f"<user>{response.format('21 C')}\n{response.format('9 C')}</s><assistant>It is" in text
    pair = parse_pair(conversation(system=None) | {"prompt": developer})
    assert encoder(SMALL_TEMPLATE).render(pair.examples[0]).startswith("<|system|>Be brief.<|eos|>")
    assert encoder(NATIVE + "{# developer #}").render(pair.examples[0]).startswith("<developer>Be brief.</s>")


def test_what_a_template_drops_beside_a_call_or_costs_for_calls_is_refused():
    read = encoder(HALF)
    assert "[CALL]" in read.render(parse_pair(conversation()).examples[0])
    pair = parse_pair(conversation() | {"chosen": [calling("Paris", content="I look it up."), RESULT, ANSWER]})
    with pytest.raises(DataError, match="leaves out content beside a tool call or reasoning in .*--chat_template"):
        read.render(pair.examples[0])
    with pytest.raises(DataError, match="is refused: it makes values of more than"):
        encoder(NATIVE + "{% if tools %}{{ 'a' * 10**10 }}{% endif %}")


def test_plain_conversations_are_rendered_as_ever(small):
    turns = [{"role": "system", "content": "Be kind."}, QUESTION, ANSWER, QUESTION]
    example = Example(tuple(turns), "Warm.")
    expected = small.tokenizer.apply_chat_template(
        [*turns, {"role": "assistant", "content": "Warm."}], tokenize=False, date_string=small.contract.date_string
    )
    assert small.render(example) == expected and "unrendered_parts" not in vars(encoder(SMALL_TEMPLATE))
    assert small.render(Example((QUESTION, RESULT), "Warm.")).startswith("<|user|>How warm is it?<|eos|><|tool|>21 C")


def test_tool_results_are_not_the_assistants_words(small):
    example = parse_pair(WEATHER).examples[0]
    row = small.encode_completion(example)
    words = small.tokenizer
    ((told),) = row.tool_results
    assert words.decode(row.ids[told.start : told.stop]) == "<|tool|>21 C<|eos|><|assistant|>"
    assert words.decode(row.ids[row.start : told.start]).startswith("<tool_call>")
    assert words.decode(row.ids[told.stop :]) == "It is 21 C.<|eos|>"
    short = encoder(SMALL_TEMPLATE, max_length=len(row.ids) - told.start - 2).encode_completion(example)
    read = words.decode(short.ids[: short.tool_results[0].stop])
    assert short.start == 0 and read == words.decode(row.ids[told.start + 2 : told.stop])
    assert small.encode_completion(Example(user_turn("How warm?"), "Warm.")).tool_results == ()


@pytest.fixture(scope="module")
def policy(small, tmp_path_factory) -> str:
    return save_lm(tmp_path_factory.mktemp("lm"), small.tokenizer)


def test_log_probabilities_leave_tool_results_out_of_rewards_and_training(policy):
    model = load_autoregressive(policy)
    example = parse_pair(WEATHER).examples[0]
    row, tokens = model.encoder.encode_completion(example), model.logprobs([example])[0]
    ids = torch.tensor([row.ids])
    with torch.inference_mode():
        logprobs = torch.log_softmax(model.model(ids).logits[0].double(), dim=-1)
    expected = [logprobs[place - 1, row.ids[place]].item() for place in range(row.start, len(row.ids))]
    for place in row.tool_results[0]:
        expected[place - row.start] = 0.0
    assert len(row.tool_results[0]) and tokens == pytest.approx(expected, abs=1e-4)
    assert model.rate([example])[0, 0] == pytest.approx(np.sum(expected), abs=1e-3)
    for normalised in [False, True]:
        model = load_autoregressive(policy)
        pair = parse_pair(WEATHER)
        rows = encode_preferences(model.encoder, [pair], ["overall"]).rows
        task = PreferenceTask(None, ["overall"], None, None, normalised=normalised)  # pyright: ignore
        gap = task.gap(model.model, task.collate(rows), torch.ones(1, 1)).item()
        totals = [np.sum(values) for values in model.logprobs(pair.examples)]
        if normalised:
            read = [model.encoder.encode_completion(example) for example in pair.examples]
            totals = [t / (len(r.ids) - r.start - len(r.tool_results[0])) for t, r in zip(totals, read, strict=True)]
        assert gap == pytest.approx(totals[0] - totals[1], abs=1e-3), normalised
