"""judges/kinds/generative: the verdict's probability, by hand and by a small language model."""

import math
from statistics import stdev

import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.judges.audit.measures import comparison_flips
from rewardlab.judges.backends.chat import Choice
from rewardlab.judges.backends.local_model import chat_from_model, local
from rewardlab.judges.backends.scripted import dry_run_chat
from rewardlab.judges.judge import ByCase
from rewardlab.judges.kinds._comparison import orders_of
from rewardlab.judges.kinds.generative import SPREAD, generative
from rewardlab.judges.kinds.generative.probabilities import before_verdict, first_probability, preference
from rewardlab.judges.parsing.statements import NoVerdict
from rewardlab.judges.parsing.verdicts import pair_verdict
from rewardlab.judges.prompts import Sampling
from rewardlab.judges.rubrics.rubric import Principle, Rubric
from rewardlab.judges.types import Reason
from rewardlab.rm.errors import UsageError

from tests.judges.kinds.asking import Chooser, case, longer

NONE = NoVerdict(Reason.NO_VERDICT)


def test_the_label_that_states_the_verdict_is_found_by_the_parser():
    for text, before in [
        ("Winner: A", "Winner: "),
        ("A is short. B is longer and better. Final verdict: B", "A is short. B is longer and better. Final verdict: "),
        ('{"reasoning": "A cites, B does not", "winner": "A"}', '{"reasoning": "A cites, B does not", "winner": "'),
        ("<think>Winner: B?</think>[[A]]", "<think>Winner: B?</think>[["),
        ("Winner: A\nMy final verdict is the same.\nWinner: A", "Winner: "),
    ]:
        assert before_verdict(text, pair_verdict) == before
    for text in ["Winner: tie", "I cannot say.", ""]:
        assert before_verdict(text, pair_verdict) is None


def test_a_preference_is_the_mean_over_orders_and_replies_of_ratios_of_two():
    assert first_probability([math.log(0.03), math.log(0.01)]) == pytest.approx(0.75)
    assert first_probability([-5000.0, 0.0]) == 0.0 and first_probability([0.0, -5000.0]) == 1.0
    both = preference({(0, 1): [0.9, 0.7], (1, 0): [0.4, 0.2]})  # 0.8 and 1 - 0.3
    assert both.value == pytest.approx(0.75) and both.spread == pytest.approx(stdev([0.9, 0.7, 0.6, 0.8]))
    assert preference({(0, 1): [0.9, 0.9, NONE], (1, 0): [0.5, 0.5, 0.5]}).value == pytest.approx(0.7)
    assert preference({(0, 1): [0.9, NONE], (1, 0): [0.5, 0.5]}) == NONE
    assert preference({(0, 1): [0.9], (1, 0): [0.9]}).value == 0.5


def test_the_score_of_a_response_is_the_mean_of_both_orders_and_the_verdict_of_a_request_the_likelier_label():
    chat = Chooser(longer, "chooser")
    (judged,) = generative(chat)([case()])
    assert judged.scores == pytest.approx((0.7, 0.3))  # (0.8 + (1 - 0.4)) / 2
    assert [one.value for one in judged.criteria if one.name == SPREAD] == pytest.approx([stdev([0.8, 0.6])] * 2)
    assert all(choice.beginning.endswith('"winner": "') and choice.options == ("A", "B") for choice in chat.choices)
    assert {judged.orders} == {tuple(orders_of(case()))}
    (judged,) = generative(Chooser(longer, "chooser"))([case(answers=("aaa", "a", "aa"))])
    assert judged.scores == pytest.approx((0.7, 0.3, 0.5)) and len(judged.criteria) == 3
    for chances, verdicts, flip in [
        ((0.8, 0.4), (1, 0), 0), ((0.6, 0.6), (1, 1), 1), ((0.5, 0.9), (0.5, 1), 0.5), ((0.3, 0.1), (0, 0), 1),
    ]:  # fmt: skip
        chat = Chooser(longer, "chooser")
        chat.chances = chances  # of (0, 1), whose first response is the longer one, and of (1, 0)
        (judged,) = generative(chat)([case()])
        assert dict(judged.comparisons) == {(0, 1): verdicts[0], (1, 0): verdicts[1]}
        assert comparison_flips(judged) == [flip]


