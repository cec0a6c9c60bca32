import copy
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from peft import AutoPeftModelForSequenceClassification, LoraConfig
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.backbones.tokenization import pad
from rewardlab.rm.contract.golden_scores import check_golden, write_golden
from rewardlab.rm.contract.scoring_contract import FILE, ScoringContract, load_contract
from rewardlab.rm.errors import CheckFailed, DataError, UsageError
from rewardlab.rm.kinds.scalar.model import ScalarRewardModel, load_scalar, scalar_from_config
from rewardlab.rm.kinds.scalar.training import ScalarTask, encode_pairs
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.parity.parity import own_variants, parity
from rewardlab.rm.types import Example, Message, PreferencePair, user_turn
from rewardlab.tests.stand_ins.small_training import Fit, fit
from safetensors.torch import load_file, save_file
from tokenizers import ByteLevelBPETokenizer

from tests.rm.spread_models import WORDS


def random_words(random: np.random.Generator, number: int) -> str:
    return " ".join(random.choice(WORDS, number))


def conversations(number: int, longest: int) -> list[Example]:
    """Conversations whose lengths spread over 5 to `longest` tokens; every second answer ends as the better ones do."""
    random = np.random.default_rng(1)
    examples = []
    for index, words in enumerate(np.linspace(1, longest - 12, number)):
        prompt, answer = random_words(random, max(1, int(0.4 * words))), random_words(random, max(1, int(0.6 * words)))
        examples.append(Example(user_turn(prompt), answer + " kano kano" * (index % 2)))
    return examples


def pairs_by_a_word(number: int) -> list[PreferencePair]:
    random, pairs = np.random.default_rng(0), []
    for place in range(number):
        base = random_words(random, int(random.integers(1, 8)))
        pairs.append(PreferencePair(str(place), user_turn("tell me"), f"{base} kano kano", f"{base} subali {base}"))
    return pairs


def trained(model: ScalarRewardModel) -> ScalarRewardModel:
    rows = encode_pairs(model.encoder, pairs_by_a_word(64), "overall").rows
    fit(model, ScalarTask(bradley_terry()), rows, Fit(steps=16, learning_rate=3e-3, batch=8, seed=0))
    return model


@pytest.fixture(scope="module")
def tokenizer():
    random = np.random.default_rng(0)
    return small_tokenizer([random_words(random, 30) for _ in range(100)], 300)


