import json
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import AutoPeftModelForSequenceClassification, LoraConfig, get_peft_model
from rewardlab.rm.backbones.loading import load_tokenizer, small_config, small_tokenizer
from rewardlab.rm.backbones.tokenization import Encoder, describe_tokenizer
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.latent.model import load_latent
from rewardlab.rm.kinds.multi_objective.model import load_untrained
from rewardlab.rm.kinds.process.model import load_process
from rewardlab.rm.kinds.scalar.foreign import classes_of
from rewardlab.rm.kinds.scalar.model import load_scalar, scalar_from_config
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.parity.known_faults import CONVENTIONS, BackendScores, culprit, score_ids
from rewardlab.rm.types import Example, user_turn
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification
from trl import RewardConfig
from trl.data_utils import _tokenize

EXAMPLES = [Example(user_turn("roba kano"), "misu " * n) for n in (1, 2, 5, 9)]
SENTIMENT = ("NEGATIVE", "POSITIVE")


@pytest.fixture(scope="module")
def words():
    return small_tokenizer(["roba kano misu suli teke"] * 40, 300)


def labelled(config, labels, **more):
    config.id2label, config.num_labels = dict(enumerate(labels)), len(labels)
    config.label2id = {name: row for row, name in enumerate(labels)}
    for name, value in more.items():
        setattr(config, name, value)
    return config


def classifier(words, folder: Path, labels=SENTIMENT, config=None, **more) -> str:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(labelled(config or small_config(words), labels, **more))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def logits(source: str, model) -> np.ndarray:
    plain = AutoModelForSequenceClassification.from_pretrained(source).eval()
    rows = [torch.tensor([model.encoder.encode(example).ids]) for example in EXAMPLES]
    with torch.no_grad():
        return np.concatenate([plain(row).logits.double().numpy() for row in rows])


def test_classes_are_no_rewards_until_one_is_named_but_outputs_of_a_regression_are(words, tmp_path):
    for labels in [SENTIMENT, ("LABEL_0", "LABEL_1"), ("toxic", "obscene", "insult")]:
        source = classifier(words, tmp_path / "classes", labels)
        remedy = (
            "--objective NAME, or for every command with rewardlab merge .*classes --objective NAME --output FOLDER$"
        )
        with pytest.raises(DataError, match=rf"classes: a classifier of {len(labels)} classes .*{labels[1]}.*{remedy}"):
            load_reward_model(source)
        assert classes_of(source) == labels
    source = classifier(words, tmp_path / "two", ("helpful", "harmless"), problem_type="regression")
    model = load_reward_model(source)
    assert model.contract.objectives == ("helpful", "harmless") and classes_of(source) == ()
    assert model.rate(EXAMPLES) == pytest.approx(logits(source, model), abs=1e-6)


@pytest.mark.parametrize("architecture", ["qwen3", "bert"])
def test_the_named_class_is_the_reward_and_stays_it_when_saved(architecture, words, tmp_path):
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = AutoConfig.for_model("bert", vocab_size=len(words), **small) if architecture == "bert" else None
    source = classifier(words, tmp_path / "classes", config=config)
    model = load_reward_model(source, objective="POSITIVE")
    assert model.contract.objectives == ("POSITIVE",) and classes_of(source) == SENTIMENT
    assert model.rate(EXAMPLES) == pytest.approx(logits(source, model)[:, 1:], abs=1e-6)
    model.save(tmp_path / "saved")
    again = load_reward_model(str(tmp_path / "saved"))
    assert again.contract == model.contract and np.array_equal(again.rate(EXAMPLES), model.rate(EXAMPLES))
    assert classes_of(str(tmp_path / "saved")) == ()
    with pytest.raises(UsageError, match="--objective POSITIV: .* did you mean 'POSITIVE'"):
        load_reward_model(source, objective="POSITIV")
    with pytest.raises(UsageError, match="--objective NEGATIVE: the contract of .*saved says POSITIVE"):
        load_reward_model(str(tmp_path / "saved"), objective="NEGATIVE")