def test_a_rubric_is_in_the_request_and_in_that_of_the_probabilities_and_without_a_verdict_there_is_an_abstention():
    rubric = Rubric(principles=(Principle("p1", "brief"),))
    chat = Chooser(longer, "chooser")
    known, unknown = generative(chat, rubric=ByCase({"c": rubric}))([case(), case("other")])
    assert known.scores == pytest.approx((0.7, 0.3)) and unknown.reason == Reason.NO_RUBRIC
    assert len(chat.asked) == len(chat.choices) == 2
    assert all("brief" in choice.messages[-1]["content"] for choice in chat.choices)
    for reply, reason in (("Hm.", Reason.NO_VERDICT), ("Winner: tie", Reason.DECLINED)):
        (judged,) = generative(Chooser(lambda ask, reply=reply: reply, "chooser"))([case()])
        assert judged.reason == reason and judged.raw == (reply, reply)


def test_several_samples_need_a_temperature_and_an_endpoint_is_refused_before_it_is_asked():
    with pytest.raises(UsageError, match="3 samples at temperature 0.0"):
        generative(Chooser(longer, "chooser"), samples=3)
    chat = Chooser(longer, "chooser")
    generative(chat, samples=3, sampling=Sampling(temperature=1.0, seed=7))([case()])
    assert [ask.seed for ask in chat.asked] == [7, 8, 9] * 2

    class Endpoint:
        name = "model at http://127.0.0.1:9"

    with pytest.raises(UsageError, match="run the model in this process with --local"):
        generative(Endpoint())  # type: ignore[arg-type]
    chat = dry_run_chat()
    assert generative(chat)([case()])[0].abstained and len(chat.asked) == 2


@pytest.fixture(scope="module")
def words():
    return models.tokenizer((*garden.vocabulary(), "Winner:", "A", "B"))


@pytest.fixture(scope="module")
def model(words):
    return models.causal_lm(words, seed=1)


PROMPTS = enumerate(garden.prompts(7, 0))
CHOICES = [Choice(prompt, " ".join(["and"] * index + ["Winner: "]), ("A", "B")) for index, prompt in PROMPTS]


def test_logprobs_are_those_of_a_forward_over_prompt_and_beginning(model, words):
    for choice, logprobs in zip(CHOICES, chat_from_model(model, words).choice_logprobs(CHOICES), strict=True):
        ids = words.apply_chat_template(list(choice.messages), add_generation_prompt=True, return_dict=False)
        ids = [*ids, *words(choice.beginning, add_special_tokens=False).input_ids]
        with torch.no_grad():
            expected = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        assert logprobs == pytest.approx(expected[words.convert_tokens_to_ids(["A", "B"])].tolist(), abs=1e-5)


def test_neither_batch_size_nor_order_nor_a_reload_matters(model, words, tmp_path):
    found = [chat_from_model(model, words, batch_size=size).choice_logprobs(CHOICES) for size in (1, 3, 32)]
    for other in (found[1], found[2], chat_from_model(model, words, batch_size=3).choice_logprobs(CHOICES[::-1])[::-1]):
        assert torch.allclose(torch.tensor(other), torch.tensor(found[0]), atol=1e-5)
    model.save_pretrained(tmp_path / "judge")
    words.save_pretrained(tmp_path / "judge")
    assert local(str(tmp_path / "judge"), batch_size=1).choice_logprobs(CHOICES) == found[0]


def test_an_option_of_several_tokens_has_the_sum_over_those_that_differ(model, words):
    choice = CHOICES[0]
    longer_options = [choice._replace(options=("and A to", "and B to"))]
    after = [choice._replace(beginning=f"{choice.beginning}and ", options=("A", "B"))]
    after += [choice._replace(beginning=f"{choice.beginning}and {label} ", options=("to", "hello")) for label in "AB"]
    labels, *ends = chat_from_model(model, words).choice_logprobs(after)
    expected = [label + end[0] for label, end in zip(labels, ends, strict=True)]
    assert chat_from_model(model, words).choice_logprobs(longer_options)[0] == pytest.approx(expected, abs=1e-5)
