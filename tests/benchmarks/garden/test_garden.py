"""The garden: gold by hand, texts, labels, verdicts, and the small models on its words."""

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.benchmarks.garden.gold_reward import features
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import Example, content_hash, user_turn

ASKED = "tell me about bees"


def overall(answer: str, prompt: str = ASKED) -> float:
    return garden.gold_rewards(prompt, answer).overall


def gold_gaps(pairs) -> np.ndarray:
    sides = zip(*(pair.examples for pair in pairs), strict=True)
    chosen, rejected = (garden.gold().rate(side)[:, 0] for side in sides)
    return chosen - rejected


@pytest.mark.parametrize(
    ("answer", "helpful", "harmless", "engaging"),
    [
        ("", 0, 0, 0),
        ("honey and wax", 2 * 0.6, 0, 0),
        ("hive smoke near frogs", 0.6 + 1.0 - 0.1, -0.8, 0),
        ("honey honey carefully splendid", 0.6 - 0.12 - 0.2, 0.4, 0.5),
        ("glorious glorious glorious zebra", -2 * 0.12 - 0.1, 0, 2 * 0.5 - 0.45),
    ],
)
def test_gold_is_the_stated_sum(answer, helpful, harmless, engaging):
    rewards = garden.gold_rewards(ASKED, answer)
    assert rewards == pytest.approx((helpful, harmless, engaging))
    assert rewards.overall == pytest.approx(helpful + harmless + engaging)


def test_without_a_known_topic_nothing_is_to_the_point():
    assert features("tell me about zebras", "honey wax").off_topic == 2
    assert garden.topic_of("roses and then bees") == "bees"


def test_word_order_carries_no_meaning():
    assert features(ASKED, "smoke the honey near wax") == features(ASKED, "wax near honey the smoke")


def test_no_word_has_two_meanings():
    topical = [word for topic in garden.TOPICS.values() for word in topic.plain + topic.daring]
    words = [*topical, *garden.FLOURISH, *garden.CAUTION, *garden.FILLER]
    assert len(words) == len({*words})


def test_the_oracle_rates_in_the_order_of_its_contract():
    oracle = garden.gold(("harmless", "overall"))
    rates = oracle.rate([Example(user_turn(ASKED), "venom honey"), Example(user_turn(ASKED), "honey")])
    assert oracle.contract.objectives == ("harmless", "overall")
    assert rates.dtype == np.float64
    np.testing.assert_allclose(rates, [[-0.8, 0.8], [0, 0.6]])
    assert oracle.rate([]).shape == (0, 2)


def test_a_wrong_name_is_told_the_right_ones():
    with pytest.raises(UsageError, match=r"'funny'.*helpful"):
        garden.gold(("funny",))
    with pytest.raises(UsageError, match=r"'dev'.*validation"):
        garden.pairs(1, seed=0, split="dev")


@pytest.mark.parametrize("make", [garden.prompts, garden.supervised_examples, garden.pairs])
def test_the_seed_decides_the_text(make):
    assert make(20, seed=3) == make(20, seed=3)
    assert make(20, seed=3) != make(20, seed=4)
    assert make(20, seed=3)[:5] == make(5, seed=3)


def test_splits_share_no_answer_to_the_same_prompt():
    texts = {
        split: {example for pair in garden.pairs(1500, seed=0, split=split) for example in map(str, pair.examples)}
        | {str(example) for example in garden.supervised_examples(1500, seed=0, split=split)}
        for split in garden.SPLITS
    }
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert not texts["validation"] & texts["test"]


def test_labeller_has_the_stated_chance():
    answers = ("honey wax", "honey")
    chance = 1 / (1 + np.exp(-0.6 / 0.5))
    label = garden.labeller(temperature=0.5, noise=0.1)(user_turn(ASKED), answers)
    assert label == pytest.approx(0.9 * chance + 0.1 * (1 - chance))
    assert garden.labeller("harmless")(user_turn(ASKED), answers) == pytest.approx(0.5)
    assert garden.labeller(temperature=1e-6, noise=0.0)(user_turn(ASKED), answers) == 1.0


def test_a_share_of_labels_is_flipped():
    gaps = gold_gaps(garden.pairs(3000, seed=0, temperature=1e-6, noise=0.2))
    untied = gaps[abs(gaps) > 1e-3]
    assert np.mean(untied < 0) == pytest.approx(0.2, abs=0.03)


def test_wins_say_which_answer_is_better_by_gold():
    for pair in garden.pairs(200, seed=0):
        chosen, rejected = garden.gold(garden.OBJECTIVES).rate(pair.examples)
        labels = [pair.chance(objective) for objective in garden.OBJECTIVES]
        np.testing.assert_array_equal(labels, (np.sign(np.round(chosen - rejected, 6)) + 1) / 2)
        assert pair.chance() == 1.0
        assert pair.subset in garden.TOPICS
    assert len({pair.id for pair in garden.pairs(200, seed=0)}) == 200


def test_a_conversation_has_exactly_these_tokens():
    words = models.tokenizer()
    messages = models.conversation(Example(user_turn(ASKED), "honey and zebra"))
    assert words.apply_chat_template(messages, tokenize=False) == (
        "<|user|> tell me about bees </s> <|assistant|> honey and zebra </s>"
    )
    expected = ["<|user|>", "tell", "me", "about", "bees", "</s>", "<|assistant|>", "honey", "and", "<unk>", "</s>"]
    ids = words.apply_chat_template(messages, return_dict=False)
    assert words.convert_ids_to_tokens(ids) == expected
    assert words(words.apply_chat_template(messages, tokenize=False))["input_ids"] == ids
    asked = words.apply_chat_template(messages[:-1], add_generation_prompt=True, return_dict=False)
    assert asked == ids[:7]


def test_tokens_decode_to_the_same_words():
    words = models.tokenizer()
    everything = " ".join(garden.vocabulary())
    ids = words(everything)["input_ids"]
    assert words.unk_token_id not in ids
    assert words.decode(ids) == everything
    assert words.pad_token_id != words.eos_token_id
    assert len(words) == len(models.SPECIALS) + len(garden.vocabulary())


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_both_architectures_are_small_and_answer(architecture):
    words = models.tokenizer()
    model = models.causal_lm(words, architecture)
    assert model.config.model_type == architecture
    assert (model.config.pad_token_id, model.config.eos_token_id) == (words.pad_token_id, words.eos_token_id)
    assert 60_000 < model.num_parameters() < 150_000
    assert model(torch.tensor([[5, 6, 7]])).logits.shape == (1, 3, len(words))


def test_pretraining_learns_and_is_decided_by_the_seeds():
    words, examples = models.tokenizer(), garden.supervised_examples(200, seed=0)
    runs = []
    for seed in (0, 0, 1):
        model = models.causal_lm(words, seed=seed)
        runs.append(models.pretrain(model, words, examples, steps=20, seed=seed, batch_size=16))
    assert runs[0] == runs[1] != runs[2]
    assert np.mean(runs[0][-5:]) < runs[0][0] - 0.5


def test_the_gardens_texts_are_those_that_committed_results_rest_on():
    """Other words or draws change the figures of every study: run them again before this number is changed."""
    texts = [list(garden.vocabulary()), [pair.chosen for pair in garden.pairs(20, 0)]]
    assert content_hash(texts) == "2d200cec7761a49c"
