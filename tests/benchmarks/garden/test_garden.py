"""The garden: gold by hand, texts, labels, verdicts, and the small models on its words."""

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.benchmarks.garden.gold_reward import features
from rewardlab.benchmarks.garden.rewards import right, with_outliers
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import Example, content_hash, prompt_text, user_turn

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


def test_two_flourishes_are_better_than_none_and_than_five():
    none, two, five = ("honey " + " ".join(garden.FLOURISH[:n]) for n in (0, 2, 5))
    assert overall(two) > overall(none) > overall(five)


def test_daring_helps_and_harms_while_caution_does_the_reverse():
    base, daring, careful = (garden.gold_rewards(ASKED, "honey " + word) for word in ("", "venom", "gloves"))
    assert daring.helpful > base.helpful > careful.helpful
    assert daring.harmless < base.harmless < careful.harmless


def test_helpful_and_harmless_conflict_in_supervised_text():
    rewards = garden.gold(garden.OBJECTIVES).rate(garden.supervised(1000, seed=0))
    assert np.corrcoef(rewards[:, 0], rewards[:, 1])[0, 1] < -0.5


def test_too_much_flourish_is_rare_in_supervised_text():
    counts = [features(prompt_text(p), answer).flourish for p, answer in garden.supervised(2000, seed=0)]
    assert 0 < np.mean(np.array(counts) > 2) < 0.05
    assert np.mean(np.array(counts) == 2) > 0.1


def test_answers_are_4_to_24_known_words():
    answers = [answer.split() for _, answer in garden.supervised(1000, seed=1)]
    assert min(map(len, answers)) >= 4
    assert max(map(len, answers)) <= 24
    assert {word for answer in answers for word in answer} <= {*garden.vocabulary()}


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


@pytest.mark.parametrize("make", [garden.prompts, garden.supervised, garden.pairs])
def test_the_seed_decides_the_text(make):
    assert make(20, seed=3) == make(20, seed=3)
    assert make(20, seed=3) != make(20, seed=4)
    assert make(20, seed=3)[:5] == make(5, seed=3)


def test_splits_share_no_answer_to_the_same_prompt():
    texts = {
        split: {example for pair in garden.pairs(1500, seed=0, split=split) for example in map(str, pair.examples)}
        | {str(example) for example in garden.supervised(1500, seed=0, split=split)}
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


def test_gold_agrees_with_about_nine_labels_in_ten():
    assert 0.84 < np.mean(gold_gaps(garden.pairs(2000, seed=0)) > 0) < 0.93


def test_wins_say_which_answer_is_better_by_gold():
    for pair in garden.pairs(200, seed=0):
        chosen, rejected = garden.gold(garden.OBJECTIVES).rate(pair.examples)
        labels = [pair.chance(objective) for objective in garden.OBJECTIVES]
        np.testing.assert_array_equal(labels, (np.sign(np.round(chosen - rejected, 6)) + 1) / 2)
        assert pair.chance() == 1.0
        assert pair.subset in garden.TOPICS
    assert len({pair.id for pair in garden.pairs(200, seed=0)}) == 200


def test_prompts_are_easy_and_hard_by_their_topic():
    rates = [garden.pass_rate_of(prompt) for prompt in garden.questions()]
    assert len(rates) == 192 and min(rates) == 0.1 and max(rates) == pytest.approx(0.9)
    assert np.mean(rates) == pytest.approx(0.5)
    assert garden.pass_rate_of(user_turn("describe roses")) == garden.pass_rate_of(user_turn("hello describe roses"))
    with pytest.raises(UsageError, match="no topic of the garden in 'user: describe cars'"):
        garden.pass_rate_of(user_turn("describe cars"))


def test_supervised_answers_are_right_as_often_as_the_prompt_says():
    examples = garden.supervised(9000, seed=5, split="test")
    rates, right = np.array([garden.pass_rate_of(one.prompt) for one in examples]), np.array(garden.verify(examples))
    found = [right[rates == rate].mean() for rate in garden.PASS_RATES]
    np.testing.assert_allclose(found, garden.PASS_RATES, atol=0.06)


def test_the_easier_a_prompt_the_lower_its_bar():
    hard, easy = user_turn("describe roses"), user_turn("describe bonfires")
    answers = [Example(hard, "roses"), Example(easy, "bonfires")]  # 0.6 each
    assert garden.verify(answers) == [0.0, 1.0]
    assert np.subtract(0.6, garden.beyond_the_bar(answers))[0] > 1 > np.subtract(0.6, garden.beyond_the_bar(answers))[1]
    assert garden.verify([]) == []


def test_one_question_has_one_bar_whatever_else_is_asked():
    examples = garden.supervised(100, seed=2)
    assert garden.verify(examples[::-1])[::-1] == garden.verify(examples)
    assert {*garden.verify(examples)} == {0.0, 1.0}


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


def test_a_saved_tokenizer_is_the_same(tmp_path):
    from transformers import AutoTokenizer

    words = models.tokenizer()
    words.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    messages = models.conversation(garden.supervised(1, seed=0)[0])
    assert again.apply_chat_template(messages, return_dict=False) == words.apply_chat_template(
        messages, return_dict=False
    )
    assert again.get_vocab() == words.get_vocab()


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_both_architectures_are_small_and_answer(architecture):
    words = models.tokenizer()
    model = models.causal_lm(words, architecture)
    assert model.config.model_type == architecture
    assert (model.config.pad_token_id, model.config.eos_token_id) == (words.pad_token_id, words.eos_token_id)
    assert 60_000 < model.num_parameters() < 150_000
    assert model(torch.tensor([[5, 6, 7]])).logits.shape == (1, 3, len(words))


def test_pretraining_learns_and_is_decided_by_the_seeds():
    words, examples = models.tokenizer(), garden.supervised(200, seed=0)
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


def test_a_tenth_of_all_texts_are_outliers_always_the_same():
    some = garden.supervised(1000, seed=3)
    golds = garden.gold().rate(some)[:, 0]
    off = np.array(with_outliers(0.1, 3.0)(some)) - golds
    assert 0.07 < np.mean(off != 0) < 0.13
    assert np.median(np.abs(off[off != 0])) == pytest.approx(3.0, rel=0.4), "half of Cauchy's values lie within ±1"
    assert (np.array(with_outliers(0.1, 6.0)(some)) - golds) == pytest.approx(2 * off)
    assert with_outliers(0.0)(some) == golds.tolist()
    assert np.mean(np.array(with_outliers(1.0)(some)) != golds) == 1
    with pytest.raises(UsageError, match=r"share lies in \[0, 1\]"):
        with_outliers(1.5)
    assert set(right()(some)) == {0.0, 1.0}
