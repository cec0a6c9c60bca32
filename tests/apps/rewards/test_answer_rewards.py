"""Rewards of answers without a reward model: majorities, attempts, citations and orders, by hand-worked numbers."""

import math

import numpy as np
import pytest
import torch
from rewardlab.apps.rewards import ccpo as ccpo_reward
from rewardlab.apps.rewards import cosine as cosine_reward
from rewardlab.apps.rewards._open import RunFacts, function_reward, open_rate, open_rewards
from rewardlab.apps.rewards.ccpo import JointAndSoloRewards
from rewardlab.apps.rewards.context import context, f_score
from rewardlab.apps.rewards.cosine import cosine
from rewardlab.apps.rewards.dacr import ExchangeRewards
from rewardlab.apps.rewards.first_correct import first_correct
from rewardlab.apps.rewards.hill import hill
from rewardlab.apps.rewards.majority import majority
from rewardlab.apps.rewards.order import order
from rewardlab.apps.rewards.rear import rear
from rewardlab.apps.rewards.trapo import similarities, trapo
from rewardlab.apps.rewards.ufo import ufo
from rewardlab.policy.decoding.engines import decoding_model
from rewardlab.policy.rollouts._partners import Exchange, with_role
from rewardlab.policy.training.prompts import PromptRow, rows_by_prompt
from rewardlab.policy.types import Cycle
from rewardlab.rm.backbones.loading import load_causal_lm, load_tokenizer
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import Example, prompt_text, user_turn

A, B, C = (user_turn(text) for text in ("describe bees", "describe ponds", "bees, please"))


def facts(policy=None, table=(), **columns) -> RunFacts:
    rows = {prompt_text(prompt): [columns] for prompt in (A, B, C)}
    return RunFacts(policy, 1, 0, {}, rows, table)


def boxed(*answers: str, prompt=A) -> list[Example]:
    return [Example(prompt, f"so \\boxed{{{answer}}}" if answer else "no idea") for answer in answers]


# ---- majorities ----


def test_the_majority_is_of_the_row_and_the_first_of_equals_counts():
    rate = majority(run=facts())
    examples = [*boxed("4", "5", "5", ""), *boxed("1", "2", prompt=B)]
    assert rate(examples, [0, 0, 0, 0, 1, 1]) == [0, 1, 1, 0, 1, 0]
    assert rate(boxed("4"), [0]) == [1] and rate(boxed("", ""), [0, 0]) == [0, 0]


def test_a_majority_outside_the_limits_gives_no_reward():
    """Shares are 2/3 and 1/2 of those with an answer."""
    examples = [*boxed("4", "5", "5", ""), *boxed("1", "2", prompt=B)]
    rows = [0, 0, 0, 0, 1, 1]
    assert majority(run=facts(), least=0.6)(examples, rows) == [0, 1, 1, 0, None, None]
    assert majority(run=facts(), most=0.6)(examples, rows) == [None] * 4 + [1, 0]


def test_crossed_majorities_are_of_the_other_variant():
    """The paraphrase says 7 and the question 4: each is rewarded for the other's answer."""
    run = facts(table=[PromptRow(A, True, {}, (C,))])
    examples = [*boxed("4", "4", "7"), *boxed("7", "7", "4", prompt=C)]
    assert majority(run=run, cross=True)(examples, [0] * 6) == [0, 0, 1, 0, 0, 1]
    assert majority(run=run, cross=True)(boxed("4", "4"), [0, 0]) == [0, 0]  # nobody else has answered
    with pytest.raises(UsageError, match="add the column prompt_variants"):
        majority(run=facts(), cross=True)


@pytest.mark.parametrize("settings", [{"least": 0.9, "most": 0.3}, {"answer": "(a)(b)"}, {"answer": "(a"}])
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(UsageError):
        majority(run=facts(), **settings)(boxed("4"), [0])


def test_similar_trajectories():
    """z of (0, 1, 0) is (-1, 2, -1)/√3 and z of (0, 0, 1) (-1, -1, 2)/√3: their cosine is -1/2."""
    assert similarities([[0, 1, 0], [1, 1, 1]], [[0, 0, 1]]) == pytest.approx([-0.5, 0])
    assert similarities([[0, 1, 0, 9]], [[0, 1, 0]]) == pytest.approx([1])


