import json

import numpy as np
import pytest
import torch
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds._pairwise_logistic import pairwise_logistic
from rewardlab.rm.kinds.embedding.model import Embedder, new_embedding
from rewardlab.rm.kinds.linear.model import CountedCompletions, new_linear
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, PreferencePair, user_turn
from scipy import optimize, sparse
from tokenizers import BertWordPieceTokenizer
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast


def pair(name, chosen, rejected, **rest):
    return PreferencePair(name, user_turn("q"), chosen, rejected, **rest)


def kind_pairs(number=40):
    random = np.random.default_rng(0)
    texts = (" ".join(random.choice(["stone", "river", "cloud", "paper"], 4)) for _ in range(2 * number))
    return [pair(str(i), f"kind {next(texts)}", f"rude {next(texts)}") for i in range(number)]


def test_the_weights_minimise_the_stated_objective():
    random = np.random.default_rng(0)
    d, p, C = random.normal(size=(30, 3)), random.choice([0, 0.3, 0.5, 1], 30), 0.7

    def objective(w):
        z = d @ w
        return w @ w / 2 + C * (p * np.logaddexp(0, -z) + (1 - p) * np.logaddexp(0, z)).sum()

    expected = optimize.minimize(objective, np.zeros(3)).x
    assert pairwise_logistic(d, p, C=C) == pytest.approx(expected, abs=2e-3)
    assert pairwise_logistic(sparse.csr_matrix(d), p, C=C) == pytest.approx(expected, abs=2e-3)


def test_ties_alone_give_no_preference_and_unlabelled_pairs_do_not_count():
    d = np.random.default_rng(0).normal(size=(8, 2))
    assert pairwise_logistic(d, np.full(8, 0.5), C=1.0) == pytest.approx([0, 0], abs=1e-6)
    p = np.array([1.0] * 4 + [np.nan] * 4)
    assert pairwise_logistic(d, p, C=1.0) == pytest.approx(pairwise_logistic(d[:4], p[:4], C=1.0))
    with pytest.raises(DataError, match="no pair has a preference"):
        pairwise_logistic(d, np.full(8, np.nan), C=1.0)


def test_counted_completions_are_rated_as_by_a_model_that_counts_them_itself(monkeypatch):
    """A completion in several pairs counts several times: `stone` is known from one that two pairs hold."""
    for block in [1, 2, 100]:
        monkeypatch.setattr("rewardlab.rm.kinds.linear.model.BLOCK", block)
        completions = ["kind river", "rude river", "", "stone", "rude cloud", "kind river"]
        pairs, rated = np.array([[0, 1], [3, 4], [3, 2], [5, 4], [0, 2]]), np.array([5, 3, 2, 1])
        fitted = new_linear().fit([pair(str(k), *(completions[index] for index in one)) for k, one in enumerate(pairs)])
        expected = fitted.rate([Example(user_turn("q"), completions[index]) for index in rated])[:, 0]
        grams = {*["kind", "river", "rude", "cloud", "stone"], "kind river", "rude cloud"}
        assert set(fitted.vectorizer.vocabulary_) == grams
        assert CountedCompletions(completions, pairs).fit_and_rate(pairs, rated) == pytest.approx(expected, abs=1e-12)
    for completions in [["", "!"], ["stone", "river"]]:
        with pytest.raises(DataError, match="the completions of 1 pairs share no word"):
            pairs = np.array([[0, 1]])
            CountedCompletions(completions, pairs).fit_and_rate(pairs, np.array([0]))


def test_the_linear_model_learns_a_word_and_forgets_nothing_on_disk(tmp_path):
    model = new_linear().fit(kind_pairs())
    examples = [Example(user_turn("q"), text) for text in ("kind stone", "rude stone", "", "unheard of")]
    rewards = model.rate(examples)
    assert rewards.shape == (4, 1) and rewards[0] > rewards[1]
    assert model.rate([Example(user_turn("another prompt"), "kind stone")]) == rewards[0]
    model.save(tmp_path / "rm")
    assert not list((tmp_path / "rm").glob("*.pkl"))
    for options in ({}, {"trust_remote_code": True}):  # it has no code to refuse
        assert load_reward_model(str(tmp_path / "rm"), **options).rate(examples).tolist() == rewards.tolist()


