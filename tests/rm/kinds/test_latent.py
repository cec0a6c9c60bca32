import numpy as np
import pytest
import torch
from peft import LoraConfig
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.backbones.tokenization import pad
from rewardlab.rm.contract.golden_scores import check_golden, write_golden
from rewardlab.rm.contract.scoring_contract import load_contract
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.latent.model import DEPTH_HEAD, LatentRewardModel, latent_from_config, load_latent
from rewardlab.rm.kinds.latent.steps import check_steps, latent_states
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.parity.known_faults import BackendScores
from rewardlab.rm.parity.parity import own_variants, parity
from transformers import AutoConfig, AutoModelForCausalLM

from tests.rm.spread_models import WORDS, examples, spread

LONG = {"fresh": True, "latent_steps": 3, "max_length": 64}
ROWS = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14]]
SIZES = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
QWEN35 = SIZES | {"num_hidden_layers": 4, "intermediate_size": 64, "num_key_value_heads": 1, "head_dim": 16}
QWEN35 |= {f"linear_num_{part}_heads": 2 for part in ("key", "value")}
QWEN35 |= {f"linear_{part}_head_dim": 16 for part in ("key", "value")}
GEMMA = SIZES | {"intermediate_size": 64, "num_key_value_heads": 1, "head_dim": 16, "sliding_window": 4}
ARCHITECTURES = {
    "llama": SIZES | {"intermediate_size": 64, "num_key_value_heads": 1},
    **{"gpt2": SIZES, "bloom": SIZES, "gemma2": GEMMA, "qwen3_5_text": QWEN35},
}


def language_model(architecture: str = "llama"):
    torch.manual_seed(0)
    config = AutoConfig.for_model(architecture, **ARCHITECTURES[architecture])
    made = AutoModelForCausalLM.from_config(config).eval()
    spread(made)
    return made


def written_out(model, ids: list[int], steps: int) -> torch.Tensor:
    """A row alone, every step by a forward pass over all embeddings so far."""
    embeddings = model.get_input_embeddings()(torch.tensor([ids]))
    for _ in range(steps):
        output = model(inputs_embeds=embeddings, output_hidden_states=True, use_cache=False)
        embeddings = torch.cat([embeddings, output.hidden_states[-1][:, -1:]], dim=1)
    return model(inputs_embeds=embeddings, output_hidden_states=True, use_cache=False).hidden_states[-1][0, -1]