def test_unlabelled_prompts_are_trusted_by_their_trajectories():
    """A is labelled and gets better, as does B; C gets worse. The warm-up is of two visits."""
    run = RunFacts(None, 1, 0, {}, {prompt_text(A): [{"label": "4"}], prompt_text(B): [{}], prompt_text(C): [{}]})
    rate = trapo(run=run, warm_up=2, top=0.0)
    seen = []
    for right, other in ((0, 2), (1, 1), (2, 0)):
        examples = boxed(*["4"] * right, *["5"] * (2 - right))
        examples += boxed(*["9"] * (right + 2), *"abc"[: 2 - right], prompt=B) + boxed(
            *"9" * (other + 2), *"ab"[: 2 - other], prompt=C
        )
        seen.append(rate(examples))
        rate.learn(Cycle(examples, *[None] * 4))
    assert seen[0][:2] == [0, 0] and {*seen[0][2:]} == {None} == {*seen[1][2:]}
    assert seen[2] == [1, 1, 1, 1, 1, 1, None, None, None, None]
    again = trapo(run=run, warm_up=2)
    again.load(rate.state())
    assert again(boxed("9", "9", prompt=B)) == [1, 1] == rate(boxed("9", "9", prompt=B))
    with pytest.raises(UsageError, match="no prompt has a label"):
        trapo(run=facts())


def test_the_most_similar_share_of_unlabelled_prompts_is_trusted():
    """0.29 * 100 is 28.999999999999996 in floating point: 29 of 100 prompts are trusted, whatever their similarity."""
    prompts = [user_turn(f"q{number}") for number in range(100)]
    run = RunFacts(None, 1, 0, {}, {prompt_text(A): [{"label": "4"}]} | {prompt_text(p): [{}] for p in prompts})
    rate = trapo(run=run, warm_up=1, top=0.29, least=2.0)
    rate.load({"paths": {prompt_text(prompt): [0.0, number / 100] for number, prompt in enumerate([A, *prompts])}})
    found = rate([*boxed("4"), *(example for prompt in prompts for example in boxed("9", prompt=prompt))])
    assert found[0] == 1.0 and found[1:].count(1.0) == 29 and found[1:].count(None) == 71


# ---- references ----


def test_attempts_lose_by_number_and_by_repetition():
    """Right at once; at the third of three, with two equal; never, with two equal of three; after the right one."""
    rate = ufo(run=facts(reference="Wax"))
    texts = ["\\boxed{wax}", "\\boxed{a} \\boxed{ A } \\boxed{wax}", "\\boxed{a} \\boxed{a} \\boxed{b}", "?"]
    expected = [1, 0.25 - 0.5 / 3, -0.5 / 3, 0]
    assert rate([Example(A, text) for text in texts]) == pytest.approx(expected)
    assert rate([Example(A, "\\boxed{wax} \\boxed{wax}")]) == [1]
    with pytest.raises(DataError, match="reference"):
        ufo(run=facts())


def test_cited_chunks():
    """P = 1/2 and R = 1/3: F_2 = 5/6 / (2 + 1/3) = 5/14. F_1 = 2/5."""
    assert f_score([1, 2], [1, 3, 4], 2.0) == pytest.approx(5 / 14) and f_score([], [1], 1.0) == 0
    assert f_score([1, 1], [1], 1.0) == pytest.approx(2 / 3)  # a repeated citation is imprecise
    cited = "<useful_chunks><CHUNK_1><CHUNK_2></useful_chunks>"
    source = "tests.apps.rewards.test_answer_rewards:wax"
    rate = context(run=facts(chunks=[1, 3, 4]), reward=source)
    examples = [Example(A, f"{cited} wax"), Example(A, cited), Example(A, "wax"), Example(A, f"{cited * 2} wax")]
    assert rate(examples) == pytest.approx([1 + 5 / 14, 0.5 / 14, 1, 1])
    with pytest.raises(UsageError, match="beta must be > 0"):
        context(run=facts(chunks=[1]), reward=source, beta=0.0)


def wax():
    return lambda examples: [float("wax" in example.text) for example in examples]


def long_enough(prompts, completions, least):
    """The share of the words that the prompt's row asks for."""
    return [len(text.split()) / number for text, number in zip(completions, least, strict=True)]