def adapter(words, folder: Path, labels) -> Path:
    """A LoRA with the head of a classifier, as PEFT saves it: without a tokenizer."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(small_config(words)).save_pretrained(folder / "base")
    words.save_pretrained(folder / "base")
    base = AutoModelForSequenceClassification.from_pretrained(folder / "base", num_labels=labels)
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="SEQ_CLS", init_lora_weights=False)
    get_peft_model(base, lora).save_pretrained(folder / "lora")
    return folder / "lora"


def test_an_adapter_without_a_tokenizer_has_that_of_its_base(words, tmp_path):
    folder = adapter(words, tmp_path, 1)
    model = load_reward_model(str(folder))
    assert model.contract.tokenizer == describe_tokenizer(words)["tokenizer"]
    assert model.contract.template == describe_tokenizer(words)["template"]
    model.save(tmp_path / "saved")
    assert np.array_equal(load_reward_model(str(tmp_path / "saved")).rate(EXAMPLES), model.rate(EXAMPLES))
    for file in (tmp_path / "base").glob("*token*"):
        file.unlink()
    with pytest.raises(
        DataError, match="no tokenizer in the folder .*lora, which is an adapter, or in that of its base model"
    ):
        load_reward_model(str(folder))
    with pytest.raises(
        DataError, match=r"base \(none of tokenizer.json, .*copy the tokenizer files of the original model"
    ):
        load_tokenizer(str(tmp_path / "base"))


def test_an_adapter_with_a_head_of_two_classes_is_read_as_peft_does(words, tmp_path):
    folder = adapter(words, tmp_path, 2)
    with pytest.raises(DataError, match=r"lora: a classifier of 2 classes \(LABEL_0, LABEL_1\), none named as reward"):
        load_reward_model(str(folder))
    model = load_reward_model(str(folder), objective="LABEL_1")
    plain = AutoPeftModelForSequenceClassification.from_pretrained(folder, num_labels=2).eval()
    rows = [torch.tensor([model.encoder.encode(example).ids]) for example in EXAMPLES]
    with torch.no_grad():
        expected = [plain(input_ids=row).logits[0, 1].item() for row in rows]
    assert model.rate(EXAMPLES)[:, 0] == pytest.approx(expected, abs=1e-6)
    model.save(tmp_path / "saved")
    assert np.array_equal(load_reward_model(str(tmp_path / "saved")).rate(EXAMPLES), model.rate(EXAMPLES))
    with pytest.raises(UsageError, match="the head of the adapter has 2 outputs, but 1 objectives are requested"):
        load_scalar(str(folder), fresh=True)


def openrlhf(words, folder: Path, **facts) -> str:
    """A reward model as OpenRLHF saves it: `value_head`, and figures of its rewards in config.json."""
    source = classifier(words, folder, ("reward",), **facts)
    file, settings = folder / "model.safetensors", folder / "config.json"
    tensors = load_file(file)
    tensors["value_head.weight"] = tensors.pop("score.weight")
    save_file(tensors, file, metadata={"format": "pt"})
    config = json.loads(settings.read_text()) | {"architectures": ["RewardModel"]}
    settings.write_text(json.dumps({name: config[name] for name in config if name not in ("id2label", "label2id")}))
    return source


def test_openrlhf_normalises_the_rewards_of_its_value_head_and_tensors_that_are_not_read_are_named(words, tmp_path):
    source = openrlhf(words, tmp_path / "rm", mean=0.5, std=2.0, normalize_reward=True)
    with pytest.warns(UserWarning, match=r"rewards are normalised as its config.json says, \(v - 0.5\) / 2.0"):
        model = load_reward_model(source)
    expected = (logits(classifier(words, tmp_path / "plain", ("reward",)), model) - 0.5) / 2.0
    assert model.rate(EXAMPLES) == pytest.approx(expected, abs=1e-6)
    contract = model.contract
    assert (contract.reward_mean, contract.reward_std) == (0.5, 2.0)
    assert (contract.bos, contract.eos) == ("template", "once")
    model.save(tmp_path / "saved")
    again = load_reward_model(str(tmp_path / "saved"))
    assert again.contract == contract and np.array_equal(again.rate(EXAMPLES), model.rate(EXAMPLES))
    source = classifier(words, tmp_path / "rm", ("reward",))
    file = tmp_path / "rm" / "model.safetensors"
    save_file(load_file(file) | {"gating.0.weight": torch.zeros(2, 2)}, file, metadata={"format": "pt"})
    with pytest.warns(UserWarning, match=r"rm: 1 of its tensors are not read, .*no layer for them: gating.0.weight"):
        load_reward_model(source)


def test_figures_that_openrlhf_does_not_apply_or_that_are_none_are_named(words, tmp_path):
    source = openrlhf(words, tmp_path / "rm", mean=0.5, std=2.0, normalize_reward=False)
    with pytest.warns(UserWarning, match="rewards are not normalised by the mean 0.5 and std 2.0 .* normalize_reward"):
        model = load_reward_model(source)
    expected = logits(classifier(words, tmp_path / "plain", ("reward",)), model)
    assert model.rate(EXAMPLES) == pytest.approx(expected, abs=1e-6) and model.contract.reward_mean is None
    for facts in [{"mean": 0.5, "std": 0.0}, {"mean": "a", "std": 2.0}]:
        source = openrlhf(words, tmp_path / "rm", normalize_reward=True, **facts)
        with pytest.raises(DataError, match=r"rm: .*mean .* and std .* (restore the file|set normalize_reward to fal)"):
            load_reward_model(source)


BEGUN, CLOSED = "{{ bos_token }}", "{{ eos_token }}"
BODY = "{%% for m in messages %%}<|{{ m.role }}|>{{ m.content }}%s{%% endfor %%}"
POLICIES = [(begun, closed) for begun, closed in product((False, True), repeat=2)]


@pytest.fixture(scope="module")
def llama_words():
    """A tokenizer that adds BOS, as Llama's does."""
    words = small_tokenizer(["roba kano misu suli teke"] * 40, 300)
    words.add_special_tokens({"bos_token": "<s>"})
    words.backend_tokenizer.post_processor = TemplateProcessing("<s> $A", special_tokens=[("<s>", words.bos_token_id)])
    return words


