from pathlib import Path

import numpy as np
import pytest
import torch
from peft import AutoPeftModelForTokenClassification, LoraConfig
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.contract.golden_scores import check_golden, write_golden
from rewardlab.rm.contract.scoring_contract import load_contract
from rewardlab.rm.data.solutions import Solution
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.process.model import AGGREGATES, load_process
from rewardlab.rm.kinds.process.step_encoding import split_steps
from rewardlab.rm.kinds.process.training import ProcessTask, encode_solutions
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.parity.parity import own_variants, parity
from rewardlab.rm.types import Example, Message, Steps, prompt_text, user_turn
from rewardlab.tests.stand_ins.small_training import Fit, fit
from scipy.special import expit, softmax
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from tests.rm.spread_models import WORDS

QUESTION = user_turn("tell me")


def solutions(number: int, seed: int = 0) -> list[Solution]:
    """A step is wrong if it holds `kano`, and so are the steps behind it."""
    random, made = np.random.default_rng(seed), []
    for index in range(number):
        number = int(random.integers(1, 7))
        steps = tuple(" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(number))
        wrong = np.cumsum(["kano" in step for step in steps]) > 0
        made.append(Solution(str(index), QUESTION, steps, tuple(np.where(wrong, 0.0, 1.0).tolist())))
    return made


SOLUTIONS = solutions(24, seed=1)
EXAMPLES = [solution.example("\n\n") for solution in SOLUTIONS]


@pytest.fixture(scope="module")
def tokenizer():
    random = np.random.default_rng(0)
    made = small_tokenizer([" ".join(random.choice(WORDS, 30)) for _ in range(100)], 300)
    made.add_tokens(["<step>"], special_tokens=True)
    return made


@pytest.fixture(scope="module")
def base(tokenizer, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(small_config(tokenizer, "llama")).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", params=["lora", "step token"])
def model(request, base):
    lora = LoraConfig(r=4, lora_alpha=32, target_modules="all-linear") if request.param == "lora" else None
    token = "<step>" if request.param == "step token" else None
    made = load_process(base, fresh=True, lora=lora, step_token=token, seed=0)
    fit(made, ProcessTask(), encode_solutions(made.encoder, solutions(128)).rows, Fit(16, 3e-3, 8, 0))
    return made


@pytest.fixture(scope="module")
def alone(model) -> list[np.ndarray]:
    """The definition: each solution by itself, the logit where a step ends, by Transformers' own forward."""
    scores = []
    with torch.inference_mode():
        for encoded in model.encoder.encode_steps(EXAMPLES):
            logits = model.model(input_ids=torch.tensor([encoded.ids])).logits[0].double().numpy()
            scores.append(expit(logits[list(encoded.ends)]))
    return scores


def close(found, expected) -> bool:
    return all(np.allclose(a, b, rtol=0, atol=1e-6) for a, b in zip(found, expected, strict=True))


def test_conversations_that_read_alike_have_scores_of_their_own(model):
    """One user turn that looks like a written conversation, and that conversation: the same text, other templates."""
    turns = zip(("user", "assistant", "user"), ("ro", "ka", "mi"), strict=True)
    chat = tuple(Message(role=role, content=text) for role, text in turns)
    examples = [Example(prompt, "roba") for prompt in (user_turn("ro\n\nassistant: ka\n\nuser: mi"), chat)]
    assert prompt_text(examples[0].prompt) == prompt_text(examples[1].prompt)
    together, alone = model.encoder.encode_steps(examples), [model.encoder.encode_steps([one])[0] for one in examples]
    assert together == alone and together[0].ids != together[1].ids


def test_the_tokens_by_hand_and_steps_that_are_given(base):
    model = load_process(base, fresh=True)
    tokenizer = model.encoder.tokenizer
    (encoded,) = model.encoder.encode_steps([Example(QUESTION, "roba kano\n\nmino")])
    first, second, end = (tokenizer(text, add_special_tokens=False).input_ids for text in ("roba kano", "mino", "\n\n"))
    head = tokenizer("<|user|>tell me<|eos|><|assistant|>", add_special_tokens=False).input_ids
    assert encoded.ids == head + first + end + second + end
    assert encoded.ends == (len(head + first + end) - 1, len(encoded.ids) - 1)
    marked = load_process(base, fresh=True, step_token="<step>").encoder
    (encoded,) = marked.encode_steps([Example(QUESTION, "roba kano\n\nmino")])
    step = [tokenizer.convert_tokens_to_ids("<step>")]
    assert encoded.ids == head + first + step + second + step
    assert split_steps(Steps(("a\n\nb", "c")), "\n\n") == ("a\n\nb", "c")
    assert split_steps("a\n\n \n\nb\n", "\n\n") == ("a", "b\n") and split_steps("", "\n\n") == ()


def test_aggregates_by_hand(model, alone):
    scores = np.array([[0.9], [0.5], [0.8]])
    expected = {"min": 0.5, "product": pytest.approx(0.36), "last": 0.8, "mean": pytest.approx(2.2 / 3)}
    assert {name: made(scores)[0] for name, made in AGGREGATES.items()} == expected
    assert model.contract.aggregate == "min" and close(model.rate(EXAMPLES), [some.min(0) for some in alone])
    other = model.with_aggregate("product")
    assert close(other.rate(EXAMPLES), [some.prod(0) for some in alone])
    assert other.contract.hash() != model.contract.hash()
    with pytest.raises(UsageError, match="unknown aggregate 'prod'.*did you mean 'product'"):
        model.with_aggregate("prod")


def test_any_batch_and_order_gives_the_scores_that_a_solution_has_alone(model, alone):
    assert {len(some) for some in alone} == {1, 2, 3, 4, 5, 6} and np.concatenate(alone).std() > 0.05
    assert close(model.step_scores(EXAMPLES), alone)
    ids = [encoded.ids for encoded in model.encoder.encode_steps(EXAMPLES)]
    small = model.token_logits(ids, batch_tokens=64)
    assert close([expit(row[-1]) for row in small], [some[-1] for some in alone])
    as_text = [Example(example.prompt, example.text) for example in EXAMPLES]
    assert close(model.step_scores(as_text), alone), "plain text is split as the steps were joined"


def test_padding_on_either_side_order_and_merging_change_nothing(model):
    results = {result.way: result for result in parity(model, EXAMPLES, own_variants(model))}
    assert all(result.passed for result in results.values()), results
    assert {"alone", "shuffled", "padded on the left", "padded on the right", "pad is EOS"} <= {*results}


def test_a_score_depends_on_nothing_behind_its_step(model, alone):
    for example, scores in zip(EXAMPLES[:6], alone, strict=False):
        steps = split_steps(example.completion, "\n\n")
        prefixes = [Example(example.prompt, Steps(steps[:number])) for number in range(1, len(steps) + 1)]
        assert close([some[-1] for some in model.step_scores(prefixes)], scores)


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "prm"
    model.save(folder)
    write_golden(model, EXAMPLES[:8], folder)
    return folder


def test_a_loaded_folder_gives_the_same_scores_under_a_contract_that_cannot_be_changed(model, saved, alone):
    loaded = load_reward_model(str(saved))
    assert loaded.contract == model.contract == load_contract(saved) and loaded.contract.kind == "process"
    assert close(loaded.step_scores(EXAMPLES), alone)
    assert check_golden(loaded, saved) < 1e-6
    with pytest.raises(UsageError, match=r"step_separator '\\n\\n', which is part of its contract; got '\\n'"):
        load_process(str(saved), step_separator="\n")
    with pytest.raises(UsageError, match="aggregate 'min'"):
        load_process(str(saved), aggregate="last")


def test_plain_transformers_and_peft_give_the_same_scores_from_the_folder(model, saved, alone):
    if (saved / "adapter_config.json").exists():
        plain = AutoPeftModelForTokenClassification.from_pretrained(saved, num_labels=1).eval()
    else:
        plain = AutoModelForTokenClassification.from_pretrained(saved).eval()
        assert plain.config.id2label == {0: "correct"}
    encoded = model.encoder.encode_steps(EXAMPLES[:4])
    with torch.inference_mode():
        logits = [plain(input_ids=torch.tensor([some.ids])).logits[0].double().numpy() for some in encoded]
    assert close([expit(z[list(some.ends)]) for z, some in zip(logits, encoded, strict=True)], alone[:4])


def test_steps_beyond_the_limit_and_completions_without_steps_have_no_score(base, tokenizer, model):
    steps = ("roba", "kano " * 4, "mino")
    whole = load_process(base, fresh=True)
    length = whole.encoder.encode_steps([Example(QUESTION, Steps(steps[:2]))])[0].length
    short = load_process(base, fresh=True, max_length=length)
    (scores,), (expected,) = (made.step_scores([Example(QUESTION, Steps(steps))]) for made in (short, whole))
    assert np.allclose(scores[:2], expected[:2], atol=1e-6) and np.isnan(scores[2]).all()
    for name in AGGREGATES:
        assert np.isnan(short.with_aggregate(name).rate([Example(QUESTION, Steps(steps))])).all()
    rewards = model.rate([Example(QUESTION, " \n\n "), EXAMPLES[0]])
    assert np.isnan(rewards[0]).all() and np.isfinite(rewards[1]).all() and model.rate([]).shape == (0, 1)


def test_a_step_token_is_a_single_token_and_a_backbone_without_a_head_needs_training(base, tmp_path):
    with pytest.raises(UsageError, match=r"--step_token roba kano: \d+ tokens"):
        load_process(base, fresh=True, step_token="roba kano")
    with pytest.raises(DataError, match="the weights lack score.bias, score.weight"):
        load_process(base)
    AutoModelForTokenClassification.from_pretrained(base, num_labels=3).save_pretrained(tmp_path)
    load_process(base, fresh=True).encoder.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(DataError, match="a token classifier of 3 labels"):
        load_process(str(tmp_path))


def test_two_labels_become_one_output_with_the_same_probability(base, tmp_path):
    """As TRL trained them: softmax over wrong and correct."""
    torch.manual_seed(1)
    other = AutoModelForTokenClassification.from_pretrained(base, num_labels=2)
    torch.nn.init.normal_(other.score.weight)
    torch.nn.init.normal_(other.score.bias)
    other.save_pretrained(tmp_path)
    load_process(base, fresh=True).encoder.tokenizer.save_pretrained(tmp_path)
    model = load_process(str(tmp_path), step_separator="\n", aggregate="last")
    (encoded,) = model.encoder.encode_steps([Example(QUESTION, "roba\nkano mino")])
    with torch.inference_mode():
        logits = other.eval()(input_ids=torch.tensor([encoded.ids])).logits[0].double().numpy()
    (scores,) = model.step_scores([Example(QUESTION, "roba\nkano mino")])
    assert np.allclose(scores[:, 0], softmax(logits[list(encoded.ends)], axis=1)[:, 1], atol=1e-6)
    model.save(tmp_path / "ours")
    assert np.allclose(load_reward_model(str(tmp_path / "ours")).rate(EXAMPLES), model.rate(EXAMPLES), atol=1e-6)