def test_a_reward_in_a_reward_reads_the_rows_of_the_prompts(tmp_path, monkeypatch):
    columns = [{"least": 4, "chunks": [1]}, {"least": 2, "chunks": [1]}]
    table = [PromptRow(prompt, True, row) for prompt, row in zip((A, B), columns, strict=True)]
    run = RunFacts(None, 1, 0, {}, rows_by_prompt(table), table)
    rate = context(run=run, reward="tests.apps.rewards.test_answer_rewards:long_enough")
    assert rate([Example(A, "one two"), Example(B, "one two"), Example(A, "one")], [0, 1, 0]) == [0.5, 1.0, 0.25]
    assert rate([Example(A, "one two")], [1]) == [1.0]  # a further row of the same prompt
    assert context(run=run, reward="majority")(boxed("4", "4", "5"), [0, 0, 0]) == [1.0, 1.0, 0.0]
    sources = open_rewards({"r": "context(reward=majority)"}, {}, run, tmp_path / "faults")
    assert sources(boxed("4", "4", "5"), rows=[0, 0, 0])[0]["r"].tolist() == [1.0, 1.0, 0.0]
    pair = JointAndSoloRewards(None, open_rate("majority", run), "", 1, 0)  # type: ignore[arg-type]
    monkeypatch.setattr(
        ccpo_reward, "sample_texts", lambda *_: ["\\boxed{4}", "\\boxed{5}", "\\boxed{4}", "\\boxed{4}"]
    )
    assert pair.rate([Example(A, "think"), Example(A, "ponder")], [0, 0]).tolist() == [[1.0, 1.0], [0.0, 1.0]]
    spoken = ExchangeRewards(open_rate("tests.apps.rewards.test_answer_rewards:long_enough", run))
    texts = ["a b"], ["a"]
    spoken.listen(Exchange((A,), texts, texts, texts))
    assert spoken.rate([Example(A, "")], [0]).tolist() == [[0.5, 0.5, 0.25, 0.25]]
    with pytest.raises(UsageError, match="verdict reads which completions are truncated"):
        labelled = [PromptRow(A, True, {"labels": ["A"], "responses": ["x", "y"], "chunks": [1]})]
        context(run=RunFacts(None, 1, 0, {}, rows_by_prompt(labelled), labelled), reward="verdict")


def scaled(completions, factor=1.0, **columns):
    return [factor * len(text) + len(columns) for text in completions]


def test_an_argument_of_a_function_is_not_replaced_by_a_column():
    table = [PromptRow(A, True, {"factor": 7.0, "other": "x"})]
    reward = function_reward("tests.apps.rewards.test_answer_rewards:scaled(factor=0.5)", table)
    assert reward is not None and reward([Example(A, "four")], [0]) == [4.0]  # and prompts, other


def by_name(**columns):
    return [len(text) + len(prompt) + other for text, prompt, other in zip(*map(columns.get, SEEN), strict=True)]


SEEN = ("completions", "prompts", "other")


def test_a_reward_may_take_everything_by_name_and_an_unknown_argument_is_refused():
    table = [PromptRow(user_turn("abc"), True, {"other": 10})]
    reward = function_reward("tests.apps.rewards.test_answer_rewards:by_name", table)
    assert reward is not None and reward([Example(user_turn("abc"), "four")], [0]) == [17]
    with pytest.raises(UsageError, match="no argument 'long'; the function has completions, finished"):
        function_reward("tests.apps.rewards.test_answer_rewards:no_columns(long=3)", table)


def no_columns(completions, finished=True):
    return [float(finished) for _ in completions]


@pytest.mark.parametrize("value", [3, "13", [1, None], [1.5], ["a"]])
def test_a_column_of_numbers_is_a_list_of_whole_numbers(value):
    with pytest.raises(DataError, match="'chunks' must be a list of whole numbers, got"):
        context(run=facts(chunks=value), reward="tests.apps.rewards.test_answer_rewards:wax")
    with pytest.raises(DataError, match="'order' must be a list of whole numbers, got"):
        order(run=facts(order=value))