def test_an_unfitted_and_a_broken_linear_model_say_so_and_no_completions_have_no_rewards(tmp_path, encoder):
    with pytest.raises(UsageError, match="has not been fitted"):
        new_linear().rate([Example(user_turn("a"), "b")])
    new_linear().fit(kind_pairs()).save(tmp_path / "rm")
    (tmp_path / "rm" / "vocabulary.json").write_text(json.dumps(["one"]))
    with pytest.raises(DataError, match="1 words but"):
        load_reward_model(str(tmp_path / "rm"))
    models = new_linear(), new_embedding(str(encoder), cache=tmp_path / "cache.sqlite")
    assert [model.fit(kind_pairs()).rate([]).shape for model in models] == [(0, 1), (0, 1)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("encoder")
    words = BertWordPieceTokenizer()
    text = "kind rude stone river cloud paper user assistant q"
    words.train_from_iterator([text] * 9, vocab_size=120, show_progress=False)
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words._tokenizer, **special)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    AutoModel.from_config(AutoConfig.for_model("bert", vocab_size=len(tokenizer), **size)).save_pretrained(folder)
    return str(folder)


def test_an_embedding_is_the_mean_of_the_real_tokens(encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("REWARDLAB_CACHE", str(tmp_path / "cache"))
    embedder = Embedder(encoder, max_length=64, dtype="float32")
    texts = ["kind stone", "rude " * 20, "river cloud paper"]
    found = embedder(texts)
    with torch.inference_mode():
        for text, vector in zip(texts, found, strict=True):
            ids = torch.tensor([embedder.tokenizer(text).input_ids])
            assert vector == pytest.approx(embedder.model(ids).last_hidden_state[0].mean(0).numpy(), abs=1e-5)
    assert (tmp_path / "cache" / "embeddings.sqlite").is_file()


def test_the_cache_serves_the_same_numbers_and_knows_length_and_encoder(encoder, tmp_path):
    def make(**changes):
        return Embedder(encoder, **{"max_length": 64, "dtype": "float32", "cache": tmp_path / "c.sqlite"} | changes)

    first = make()(["kind stone river"])
    blind = make()
    blind._embed = lambda texts: pytest.fail("computed again")
    assert (blind(["kind stone river"]) == first).all()
    assert not np.array_equal(make(max_length=2)(["kind stone river"]), first)
    other = make()
    with torch.no_grad():
        next(other.model.parameters()).add_(0.1)
    from rewardlab.rm.kinds.embedding.model import _fingerprint

    assert _fingerprint(other.model, other.tokenizer) != blind.fingerprint


def test_a_cache_that_cannot_be_used_is_named_with_the_remedy(encoder, tmp_path):
    (tmp_path / "damaged.sqlite").write_text("no database")
    (tmp_path / "file").write_text("")
    for cache, error, sentence in (
        ("damaged.sqlite", DataError, r"cannot be used \(file is not a database\); make room for it, delete it"),
        ("file/c.sqlite", UsageError, r"file cannot be written to \(.*\); set REWARDLAB_CACHE to a writable folder"),
    ):
        embedder = Embedder(encoder, max_length=64, dtype="float32", cache=tmp_path / cache)
        with pytest.raises(error, match=sentence):
            embedder(["kind stone"])


def test_the_embedding_model_learns_and_loads_and_refuses_another_encoder(encoder, tmp_path):
    cache = tmp_path / "cache.sqlite"
    model = new_embedding(encoder, cache=cache).fit(kind_pairs(), C=1.0)
    examples = [Example(user_turn("q"), "kind stone"), Example(user_turn("q"), "rude stone")]
    rewards = model.rate(examples)
    assert rewards[0] > rewards[1]
    model.save(tmp_path / "rm")
    again = load_reward_model(str(tmp_path / "rm"), cache=tmp_path / "other.sqlite")
    assert again.rate(examples) == pytest.approx(rewards, abs=1e-6)
    contract = (tmp_path / "rm" / "scoring.json").read_text()
    assert model.contract.backbone in contract
    (tmp_path / "rm" / "encoder.txt").write_text("no/such/encoder")
    with pytest.raises(DataError, match="no/such/encoder"):
        load_reward_model(str(tmp_path / "rm"))
    with pytest.raises(UsageError, match="needs an encoder"):
        new_embedding(None)
