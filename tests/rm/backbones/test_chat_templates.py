import time

import pytest
from rewardlab.benchmarks.garden import models
from rewardlab.rm.backbones.chat_templates import LARGEST, TURNS, LimitedEnvironment, fault_of, prefilled_text
from rewardlab.rm.backbones.loading import SMALL_TEMPLATE, load_tokenizer
from rewardlab.rm.backbones.tokenization import Encoder, describe_tokenizer
from rewardlab.rm.contract.scoring_contract import PLAIN_TEMPLATE, ScoringContract
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import Example, user_turn

LLAMA = """{{- bos_token }}{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = "" %}{%- endif %}
{{- "<|system|>\\n" }}{{- "Today Date: " + date_string + "\\n\\n" }}{{- system }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|' + message['role'] + '|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- elif message.tool_calls|length != 1 %}{{- raise_exception("one tool call at a time") }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n\\n' }}{%- endif %}"""
COUNTING = """{%- macro turn(m, depth=0) -%}{{ m.role|title ~ ': ' ~ m.content.split('</think>')|last }}{%- endmacro -%}
{%- set ns = namespace(last=messages|length - 1, found=false) -%}
{%- for m in messages[::-1] -%}{%- set index = (messages|length - 1) - loop.index0 -%}
{%- if not ns.found and m.role == 'user' -%}{%- set ns.found = true -%}{%- set ns.last = index -%}{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}{%- if loop.index0 > 50 -%}{%- break -%}{%- endif -%}
{% generation %}{{ turn(m) }}{% endgeneration %}{{ '  ' * 2 }}{{ eos_token }}{{ "%d" % loop.index }}
{%- endfor -%}{{ {'n': ns.last}|tojson }}"""
GOOD = {"small": SMALL_TEMPLATE, "plain": PLAIN_TEMPLATE, "toy": models.TEMPLATE, "llama": LLAMA, "counting": COUNTING}

MACROS = "{% macro a0() %}x{% endmacro %}" + "".join(
    f"{{% macro a{n}() %}}{{{{ a{n - 1}() }}}}{{{{ a{n - 1}() }}}}{{% endmacro %}}" for n in range(1, 40)
)
BAD = {
    "{{ ''.__class__.__mro__ }}": "attribute '__class__' of 'str' object is unsafe",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}": "attribute '__init__'",
    "{{ messages.append(1) }}": "attribute 'append' of 'list' object is unsafe",
    "{% for i in range(10**9) %}x{% endfor %}": "makes values of more than",
    "{% for i in range(9999) %}{% for i in range(9999) %}{% endfor %}{% endfor %}": "more than 20,000 steps",
    "{{ 'a' * 10**10 }}": "makes values of more than",
    "{{ 9**9**9 }}": "makes values of more than",
    "{% set x = 3 %}" + "{% set x = x * x %}" * 60: "makes values of more than",
    "{% set x = 'aa' %}" + "{% set x = x ~ x %}" * 60: "makes values of more than",
    "{% set x = 'aa' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60: "makes values of more than",
    "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}": "makes values",
    "{{ '%9999999999d' % 1 }}": "makes values of more than",
    "{{ '%*d' % (999999999, 1) }}": "makes values of more than",
    "{{ '%9999999999d'|format(1) }}": "makes values of more than",
    "{{ '{:>9999999999}'.format(1) }}": "makes values of more than",
    "{{ '{0:{1}}'.format('a', 10**9) }}": "makes values of more than",
    "{{ 'a'.ljust(10**9) }}{{ 'a'|center(9999999999) }}": "makes values of more than",
    "{{ ('a' * 1000).replace('a', 'b' * 5000) }}": "makes values of more than",
    "{{ {'a': 1}|tojson(indent=10**9) }}": "makes values of more than",
    "{{ range(99999)|list|length }}" * 100: "makes values of more than",
    "{{ lipsum(n=1000000) }}": "made-up text",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}": "calls itself without an end",
    MACROS + "{{ a39() }}": "more than 20,000 steps",
    "{% for m in messages %}" + "y" * (LARGEST + 1) + "{% endfor %}": "characters, more than the limit of 65,536",
}


def test_a_template_that_reaches_out_or_never_ends_is_refused_in_time():
    for template in BAD:
        started = time.process_time()
        assert BAD[template] in fault_of(template)
        assert time.process_time() - started < 30, template