@pytest.fixture(scope="module")
def base(tokenizer, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    hf.AutoModelForCausalLM.from_config(small_config(tokenizer, "llama")).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", params=["full", "lora"])
def model(request, base) -> ScalarRewardModel:
    lora = LoraConfig(r=4, lora_alpha=32, target_modules="all-linear") if request.param == "lora" else None
    return trained(load_scalar(base, fresh=True, lora=lora, seed=0))


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "rm"
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def golden() -> list[Example]:
    return conversations(24, 500)


@pytest.fixture(scope="module")
def alone(model, golden) -> np.ndarray:
    """The definition: each conversation by itself, without padding."""
    scores = []
    with torch.inference_mode():
        for example in golden:
            batch = pad([model.encoder.encode(example).ids])
            scores.append(model.score(batch.tokens, batch.attention)[0].double().numpy())
    return np.array(scores)


def close(found: np.ndarray, alone: np.ndarray) -> bool:
    return np.abs(found - alone).max() <= 1e-5 * alone.std()


def test_any_batch_order_and_padding_gives_the_score_that_a_row_has_alone(model, golden, alone):
    lengths = [model.encoder.encode(example).length for example in golden]
    assert min(lengths) <= 8 and max(lengths) >= 400 and alone.std() >= 0.1, "the set is worth comparing"
    assert close(model.rate(golden), alone)
    assert close(model.rate(golden, batch_tokens=100_000), alone)
    order = np.random.default_rng(3).permutation(len(golden))
    assert close(model.rate([golden[place] for place in order]), alone[order])
    results = {result.way: result for result in parity(model, golden, own_variants(model))}
    assert all(result.passed for result in results.values()), results
    assert {"padded on the left", "padded on the right", "pad is EOS"} <= {*results}


def test_plain_transformers_and_peft_give_the_same_scores_from_the_folder(saved, model, golden, alone):
    """Without a line of ours: the folder's own tokenizer, template and weights, in padded batches."""
    tokenizer = hf.AutoTokenizer.from_pretrained(saved)
    if (saved / "adapter_config.json").exists():
        plain = AutoPeftModelForSequenceClassification.from_pretrained(saved, num_labels=1)
    else:
        plain = hf.AutoModelForSequenceClassification.from_pretrained(saved)
    plain.eval()
    texts = [tokenizer.apply_chat_template([*example.turns], tokenize=False) for example in golden]
    found = []
    with torch.inference_mode():
        for start in range(0, len(golden), 8):
            batch = tokenizer(texts[start : start + 8], padding=True, add_special_tokens=False, return_tensors="pt")
            found.append(plain(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits.double().numpy())
    assert close(np.concatenate(found), alone)
    names = {path.name for path in saved.iterdir()}
    assert not any(name.endswith((".bin", ".pt", ".pth", ".pkl")) for name in names)
    assert load_contract(saved) == model.contract
    if "config.json" in names:
        config = hf.AutoConfig.from_pretrained(saved)
        assert (config.num_labels, config.id2label, config.problem_type) == (1, {0: "reward"}, "regression")


@pytest.fixture(scope="module")
def eos_only():
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator([" ".join(WORDS)] * 9, vocab_size=290, special_tokens=["<|eos|>"], show_progress=False)
    template = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    return hf.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, eos_token="<|eos|>", chat_template=template)


def test_a_tokenizer_whose_only_special_token_is_eos_pads_with_it_unless_there_is_a_spare_row(eos_only, tmp_path):
    """transformers would read the token before EOS here; ours and the folder that we save do not."""
    model = scalar_from_config(small_config(eos_only, "llama"), eos_only, seed=1)
    tokenizer = model.encoder.tokenizer
    assert tokenizer.pad_token == tokenizer.eos_token and len(tokenizer) == model.model.config.vocab_size
    examples = [Example(user_turn("roba"), "kano" * n) for n in range(1, 9)]
    together = model.rate(examples)
    model.save(tmp_path / "rm")
    plain = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm").eval()
    for example, reward in zip(examples, together[:, 0], strict=True):
        ids = torch.tensor([model.encoder.encode(example).ids])
        with torch.inference_mode():
            states = plain.model(ids).last_hidden_state
            assert plain.score(states[0, -1]).item() == pytest.approx(reward, abs=1e-6)
            assert plain(ids).logits.item() == pytest.approx(reward, abs=1e-6)
    with pytest.raises(ValueError, match="batch sizes > 1"):  # better than the wrong token
        plain(pad([[1, 2], [1, 2, 3]]).tokens)
    assert np.allclose(load_reward_model(str(tmp_path / "rm")).rate(examples), together, atol=1e-6)
    tokenizer = copy.deepcopy(eos_only)
    tokenizer.pad_token = tokenizer.eos_token
    config = small_config(tokenizer, "llama")
    config.vocab_size = len(tokenizer) + 8
    model = scalar_from_config(config, tokenizer, seed=1)
    assert model.encoder.tokenizer.pad_token == "<|pad|>" and tokenizer.pad_token_id < config.vocab_size


def test_an_encoder_backbone_reads_at_its_first_token_on_either_padding_side(tokenizer, tmp_path):
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = scalar_from_config(hf.AutoConfig.for_model("bert", vocab_size=len(tokenizer), **size), tokenizer, seed=0)
    assert model.contract.pooling == "model"
    example, longer = Example(user_turn("roba"), "kano"), Example(user_turn("roba"), "kano " * 9)
    ids = model.encoder.encode(example).ids
    left = torch.tensor([[0] * 4 + ids]), torch.tensor([[0] * 4 + [1] * len(ids)])
    model.model.eval()
    with torch.inference_mode():
        assert model.score(*left).item() == pytest.approx(model.rate([example, longer])[0, 0], abs=1e-6)
    model.save(tmp_path / "rm")
    assert np.allclose(load_reward_model(str(tmp_path / "rm")).rate([longer]), model.rate([longer]), atol=1e-6)


@pytest.fixture
def rm(base, tmp_path) -> Path:
    load_scalar(base, fresh=True).save(tmp_path / "rm")
    return tmp_path / "rm"


def without(file: Path, part: str) -> None:
    save_file({name: one for name, one in load_file(file).items() if part not in name}, file, {"format": "pt"})


def test_folders_without_some_weights_are_errors_unless_training_starts(base, rm, tmp_path):
    with pytest.raises(DataError, match=r"lack score.weight.*random"):
        load_reward_model(base)
    assert load_scalar(base, fresh=True).rate([Example(user_turn("a"), "b")]).shape == (1, 1)
    load_scalar(base, fresh=True, lora=LoraConfig(r=2, target_modules="all-linear")).save(tmp_path / "lora")
    without(tmp_path / "lora" / "adapter_model.safetensors", "score")
    with pytest.raises(DataError, match="adapter was saved without its head"):
        load_reward_model(str(tmp_path / "lora"))
    without(rm / "model.safetensors", "model.layers.0.mlp.up_proj.weight")
    with pytest.raises(DataError, match="lack model.layers.0.mlp.up_proj.weight"):
        load_scalar(str(rm), fresh=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="neither scoring.json nor config.json"):
        load_reward_model(str(tmp_path / "empty"))


def test_a_tokenizer_of_another_vocabulary_is_refused(base, rm, tmp_path):
    small_tokenizer(["quite other words " * 20] * 50, 290).save_pretrained(rm)
    with pytest.raises(DataError, match="the tokenizer of .* is not the one that the model was trained with"):
        load_reward_model(str(rm))
    shutil.copytree(base, tmp_path / "lm")
    large = hf.AutoTokenizer.from_pretrained(base)
    large.add_tokens([f"<{n}>" for n in range(50)])
    large.save_pretrained(tmp_path / "lm")
    with pytest.raises(DataError, match="tokens and the model's embedding"):
        load_scalar(str(tmp_path / "lm"), fresh=True)


def test_a_tokenizer_without_a_template_asks_for_one(base, tmp_path):
    bare = hf.AutoTokenizer.from_pretrained(base)
    bare.chat_template = None
    hf.AutoModelForCausalLM.from_pretrained(base).save_pretrained(tmp_path / "lm")
    bare.save_pretrained(tmp_path / "lm")
    with pytest.raises(DataError, match="no chat template.*--chat_template plain"):
        load_scalar(str(tmp_path / "lm"), fresh=True)
    model = load_scalar(str(tmp_path / "lm"), fresh=True, chat_template="plain")
    ids = model.encoder.encode(Example(user_turn("roba"), "kano")).ids
    assert model.encoder.tokenizer.decode(ids) == "roba\n\nkano<|eos|>" and model.contract.eos == "once"


def test_golden_scores_hold_and_a_changed_weight_is_found_out(base, rm):
    model, examples = load_scalar(base, fresh=True), [Example(user_turn("roba"), "kano " * n) for n in range(1, 5)]
    write_golden(model, examples, rm)
    assert check_golden(load_reward_model(str(rm)), rm) < 1e-6
    for value in (0.5, float("nan")):
        with torch.no_grad():
            model.model.score.weight.fill_(value)
        with pytest.raises(CheckFailed, match="was saved with"):
            check_golden(model, rm)
    with pytest.raises(CheckFailed, match="not finite"):
        write_golden(model, examples, rm)


def test_damaged_files_and_an_edited_contract_are_one_sentence_and_a_kind_runs_no_code(rm):
    for name in ("model.safetensors", "tokenizer.json"):
        content = (rm / name).read_bytes()
        (rm / name).write_bytes(content[:100])
        with pytest.raises(DataError, match=str(rm)):
            load_reward_model(str(rm))
        (rm / name).write_bytes(content)
    (rm / FILE).write_text((rm / FILE).read_text().replace('"left"', '"right"'))
    with pytest.raises(DataError, match="does not match these fields"):
        load_reward_model(str(rm))
    (rm / FILE).write_text("{}")
    with pytest.raises(DataError, match="not a scoring contract"):
        load_reward_model(str(rm))
    ScoringContract(kind="runpy:run_path").save(rm)
    (rm / "__main__.py").write_text("raise SystemExit('ran')")
    with pytest.raises(DataError, match="unknown kind 'runpy:run_path'"):
        load_reward_model(str(rm))


def test_what_a_contract_fixes_cannot_be_asked_for_again(base, tmp_path):
    lora = LoraConfig(r=2, target_modules="all-linear")
    load_scalar(base, fresh=True, max_length=64).save(tmp_path / "full")
    load_scalar(base, fresh=True, lora=lora).save(tmp_path / "lora")
    with pytest.raises(UsageError, match="was trained with max_length 64"):
        load_scalar(str(tmp_path / "full"), max_length=16)
    with pytest.raises(UsageError, match="is an adapter already"):
        load_scalar(str(tmp_path / "lora"), fresh=True, lora=lora)


def test_an_adapter_finds_its_base_from_another_folder(base, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(base).parent)
    model = load_scalar(Path(base).name, fresh=True, lora=LoraConfig(r=2, target_modules="all-linear"))
    model.save(tmp_path / "lora")
    monkeypatch.chdir(tmp_path)
    examples = [Example(user_turn("roba"), "kano")]
    assert load_reward_model("lora").rate(examples) == pytest.approx(model.rate(examples), abs=1e-6)


@pytest.mark.parametrize("kind", ["distilbert", "deberta-v2"])
def test_lora_on_an_encoder_keeps_every_new_module(kind, tokenizer, tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64} if kind == "distilbert" else sizes
    torch.manual_seed(0)
    trunk = hf.AutoModelForMaskedLM.from_config(hf.AutoConfig.for_model(kind, vocab_size=len(tokenizer), **sizes))
    trunk.save_pretrained(tmp_path / "lm")
    tokenizer.save_pretrained(tmp_path / "lm")
    model = load_scalar(str(tmp_path / "lm"), fresh=True, lora=LoraConfig(r=2, target_modules="all-linear"), seed=1)
    model.save(tmp_path / "lora")
    examples = [Example(user_turn("roba"), "kano " * n) for n in (1, 4)]
    assert load_scalar(str(tmp_path / "lora"), seed=2).rate(examples) == pytest.approx(model.rate(examples), abs=1e-6)


def test_a_template_with_a_date_gives_the_same_score_tomorrow_and_one_that_refuses_says_so(base):
    tokenizer = hf.AutoTokenizer.from_pretrained(base)
    config = small_config(tokenizer, "llama")
    turns = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    dated = "{% if not date_string is defined %}{% set date_string = strftime_now('%d') %}{% endif %}{{ date_string }}"
    tokenizer.chat_template = dated + turns
    model = scalar_from_config(config, tokenizer)
    assert model.encoder.render(Example(user_turn("a"), "b")).startswith("26 Jul 2024a")
    tokenizer.chat_template = "{{ strftime_now('%d %b %Y') }}" + turns
    with pytest.raises(DataError, match="writes today's date"):
        scalar_from_config(config, tokenizer)
    tokenizer.chat_template = "{% for"
    with pytest.raises(DataError, match="does not render a reply"):
        scalar_from_config(config, tokenizer)
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
    tokenizer.chat_template = refusing + turns
    model = scalar_from_config(config, tokenizer)
    with pytest.raises(DataError, match=r"refuses roles \['system', 'user', 'assistant'\]: no system turn"):
        model.encoder.render(Example((Message(role="system", content="x"), *user_turn("y")), "z"))


def test_truncation_keeps_the_end_of_the_answer_and_pairs_over_the_limit_are_counted(base):
    model = load_scalar(base, fresh=True, max_length=10)
    long = Example(user_turn("roba " * 50), "kano " * 50)
    encoded = model.encoder.encode(long)
    assert len(encoded.ids) == 10 < encoded.length
    assert encoded.ids[-1] == model.encoder.tokenizer.eos_token_id
    encoding = encode_pairs(model.encoder, [PreferencePair("a", long.prompt, "kano", "roba " * 50)], "overall")
    assert (encoding.over_length, encoding.identical, encoding.limit) == (1, 0, 10)
    model = load_scalar(base, fresh=True, max_length=12)
    ends = {"same": " kano" * 40, "good": ""}
    pairs = [PreferencePair(name, user_turn("a"), "roba" + end, "miba" + end) for name, end in ends.items()]
    assert encode_pairs(model.encoder, pairs, "overall").identical == 1
    assert len(encode_pairs(model.encoder, pairs, "overall", "skip").rows) == 1
    with pytest.raises(DataError, match=r"pair 'same' has \d+ tokens and the limit is 12"):
        encode_pairs(model.encoder, pairs, "overall", "refuse")
    with pytest.raises(DataError, match="none of 2 pairs is left"):
        encode_pairs(model.encoder, pairs, "harmless")
