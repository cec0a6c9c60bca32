import json

import numpy as np
import pytest
import torch
from beartype import beartype
from jaxtyping import jaxtyped
from peft import LoraConfig, get_peft_model
from rewardlab.benchmarks.garden import models as worlds
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.backbones.logprobs import completion_logprobs
from rewardlab.rm.backbones.tokenization import Encoder, describe_tokenizer, pad
from rewardlab.rm.contract.golden_scores import write_golden
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.implicit.model import load_implicit
from rewardlab.rm.kinds.scalar.model import load_scalar
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, Message, user_turn
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedTokenizerFast

TEXT = "roba kano mili suke teba " * 30
EXAMPLES = [
    Example(user_turn("tell me of roba"), "kano mili"),
    Example((Message(role="system", content="be brief"), *user_turn("roba")), "suke " * 30),
    Example(user_turn("suke " * 20), "t"),
    Example(user_turn("mili"), ""),
]


def save_lm(folder, tokenizer, architecture="qwen3", seed=0, scale=6.0) -> str:
    """A language model in a folder; its weights are spread out so that its log-probabilities are far from uniform."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(small_config(tokenizer, architecture, hidden=32))
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(scale)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def by_hand(folder: str, ids: list[int], start: int) -> list[float]:
    """The definition: position after position in float64, one sequence, no padding and nothing of ours."""
    model = AutoModelForCausalLM.from_pretrained(folder).double().eval()
    found = []
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0]
        for place in range(max(start, 1), len(ids)):
            found.append(torch.log_softmax(logits[place - 1], dim=0)[ids[place]].item())
    return found


def rewards_by_hand(model, examples, policy, reference=None, beta=1.0) -> np.ndarray:
    rewards = []
    for example in examples:
        ids, _, start, *_ = model.encoder.encode_completion(example)
        reward = sum(by_hand(policy, ids, start))
        rewards.append(beta * (reward - (sum(by_hand(reference, ids, start)) if reference else 0.0)))
    return np.array(rewards)[:, None]


@pytest.fixture(scope="module")
def tokenizer():
    return small_tokenizer([TEXT] * 20, 300)


@pytest.fixture(scope="module")
def policy(tokenizer, tmp_path_factory) -> str:
    return save_lm(tmp_path_factory.mktemp("lm") / "policy", tokenizer, "qwen3", seed=0)


@pytest.fixture(scope="module")
def reference(tokenizer, tmp_path_factory) -> str:
    return save_lm(tmp_path_factory.mktemp("lm") / "reference", tokenizer, "llama", seed=1)


@pytest.fixture(scope="module", params=["autoregressive", "implicit"])
def model(request, policy, reference):
    return (
        load_autoregressive(policy) if request.param == "autoregressive" else load_implicit(policy, reference=reference)
    )


def encoder(tokenizer, max_length=None, truncation="left") -> Encoder:
    described = describe_tokenizer(tokenizer)
    return Encoder(tokenizer, ScoringContract("scalar", truncation=truncation, max_length=max_length, **described))


def word_level(template: str) -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({word: place for place, word in enumerate(["?", "a", "b", "ab", "</s>"])}, "?"))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", eos_token="</s>", chat_template=template)


def test_the_answer_begins_behind_the_generation_prompt(tokenizer):
    for example in EXAMPLES:
        ids, length, start, *_ = encoder(tokenizer).encode_completion(example)
        assert (ids, length) == encoder(tokenizer).encode(example)[:2]
        assert ids[start - 1] == tokenizer.convert_tokens_to_ids("<|assistant|>"), example
        assert tokenizer.decode(ids[start:]) == example.completion + "<|eos|>"
    words = worlds.tokenizer()
    ids, _, start, *_ = encoder(words).encode_completion(Example(user_turn("tell me about roses"), "roses petals"))
    tokens = ["<|user|>", "tell", "me", "about", "roses", "</s>", "<|assistant|>", "roses", "petals", "</s>"]
    assert words.convert_ids_to_tokens(ids) == tokens
    assert start == 7


def test_truncation_from_the_left_moves_the_start_and_leaves_a_leading_bos():
    words, example = worlds.tokenizer(), Example(user_turn("tell me about roses"), "roses petals")
    assert [encoder(words, limit).encode_completion(example).start for limit in (10, 9, 4, 3, 2)] == [7, 6, 1, 0, 0]
    assert [encoder(words, limit, "right").encode_completion(example).start for limit in (9, 7, 6)] == [7, 7, 6]
    for limit in (10, 9, 4, 3, 2):
        assert encoder(words, limit).encode_completion(example)[:2] == encoder(words, limit).encode(example)[:2]
    words.chat_template = "{{ bos_token }} " + words.chat_template
    found = [encoder(words, limit).encode_completion(example) for limit in (11, 9, 4, 3)]
    assert [answer.start for answer in found] == [8, 6, 1, 1]
    assert all(answer.ids[0] == words.bos_token_id for answer in found)


def test_tokens_at_the_border_and_those_that_the_encoder_adds_are_counted():
    words = word_level("{% for m in messages %}{{ m.content }} {% endfor %}")
    assert describe_tokenizer(words)["eos"] == "once"
    assert encoder(words).encode_completion(Example(user_turn("a b"), "ab"))[:3] == ([1, 2, 3, 4], 4, 2)
    contract = ScoringContract("scalar", **describe_tokenizer(worlds.tokenizer()) | {"bos": "once"})
    answer = Encoder(worlds.tokenizer(), contract).encode_completion(Example(user_turn("roses"), "petals"))
    assert (answer.start, len(answer.ids)) == (5, 7)
    words = word_level("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert encoder(words).encode_completion(Example(user_turn("b a"), "b"))[:3] == ([2, 3, 4], 3, 1)
    turns = "{% for m in messages %}{{ m.content }} {% endfor %}"
    words = word_level(turns + "{% if add_generation_prompt %}ab {% endif %}")
    with pytest.raises(DataError, match="opens a reply with 'a ab ' but renders no completion after it"):
        encoder(words).encode_completion(Example(user_turn("a"), "b"))


@pytest.mark.parametrize(("side", "logits"), [("left", 1), ("right", 2**26)])
def test_log_probabilities_stand_at_their_tokens_on_either_side_and_in_any_chunk(policy, side, logits):
    model = load_autoregressive(policy)
    rows = [model.encoder.encode_completion(example) for example in EXAMPLES]
    batch = pad([row.ids for row in rows])
    tokens, attention = (part if side == "right" else part.flip(1) for part in batch)
    if side == "left":  # flipping put the padding in front but the words backwards
        for place, row in enumerate(rows):
            tokens[place, -len(row.ids) :] = torch.tensor(row.ids)
    start = torch.tensor([row.start for row in rows])
    checked = jaxtyped(typechecker=beartype)(completion_logprobs)
    found = checked(model.model, tokens, attention, start, logits=logits).detach()
    for place, row in enumerate(rows):
        expected = np.zeros(tokens.shape[1])
        end = tokens.shape[1] if side == "left" else len(row.ids)
        expected[end - len(row.ids) + row.start : end] = by_hand(policy, row.ids, row.start)
        assert found[place].numpy() == pytest.approx(expected, abs=1e-5)


def test_a_reward_is_the_sum_that_a_plain_loop_finds_also_of_a_truncated_answer(policy, reference):
    found = load_autoregressive(policy)
    assert found.rate(EXAMPLES) == pytest.approx(rewards_by_hand(found, EXAMPLES, policy), rel=1e-6, abs=1e-5)
    assert np.ptp(found.rate(EXAMPLES)) > 10
    found = load_implicit(policy, reference=reference)
    expected = rewards_by_hand(found, EXAMPLES, policy, reference, 0.1)
    assert found.rate(EXAMPLES) == pytest.approx(expected, abs=1e-5) and np.abs(expected).max() > 0.1
    model = load_autoregressive(policy, max_length=8)
    assert model.rate(EXAMPLES) == pytest.approx(rewards_by_hand(model, EXAMPLES, policy), abs=1e-5)
    assert model.encoder.encode_completion(EXAMPLES[1]).start == 0


def test_batch_and_order_change_nothing_and_tokens_add_up_to_the_reward(model):
    together = model.rate(EXAMPLES)
    assert together.shape == (4, 1) and together.dtype == np.float64
    assert np.concatenate([model.rate([example]) for example in EXAMPLES]) == pytest.approx(together, abs=1e-5)
    assert model.rate(EXAMPLES, batch_tokens=1) == pytest.approx(together, abs=1e-5)
    assert model.rate(EXAMPLES[::-1])[::-1] == pytest.approx(together, abs=1e-5)
    assert model.rate([]).shape == (0, 1)
    beta = 1.0 if model.contract.kind == "autoregressive" else 0.1
    for example, values, reward in zip(EXAMPLES, model.logprobs(EXAMPLES), model.rate(EXAMPLES), strict=True):
        ids, _, start, *_ = model.encoder.encode_completion(example)
        assert len(values) == len(ids) - start
        assert beta * values.sum() == pytest.approx(reward[0])


def test_beta_scales_and_a_policy_that_is_its_own_reference_earns_exactly_nothing(policy, reference):
    one, ten = load_autoregressive(policy).rate(EXAMPLES), load_autoregressive(policy, beta=10).rate(EXAMPLES)
    assert ten == pytest.approx(10 * one)
    one, ten = (load_implicit(policy, reference=reference, beta=beta).rate(EXAMPLES) for beta in (0.1, 1.0))
    assert ten == pytest.approx(10 * one)
    with pytest.raises(UsageError, match="beta must be a finite number above 0, got 0"):
        load_autoregressive(policy, beta=0)
    assert (load_implicit(policy, reference=policy).rate(EXAMPLES) == 0).all()


def test_a_saved_folder_gives_the_same_scores(model, tmp_path):
    folder = tmp_path / "rm"
    model.save(folder)
    write_golden(model, EXAMPLES, folder)
    loaded = load_reward_model(str(folder))
    assert (loaded.rate(EXAMPLES) == model.rate(EXAMPLES)).all()
    assert loaded.contract == model.contract and loaded.contract.kind == model.contract.kind
    assert loaded.contract.pooling is None and loaded.contract.objectives == ("reward",)
    with pytest.raises(UsageError, match="was saved with beta .*, got 7"):
        load_reward_model(str(folder), beta=7)
    with pytest.raises(UsageError, match="was saved with max_length 2048, got 9"):
        load_reward_model(str(folder), max_length=9)


def test_files_keep_beta_and_names_and_are_refused_if_damaged(policy, tmp_path, reference, monkeypatch):
    load_autoregressive(policy, beta=0.5).save(tmp_path / "rm")
    assert load_reward_model(str(tmp_path / "rm")).beta == 0.5
    assert load_implicit(str(tmp_path / "rm"), reference=policy).rate(EXAMPLES[:1]) == 0  # its policy may be ours
    (tmp_path / "rm" / "autoregressive.json").write_text("{}")
    with pytest.raises(DataError, match=r"autoregressive.json: missing or damaged \('beta'\)"):
        load_reward_model(str(tmp_path / "rm"))
    monkeypatch.chdir(tmp_path.parent)
    load_implicit(policy, reference=reference).save(tmp_path / "implicit")
    file = tmp_path / "implicit" / "implicit.json"
    settings = json.loads(file.read_text())
    assert settings == {"policy": policy, "reference": reference, "beta": 0.1}
    assert not [*(tmp_path / "implicit").glob("*.safetensors")]
    file.write_text(json.dumps(settings | {"reference": policy}))
    with pytest.raises(DataError, match=r"implicit.json: its models and beta differ from scoring.json"):
        load_reward_model(str(tmp_path / "implicit"))
    file.write_text(json.dumps({"beta": 0.1}))
    with pytest.raises(DataError, match="does not name a policy and a reference"):
        load_reward_model(str(tmp_path / "implicit"))


def test_other_models_beta_and_reference_are_other_contracts_and_an_adapter_is_a_policy(policy, reference, tmp_path):
    variants = [
        load_implicit(policy, reference=reference),
        load_implicit(reference, reference=policy),
        load_autoregressive(policy),
    ]
    variants.append(load_implicit(policy, reference=reference, beta=0.2))
    assert len({model.contract.hash() for model in variants}) == 4
    torch.manual_seed(3)
    lora = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False, base_model_name_or_path=policy)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(policy), lora)
    adapted.save_pretrained(tmp_path / "adapter")
    load_autoregressive(policy).encoder.tokenizer.save_pretrained(tmp_path / "adapter")
    model = load_implicit(str(tmp_path / "adapter"), reference=policy)
    plain = load_autoregressive(policy)
    row = plain.encoder.encode_completion(EXAMPLES[0])
    tokens = torch.tensor([row.ids])
    moved = completion_logprobs(adapted, tokens, torch.ones_like(tokens), torch.tensor([row.start])).sum().item()
    expected = 0.1 * (moved - plain.rate(EXAMPLES[:1])[0, 0])
    assert model.rate(EXAMPLES[:1])[0, 0] == pytest.approx(expected, abs=1e-5) and abs(expected) > 1e-3


def test_two_vocabularies_or_no_reference_are_refused(policy, tokenizer, tmp_path):
    other = small_tokenizer(["quite other words " * 20] * 20, 300)
    save_lm(tmp_path / "other", other)
    with pytest.raises(DataError, match=r"do not share a vocabulary: token '.*' is \d+ in the first and .* in the sec"):
        load_implicit(policy, reference=str(tmp_path / "other"))
    larger = PreTrainedTokenizerFast.from_pretrained(policy)
    larger.add_tokens(["<extra>"])
    save_lm(tmp_path / "larger", larger)
    with pytest.raises(DataError, match=f"token '<extra>' is absent in the first and {len(tokenizer)} in the second"):
        load_implicit(policy, reference=str(tmp_path / "larger"))
    with pytest.raises(UsageError, match="needs a reference; give the model that it was trained from"):
        load_implicit(policy)


def test_missing_weights_and_models_of_another_kind_or_that_look_ahead_are_refused(policy, tokenizer, tmp_path):
    load_scalar(policy, fresh=True).save(tmp_path / "scalar")
    for open_it in (load_autoregressive, lambda source: load_implicit(policy, reference=source)):
        with pytest.raises(DataError, match="a reward model of kind 'scalar'; give"):
            open_it(str(tmp_path / "scalar"))
    save_lm(tmp_path / "lm", tokenizer)
    file = tmp_path / "lm" / "model.safetensors"
    tensors = load_file(file)
    assert "lm_head.weight" not in tensors  # tied, so it may be absent
    tensors.pop("model.layers.0.mlp.up_proj.weight")
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(DataError, match="the weights lack model.layers.0.mlp.up_proj.weight"):
        load_autoregressive(str(tmp_path / "lm"))
    file.write_bytes(b"no weights")
    with pytest.raises(DataError, match="cannot be loaded as a causal language model"):
        load_autoregressive(str(tmp_path / "lm"))
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    AutoModelForMaskedLM.from_config(
        AutoConfig.for_model("bert", vocab_size=len(tokenizer), tie_word_embeddings=True, **size)
    ).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(DataError, match=r"depend on later tokens \(bert\)"):
        load_autoregressive(str(tmp_path))


SHAPES = {
    "llama": {}, "gemma2": {"final_logit_softcapping": 5.0, "head_dim": 8}, "granite": {"logits_scaling": 7.0},
    "cohere": {"logit_scale": 0.1}, "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2},
}  # fmt: skip


def of_architecture(name, vocabulary=50):
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 2} if name != "gpt2" else {}
    torch.manual_seed(0)
    edges = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(name, vocab_size=vocabulary, **edges, **shape | SHAPES[name])
    )
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)
    return model.double().eval()


def test_any_architecture_gives_its_own_log_probabilities_and_gradients_but_for_the_first_token(policy):
    """Soft-capped and scaled logits too: where the head is not all there is, the model's own logits are taken."""
    for name in SHAPES:
        model = of_architecture(name)
        tokens = torch.randint(3, 50, (3, 7), generator=torch.Generator().manual_seed(0))
        found = completion_logprobs(model, tokens, torch.ones_like(tokens), torch.tensor([2, 3, 4]))
        direct = torch.log_softmax(model(tokens).logits[:, :-1], -1).gather(2, tokens[:, 1:, None]).squeeze(2)
        direct = torch.nn.functional.pad(direct, (1, 0)) * (torch.arange(7) >= torch.tensor([[2], [3], [4]]))
        torch.testing.assert_close(found, direct, atol=1e-9, rtol=0)
        weight = model.get_input_embeddings().weight
        for own, other in zip(*(torch.autograd.grad(one.sum(), weight) for one in (found, direct)), strict=True):
            torch.testing.assert_close(own, other, atol=1e-8, rtol=1e-6)
    model = load_autoregressive(policy).model
    tokens, start = torch.tensor([[7, 8, 9]]), torch.tensor([0])
    found = completion_logprobs(model, tokens, torch.ones_like(tokens), start)
    assert found[0, 0] == 0 and (found[0, 1:] < 0).all()
    found.sum().backward()
    assert model.get_input_embeddings().weight.grad.abs().sum() > 0


def test_the_logits_of_a_whole_batch_never_exist():
    class Sizes(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            result = function(*arguments, **options or {})
            tensors = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
            Sizes.largest = max(Sizes.largest, *(one.numel() for one in tensors), 0)
            return result

    model = of_architecture("llama", vocabulary=3000)
    tokens = torch.randint(3, 50, (8, 20), generator=torch.Generator().manual_seed(0))
    start = torch.full((8,), 4)
    completion_logprobs(model, tokens, torch.ones_like(tokens), start)  # the first call tries the head once
    with Sizes():
        completion_logprobs(model, tokens, torch.ones_like(tokens), start, logits=30_000).sum().backward()
    assert Sizes.largest < 8 * 20 * 3000 / 5
