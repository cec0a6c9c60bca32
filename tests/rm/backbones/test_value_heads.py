import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import DataError
from rewardlab.rm.kinds.scalar.model import load_scalar
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, user_turn
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

EXAMPLES = [Example(user_turn("roba kano"), "misu " * n) for n in (1, 2, 5, 9)]
KEYS = ("v_head.summary.weight", "v_head.summary.bias")


@pytest.fixture(scope="module")
def words():
    return small_tokenizer(["roba kano misu suli teke"] * 40, 300)


@pytest.fixture(scope="module")
def head() -> dict[str, torch.Tensor]:
    drawn = torch.Generator().manual_seed(1)
    return dict(zip(KEYS, (0.3 * torch.randn(1, 64, generator=drawn), torch.tensor([0.7])), strict=True))


def language_model(words, layers=2, seed=0, hidden=64, architecture="qwen3"):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(small_config(words, architecture, hidden=hidden, layers=layers))


def saved(model, words, folder: Path) -> Path:
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def as_trl(model, words, folder: Path, head) -> Path:
    """v_head.* among the language model's own tensors."""
    saved(model, words, folder)
    file = folder / "model.safetensors"
    save_file(load_file(file) | head, file, metadata={"format": "pt"})
    return folder


def as_llama_factory(model, words, folder: Path, head) -> Path:
    """The language model (or its LoRA) as it is, and value_head.safetensors beside it."""
    saved(model, words, folder)
    save_file(head, folder / "value_head.safetensors")
    return folder


def values(model, encoder, head) -> np.ndarray:
    found = []
    with torch.no_grad():
        for one in EXAMPLES:
            ids = torch.tensor([encoder.encode(one).ids])
            last = model(ids, output_hidden_states=True).hidden_states[-1][0, -1]
            found.append(float(head[KEYS[0]][0] @ last + head.get(KEYS[1], 0.0)))
    return np.array(found)[:, None]


def same(found, wanted) -> bool:
    return wanted.std() > 0.05 and np.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(("write", "architecture"), [(as_trl, "qwen3"), (as_llama_factory, "llama")])
def test_the_score_is_the_value_at_the_last_token(write, architecture, words, head, tmp_path):
    lm = language_model(words, architecture=architecture)
    model = load_reward_model(str(write(lm, words, tmp_path / "rm", head)))
    assert model.contract.kind == "scalar" and model.contract.objectives == ("reward",)
    assert same(model.rate(EXAMPLES), values(lm, model.encoder, head))
    model.save(tmp_path / "again")
    assert np.array_equal(load_reward_model(str(tmp_path / "again")).rate(EXAMPLES), model.rate(EXAMPLES))
    assert np.array_equal(load_scalar(str(tmp_path / "rm"), fresh=True).rate(EXAMPLES), model.rate(EXAMPLES)), (
        "to train on"
    )


def test_plain_transformers_gives_a_score_that_is_lower_by_the_bias_if_there_is_one(words, head, tmp_path):
    lm = language_model(words)
    for wrote, bias in ((head, 0.7), ({KEYS[0]: head[KEYS[0]]}, 0.0)):
        model = load_reward_model(str(as_trl(lm, words, tmp_path / f"rm-{bias}", wrote)))
        assert (model.model.score.bias is None) == (not bias)
        assert same(model.rate(EXAMPLES), values(lm, model.encoder, wrote))
        model.save(tmp_path / f"again-{bias}")
        plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / f"again-{bias}").eval()
        ids = torch.tensor([model.encoder.encode(EXAMPLES[0]).ids])
        assert plain(ids).logits.item() == pytest.approx(model.rate(EXAMPLES)[0, 0] - bias, abs=1e-5)


def adapted(words, base: Path):
    lm = AutoModelForCausalLM.from_pretrained(saved(language_model(words), words, base))
    lora = LoraConfig(r=2, lora_alpha=2, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    return get_peft_model(lm, lora)


def test_a_lora_with_a_value_head_beside_it_and_what_a_trainer_leaves_is_no_obstacle(words, head, tmp_path):
    lm = adapted(words, tmp_path / "base")
    model = load_reward_model(str(as_llama_factory(lm, words, tmp_path / "rm", head)))
    assert same(model.rate(EXAMPLES), values(lm, model.encoder, head))
    model.save(tmp_path / "again")
    assert np.array_equal(load_reward_model(str(tmp_path / "again")).rate(EXAMPLES), model.rate(EXAMPLES))
    folder = as_trl(language_model(words), words, tmp_path / "rm", head)
    for name in ("training_args.bin", "optimizer.pt", "rng_state_0.pth"):
        torch.save({}, folder / name)
    assert np.isfinite(load_reward_model(str(folder)).rate(EXAMPLES)).all()


def test_a_head_of_another_width_and_a_damaged_one_are_refused(words, head, tmp_path):
    folder = as_llama_factory(language_model(words, hidden=32), words, tmp_path / "rm", head)
    with pytest.raises(DataError, match=r"the head has shape \(1, 64\), but the model needs \(1, 32\)"):
        load_reward_model(str(folder))
    (folder / "value_head.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(DataError, match=r"value_head.safetensors: damaged .*fetch it again"):
        load_reward_model(str(folder))


def test_a_pickle_is_refused_with_the_way_to_convert_it(words, head, tmp_path):
    for name, way_out in (
        ("value_head.bin", "'value_head.safetensors'"),
        ("pytorch_model.bin", "'model.safetensors'"),
        ("model.pt", "'model.safetensors'"),
        ("pytorch_model-00001-of-00002.bin", "convert every shard"),
    ):
        folder = saved(language_model(words, hidden=32), words, tmp_path / name)
        if name != "value_head.bin":
            (folder / "model.safetensors").unlink()
        torch.save(head, folder / name)
        with pytest.raises(DataError, match=f"{re.escape(name)}: a pickle, which can run code .*{way_out}"):
            load_reward_model(str(folder))


def test_the_way_that_is_told_works(words, head, tmp_path, monkeypatch):
    lm = adapted(words, tmp_path / "base")
    folder = saved(lm, words, tmp_path / "rm")
    torch.save(head, folder / "pytorch_model.bin")  # where TRL writes the head of an adapted model
    with pytest.raises(DataError) as refused:
        load_reward_model(str(folder))
    _, option, program = shlex.split(re.search(r"python -c .*", str(refused.value)).group())
    assert option == "-c"
    monkeypatch.chdir(folder)
    exec(program, {})
    model = load_reward_model(str(folder))
    assert same(model.rate(EXAMPLES), values(lm, model.encoder, head))


def test_an_adapter_on_another_base_is_refused_and_one_that_is_gone_named(words, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    base = saved(language_model(words), words, tmp_path / "base")
    load_scalar(str(base), fresh=True, lora=LoraConfig(r=2, target_modules=["q_proj", "v_proj"])).save(tmp_path / "rm")
    settings = tmp_path / "rm" / "adapter_config.json"
    own = json.loads(settings.read_text())
    for other in ({"layers": 3}, {"layers": 1}, {"hidden": 32}):
        saved(language_model(words, **other), words, tmp_path / "other")
        settings.write_text(json.dumps(own | {"base_model_name_or_path": str(tmp_path / "other")}))
        with pytest.raises(DataError, match="the adapter does not fit its base .*other, which has other layers"):
            load_reward_model(str(tmp_path / "rm"))
    settings.write_text(json.dumps(own))
    base.rename(tmp_path / "moved")
    with pytest.raises(DataError, match=f"{base}: cannot be loaded"):
        load_reward_model(str(tmp_path / "rm"))