def left(tokens: torch.Tensor, attention: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    moves = (~attention).sum(1).tolist()
    return tuple(
        torch.stack([row.roll(move) for row, move in zip(some, moves, strict=True)]) for some in (tokens, attention)
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_states_of_a_padded_batch_are_those_of_a_loop_over_single_rows(architecture):
    model = language_model(architecture)
    expected = torch.stack([torch.stack([written_out(model, ids, steps) for steps in range(4)]) for ids in ROWS])
    right = pad(ROWS, filler=3)
    for padded in (right, left(*right)):
        torch.testing.assert_close(latent_states(model, *padded, 3), expected, rtol=1e-4, atol=1e-4)
    assert (expected[:, 1:] - expected[:, :-1]).abs().mean() > 0.05, "a step changes the state"


def test_the_gradient_reaches_the_embeddings_through_every_step():
    model = language_model("gemma2")
    latent_states(model, *pad(ROWS), 3)[:, -1].square().sum().backward()
    cached = model.get_input_embeddings().weight.grad[5].clone()
    model.zero_grad()
    sum(written_out(model, ids, 3).square().sum() for ids in ROWS).backward()
    torch.testing.assert_close(cached, model.get_input_embeddings().weight.grad[5], rtol=1e-3, atol=1e-3)


def test_gradient_checkpointing_and_models_without_a_cache_that_passes_a_gradient_are_refused():
    model = language_model().train()
    model.gradient_checkpointing_enable()
    with pytest.raises(UsageError, match="gradient checkpointing disables; turn checkpointing off"):
        latent_states(model, *pad(ROWS), 1)
    assert latent_states(model, *pad(ROWS), 0).shape == (3, 1, 32)
    config = AutoConfig.for_model("bert", is_decoder=False, intermediate_size=64, **SIZES)
    with pytest.raises(DataError, match="my-bert: a bert .* latent steps need a causal"):
        check_steps(AutoModelForCausalLM.from_config(config), "my-bert")
    model = language_model("qwen3_5_text")  # whose cache is overwritten in place
    check_steps(model, "linear attention")
    with pytest.raises(DataError, match="or pass gradients through it"):
        check_steps(model, "linear attention", trainable=True)


@pytest.fixture(scope="module")
def tokenizer():
    return small_tokenizer([" ".join(WORDS)] * 5, 300)


@pytest.fixture(scope="module")
def base(tokenizer, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(small_config(tokenizer, hidden=32, layers=2, heads=2, positions=64))
    spread(made)
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", params=["fixed", "lora"])
def model(request, base) -> LatentRewardModel:
    lora = LoraConfig(r=4, lora_alpha=32, target_modules="all-linear") if request.param == "lora" else None
    depth = "fixed" if request.param == "fixed" else "head"
    made = load_latent(base, fresh=True, latent_steps=3, latent_depth=depth, lora=lora, max_length=40, seed=0)
    with torch.no_grad():
        draw = torch.Generator().manual_seed(1)
        for name, weight in made.model.named_parameters():
            if DEPTH_HEAD in name or "lora_B" in name or "latent_score" in name:
                torch.nn.init.normal_(weight, std=0.3, generator=draw)
    return made


def test_the_score_is_the_head_on_the_state_after_the_chosen_steps_which_parity_names(model):
    rewards, steps = model.rate_with_steps(examples())
    inner = model.language_model
    for example, reward, number in zip(examples(), rewards, steps, strict=True):
        state = written_out(inner, model.encoder.encode(example).ids, int(number))
        assert reward[0] == pytest.approx(inner.latent_score(state).item(), abs=1e-4)
    if model.contract.latent_depth == "fixed":
        assert set(steps) == {3}
    else:
        assert len(set(steps)) > 1
        first = torch.stack([written_out(inner, model.encoder.encode(example).ids, 0) for example in examples()])
        assert steps.tolist() == inner.latent_depth(first).argmax(dim=1).tolist()
    one = model.with_steps(1)
    (result,) = parity(model, examples(), {"one step": lambda some: BackendScores(one.rate(some))})
    assert not result.same and result.culprit == "1 latent steps for every conversation"


def test_scores_do_not_depend_on_batch_order_padding_or_the_cache(model):
    assert model.rate(examples()).std() > 0.1
    results = {result.way: result for result in parity(model, examples(), own_variants(model))}
    assert all(result.same for result in results.values()), results
    assert "without a cache" in results


def test_a_saved_folder_gives_the_same_scores_and_is_a_language_model(model, tmp_path):
    model.save(tmp_path / "rm")
    write_golden(model, examples(), tmp_path / "rm")
    again = load_reward_model(str(tmp_path / "rm"))
    assert isinstance(again, LatentRewardModel) and again.contract == model.contract
    assert check_golden(again, tmp_path / "rm") < 1e-6
    assert (again.contract.latent_steps, again.contract.kind) == (3, "latent")
    if (tmp_path / "rm" / "config.json").exists():
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / "rm", output_loading_info=True)[1]
        assert not plain["missing_keys"] and not plain["unexpected_keys"]


def test_more_steps_are_added_to_a_saved_model_and_none_are_a_scalar_model(base, tmp_path, tokenizer):
    first = load_latent(base, fresh=True, latent_steps=0)
    assert first.contract.max_length == 64
    first.save(tmp_path / "first")
    second = load_latent(str(tmp_path / "first"), fresh=True, latent_steps=5, latent_depth="head")
    torch.testing.assert_close(second.language_model.latent_score.weight, first.language_model.latent_score.weight)
    assert second.contract.max_length == 59, "latent steps need positions too"
    assert second.language_model.latent_depth.weight.shape == (6, 32)
    assert first.contract.hash() != second.contract.hash()
    ours = load_latent(base, fresh=True, latent_steps=0)
    config = small_config(tokenizer, hidden=32, layers=2, heads=2, positions=64)
    scalar = scalar_from_config(config, tokenizer)
    weights = {name.removeprefix("model."): tensor for name, tensor in ours.model.model.state_dict().items()}
    scalar.model.model.load_state_dict(weights)
    scalar.model.score.weight.data.copy_(ours.model.latent_score.weight)
    np.testing.assert_allclose(ours.rate(examples()), scalar.rate(examples()), atol=1e-5)


def test_settings_that_do_not_fit_are_refused(base, tmp_path, tokenizer):
    load_latent(base, fresh=True, latent_steps=3).save(tmp_path / "rm")
    saved = str(tmp_path / "rm")
    scalar_from_config(small_config(tokenizer, hidden=32), tokenizer).save(tmp_path / "scalar")
    for error, message, source, options in [
        (UsageError, "trained with latent_steps 3, .* got 5: remove", saved, {"latent_steps": 5}),
        (UsageError, "trained with latent_depth 'fixed'", saved, {"latent_depth": "head"}),
        (UsageError, "a number of steps >= 0, got -1", saved, {"fresh": True, "latent_steps": -1}),
        (UsageError, "'fixed' or 'head', got 'free'", saved, {"fresh": True, "latent_depth": "free"}),
        (UsageError, "max_length 64 and 3 latent .* exceed the 64 positions .* at most 61", base, LONG),
        (DataError, "not a latent reward model; train one", base, {}),
        (UsageError, "of kind 'scalar'; start from its backbone", str(tmp_path / "scalar"), {"fresh": True}),
    ]:
        with pytest.raises(error, match=message):
            load_latent(source, **options)
    assert load_contract(tmp_path / "rm").latent_steps == 3
    (tmp_path / "rm" / "latent_heads.safetensors").write_bytes(b"no")
    with pytest.raises(DataError, match=r"latent_heads.safetensors: missing or damaged"):
        load_latent(saved)


def test_a_small_model_from_scratch_takes_four_steps_also_by_its_untrained_depth_head(tokenizer):
    made = latent_from_config(small_config(tokenizer, hidden=32, layers=1), tokenizer)
    assert (made.contract.latent_steps, made.contract.latent_depth) == (4, "fixed")
    assert made.rate(examples()).shape == (12, 1)
    made = latent_from_config(small_config(tokenizer, hidden=32, layers=1), tokenizer, latent_depth="head")
    head = made.language_model.get_submodule(DEPTH_HEAD)
    assert not head.weight.any()
    assert head.bias.softmax(dim=0).tolist() == pytest.approx([0.025] * 4 + [0.9])
    assert made.rate_with_steps(examples())[1].tolist() == [4] * 12