def test_as_the_template_writes_them_is_trls_reading_and_once_adds_what_is_not_there(llama_words):
    for begun, closed in POLICIES:
        llama_words.chat_template = (BEGUN if begun else "") + BODY % (CLOSED if closed else "")

        def ids(**policies):
            contract = ScoringContract(kind="scalar", **describe_tokenizer(llama_words, **policies))
            return [encoded.ids for encoded in Encoder(llama_words, contract).encode_all(EXAMPLES)]

        trl = [_tokenize(llama_words, [*example.turns])["input_ids"] for example in EXAMPLES]
        before, after = [] if begun else [llama_words.bos_token_id], [] if closed else [llama_words.eos_token_id]
        assert ids(bos="template", eos="template") == trl, (begun, closed)
        assert ids(bos="once", eos="template") == [[*before, *row] for row in trl]  # reward-bench
        assert ids(bos="template", eos="once") == [[*row, *after] for row in trl]  # OpenRLHF
        assert ids() == [[*before, *row, *after] for row in trl], (begun, closed)


def test_parity_names_the_convention_that_explains_other_scores(llama_words):
    for begun, closed in [policy for policy in POLICIES if not all(policy)]:
        llama_words.chat_template = (BEGUN if begun else "") + BODY % (CLOSED if closed else "")
        model = scalar_from_config(small_config(llama_words), llama_words)
        trl = [_tokenize(llama_words, [*example.turns])["input_ids"] for example in EXAMPLES]
        theirs = BackendScores(score_ids(model, trl), trl)
        named = culprit(model, EXAMPLES, model.rate(EXAMPLES), theirs)
        assert named == ("missing EOS" if begun else "missing BOS" if closed else CONVENTIONS[0][0])


LOADERS = [load_autoregressive, partial(load_untrained, objectives=("helpful", "harmless"))]
LOADERS += [partial(loader, fresh=True) for loader in (load_scalar, load_latent, load_process)]


def test_every_kind_can_be_trained_with_the_bos_of_the_template(llama_words, tmp_path):
    llama_words.chat_template = BODY % CLOSED
    AutoModelForCausalLM.from_config(small_config(llama_words)).save_pretrained(tmp_path)
    llama_words.save_pretrained(tmp_path)
    for loader in LOADERS:
        policies = [loader(str(tmp_path), **stated).contract.bos for stated in ({}, {"bos": "template"})]
        assert policies == ["once", "template"], loader


def by_card(folder: Path) -> None:
    card = "---\nlibrary_name: transformers\ntags:\n- trl\n- reward-trainer\n---\n# A model\n"
    (folder / "README.md").write_text(card)


def by_arguments(folder: Path) -> None:
    torch.save(RewardConfig(output_dir=str(folder), use_cpu=True, bf16=False), folder / "training_args.bin")


@pytest.mark.parametrize("leave", [by_card, by_arguments])
def test_a_model_of_trls_reward_trainer_is_read_as_it_was_trained(leave, llama_words, tmp_path):
    llama_words.chat_template = BODY % ""
    source = classifier(llama_words, tmp_path / "rm", ("reward",))
    contract = load_reward_model(source).contract
    assert (contract.bos, contract.eos) == ("once", "once")
    leave(tmp_path / "rm")
    by_trl = load_reward_model(source).contract
    assert (by_trl.bos, by_trl.eos) == ("template", "template") and by_trl.hash() != contract.hash()
    stated = load_reward_model(source, bos="once")
    assert (stated.contract.bos, stated.contract.eos) == ("once", "template")
    stated.save(tmp_path / "saved")
    assert load_reward_model(str(tmp_path / "saved"), bos="once").contract == stated.contract
    with pytest.raises(UsageError, match="--bos template: the contract of .*saved says once"):
        load_reward_model(str(tmp_path / "saved"), bos="template")


def test_another_card_is_no_sign_of_a_reward_trainer_and_a_missing_token_is_not_added(llama_words, tmp_path, words):
    llama_words.chat_template = BODY % ""
    source = classifier(llama_words, tmp_path / "rm", ("reward",))
    for card in ["", "---\ntags: [trl\n---\n", "---\ntags:\n- trl\n- sft\n---\n", "---\n- a\n---\n"]:
        (tmp_path / "rm" / "README.md").write_text(card)
        assert load_reward_model(source).contract.bos == "once", card
    with pytest.raises(UsageError, match="--bos once: the tokenizer of .* has no BOS token"):
        describe_tokenizer(words, bos="once")