def test_orders_of_steps():
    examples = [Example(A, text) for text in ("I say 1, 3, 2, 4", "1 2 3 4", "1 > 2 > 3", "so: 1 2 3 4 4", "?")]
    assert order(run=facts(order=[1, 2, 3, 4]))(examples) == [0.5, 1, 0, 0, 0]
    assert order(run=facts(order=[1, 2, 3, 4]), by="kendall")(examples)[0] == pytest.approx(5 / 6)
    with pytest.raises(UsageError, match="positions, kendall"):
        order(run=facts(order=[1]), by="tau")


def test_the_first_step_with_the_answer():
    rate = first_correct(run=facts(reference="wax"))
    assert rate([Example(A, text) for text in ("a\n\nwax\n\n\n\nb\n\nc wax", "wax", "honey")]) == [0.5, 1, None]


class Encoder:
    """Vectors by the first letter: w = (1, 0), b = (0.6, 0.8), others (0, 1); one facet."""

    def embed(self, texts):
        by_letter = {"w": [1.0, 0.0], "b": [0.6, 0.8]}
        return np.array([[by_letter.get(text[:1], [0.0, 1.0])] for text in texts], np.float32)


def test_a_truncated_cosine_and_the_script(monkeypatch):
    """cos 0.6 above τ = 0.2 is 1/2, times 1.5; 0 is below it. Two of four letters are Cyrillic."""
    monkeypatch.setattr(cosine_reward, "load_encoder", lambda folder: Encoder())
    rate = cosine(run=facts(reference="wax"), encoder="any", threshold=0.2)
    examples = [Example(A, text) for text in ("wx", "bees", "xx да")]
    assert rate(examples) == pytest.approx([1.5, 0.75, 0])
    scripted = cosine(run=facts(reference="wax"), encoder="any", threshold=0.2, script="cyrillic", language=2.0)
    assert scripted(examples) == pytest.approx([1.5, 0.75, 1])


# ---- with a language model ----


@pytest.fixture
def policy(rl_world):
    words = load_tokenizer(str(rl_world / "start"))
    return decoding_model(load_causal_lm(str(rl_world / "start"), words), words)


def mean_logprob(policy, prompt, text) -> float:
    """By one forward pass."""
    ids = policy.encoder.encode_prompt(prompt)
    answer = policy.encoder.tokenizer(text, add_special_tokens=False).input_ids
    with torch.no_grad():
        logprobs = policy.model(torch.tensor([[*ids, *answer]])).logits[0, len(ids) - 1 : -1].log_softmax(-1)
    return logprobs[range(len(answer)), answer].mean().item()


def test_a_preference_raises_the_completions_that_it_makes_likelier(policy):
    text = "honey and wax"
    plain, aligned = (mean_logprob(policy, prompt, text) for prompt in (A, with_role(A, "describe bees")))
    found = rear(run=facts(policy, preference="describe bees"), weight=3.0)([Example(A, text), Example(A, "")])
    assert found == pytest.approx([plain + 3 * (aligned - plain), 0], abs=1e-4)
    assert abs(aligned - plain) > 1e-3


def test_a_hint_is_worth_what_its_reader_answers(policy, rl_world, monkeypatch):
    """Two of four answers are right: 1 - 2/16, times exp(Δ / T) for a Δ below 0; no reward for one kind of answers."""
    texts = iter([["so wax"] * 2 + ["honey"] * 2, ["so wax"] * 4])
    monkeypatch.setattr("rewardlab.apps.rewards.hill.sample_texts", lambda *given: next(texts))
    run = facts(policy, question="describe bees", reference="wax")
    rate = hill(run=run, reasoner=str(rl_world / "start"), n=4, answer=r"(\w+)$")
    hints = [Example(B, text) for text in ("describe ponds", "describe bees", "it is wax", " ")]
    found = rate(hints)
    hinted = user_turn("describe bees\n\ndescribe ponds")
    change = mean_logprob(policy, A, "so wax") - mean_logprob(policy, hinted, "so wax")
    assert found == pytest.approx([(1 - 2 / 16) * math.exp(min(change, 0) / 0.3), 0, -0.2, -0.2], abs=1e-4)


def test_a_reader_of_hints_is_repeatable(policy, rl_world):
    run = facts(policy, question="describe bees", reference="the")
    rate = hill(run=run, reasoner=str(rl_world / "start"), n=4, answer=r"(\w+)", longest=8)
    assert rate([Example(B, "ponds")]) == rate([Example(B, "ponds")])