@pytest.fixture(scope="module")
def words():
    return models.tokenizer()


def test_what_models_are_shipped_with_is_let_through_and_counted_alike_and_other_faults_wait_for_their_use(words):
    """The sandbox that counts writes what Transformers' own does."""
    for name in GOOD:
        assert fault_of(GOOD[name]) == ""
        for turns in TURNS:
            for opens in (False, True):
                given = {"add_generation_prompt": opens, "date_string": "1 Jan 2024"}
                theirs = words.apply_chat_template(list(turns), chat_template=GOOD[name], tokenize=False, **given)
                ours = LimitedEnvironment().render_limited(
                    GOOD[name], messages=[*turns], **given, **words.special_tokens_map
                )
                assert ours == theirs, opens
    assert fault_of("{{ raise_exception('no system') }}") == "" and fault_of("{% for") == ""


def test_a_file_with_a_bad_template_is_refused_with_its_place_and_a_way_out(tmp_path, words):
    words.save_pretrained(tmp_path)
    (tmp_path / "bad.jinja").write_text("{{ ''.__class__.__mro__ }}")
    with pytest.raises(DataError, match="the chat template of .* is refused: access to .* --chat_template FILE"):
        load_tokenizer(str(tmp_path), chat_template=str(tmp_path / "bad.jinja"))
    (tmp_path / "bad.jinja").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not a readable chat template"):
        load_tokenizer(str(tmp_path), chat_template=str(tmp_path / "bad.jinja"))
    (tmp_path / "chat_template.jinja").write_text("{{ 'a' * 10**10 }}")
    with pytest.raises(DataError, match="makes values of more than 1,048,576 elements"):
        load_tokenizer(str(tmp_path))


def encoder(template: str) -> Encoder:
    words = models.tokenizer()
    words.chat_template = template
    return Encoder(words, ScoringContract("scalar", max_length=64, truncation="left", **describe_tokenizer(words)))


def test_an_encoder_refuses_a_template_that_never_ends_or_blows_up_one_conversation():
    with pytest.raises(DataError, match="calls itself without an end"):
        encoder("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}")
    # Ten characters said, and 2,000 times each of them written: 20,000 are let through, 200,000 are not
    bomb = "{% for m in messages %}{% for c in m.content if m.content[0] == 'Z' %}" + "w " * 4000
    model = encoder(bomb + "{% endfor %}{{ m.content }} </s>{% endfor %}")
    assert model.encode(Example(user_turn("which"), "this")).length > 0
    with pytest.raises(DataError, match=r"it renders 14 characters as 80,0\d\d"):
        model.encode(Example(user_turn("Z" * 10), "this"))


TURNS_OPEN = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
TURNS_CLOSE = "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n"
CONTENT, END = "{{ m.content }}", "' }}{% endif %}"
WITH_AN_EMPTY_THOUGHT = (
    "{% if m.role == 'assistant' and '</think>' not in m.content %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
)
WITHOUT_THOUGHTS = "{{ m.content.split('</think>')[-1] }}"
LAST_WITH_A_THOUGHT = "{% if m.role == 'assistant' and loop.last %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
OPENED = "<think>\\n"


THINKING = [CONTENT, WITHOUT_THOUGHTS, WITH_AN_EMPTY_THOUGHT + CONTENT, LAST_WITH_A_THOUGHT + CONTENT]
PREFILLS = [
    *((turn, OPENED, "<think>\n") for turn in THINKING),
    ("{{ m.content | trim }}", "\\n", ""),
    *((turn, "", "") for turn in (CONTENT, WITH_AN_EMPTY_THOUGHT + CONTENT)),
    (CONTENT, "<think>\\n\\n</think>\\n\\n", "<think>\n\n</think>\n\n"),
]


def test_what_a_generation_prompt_writes_of_a_completion():
    for turn, opening, expected in PREFILLS:
        template = TURNS_OPEN + turn + TURNS_CLOSE + opening + END

        def render(turns, template=template, **options):
            return LimitedEnvironment().render_limited(template, messages=turns, **options)

        assert prefilled_text(render) == expected, (turn, opening)
    assert prefilled_text(lambda turns, **_: "\n\n".join(turn["content"] for turn in turns)) == "", "it marks no turns"
