import copy

import pytest
import torch
from peft import PeftModel
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.rm.adapters.adapter import attach, load_adapter
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.backbones.forward_hooks import cache_argument
from rewardlab.rm.errors import DataError, UsageError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

NAMES = ("helpful", "harmless")
EVEN = {"helpful": 0.5, "harmless": 0.5}
LEAN = {"helpful": 0.8, "harmless": 0.2}
TOKENS = torch.tensor([[5, 9, 21, 33, 40], [7, 8, 9, 10, 11], [50, 4, 4, 30, 2]])
KINDS = {
    "lora": {"kind": "lora", "objectives": ("helpful",)},
    "pblora": {"kind": "pblora", "rank": 4, "shared_rank": 4},
    "moslora": {"kind": "moslora", "embedding": "random"},
    "trunk": {"kind": "moslora", "texts": ("honey hive", "slowly ask"), "generator": "trunk", "hidden": 8},
    "alpha": {"kind": "moslora", "generator": "alpha"},
    "no shift": {"kind": "moslora", "embedding": "one_hot", "shift": False},
    "span": {"kind": "moslora", "embedding": "random", "span": True},
    "late": {"kind": "moslora", "embedding": "random", "targets": ("all-linear",), "from_layer": 1},
}


def base(architecture="qwen3", seed=0):
    return causal_lm(tokenizer(), architecture, seed=seed).eval()


def adapted(name="moslora", model=None, trained=True, **changes):
    """An adapter; `trained` fills what starts at zero, as training would."""
    settings = AdapterSettings(**{"objectives": NAMES} | KINDS[name] | changes)
    adapter = attach(model if model is not None else base(), settings, tokenizer())
    adapter.model.eval()
    if trained:
        torch.manual_seed(7)
        for key, value in adapter.state().items():
            if value.dtype.is_floating_point and "objectives" not in key and not key.endswith(".A"):
                value.add_(0.3 * torch.randn_like(value))
    return adapter


def preferred(adapter, preference=LEAN):
    if adapter.settings.follows_preference:
        adapter.set_preference(preference)
    return adapter


@torch.no_grad()
def logits(model, tokens=TOKENS, **inputs):
    return model(tokens, **inputs).logits


def a_preference(adapter):
    return LEAN if adapter.settings.follows_preference else {"helpful": 1.0}


def test_before_training_every_preference_is_the_base_model():
    for name, architecture in [*((name, "qwen3") for name in KINDS), ("moslora", "llama")]:
        plain = logits(base(architecture))
        adapter = adapted(name, base(architecture), trained=False)
        for preference in (LEAN, EVEN, {"helpful": 1.0, "harmless": 0.0}):
            assert torch.equal(logits(preferred(adapter, preference).model), plain), (name, architecture)


def test_gradients_reach_b_at_once_and_the_preference_after_one_step():
    for name in ["pblora", "moslora", "trunk", "alpha"]:
        adapter = adapted(name, trained=False)
        parameters = {key: value for key, value in adapter.model.named_parameters() if value.requires_grad}
        optimizer = torch.optim.SGD(parameters.values(), lr=1.0)
        moved = []
        for _ in range(2):
            adapter.set_preference(LEAN)
            adapter.model(TOKENS).logits.logsumexp(-1).sum().backward()
            moved.append({key for key, value in parameters.items() if value.grad is not None and value.grad.any()})
            optimizer.step()
            optimizer.zero_grad()
        assert any("lora_B" in key for key in moved[0]) and not any("preference_heads" in key for key in moved[0]), name
        assert any("preference_heads" in key for key in moved[1]), name
        assert all(key.startswith("base_model.") and ("lora_" in key or "preference_" in key) for key in parameters)


@pytest.mark.parametrize("name", KINDS)
def test_one_preference_is_one_plain_lora_served_exported_saved_and_merged(name, tmp_path):
    plain, adapter = logits(base()), adapted(name)
    live = logits(preferred(adapter).model)
    assert (live - plain).abs().max() > 0.01
    rows = adapter.modulations(adapter._matrix(a_preference(adapter), ()))
    with torch.no_grad(), adapter.serving(rows, start=3):
        both = logits(adapter.model, torch.cat([TOKENS, TOKENS]))
    torch.testing.assert_close(both[:3], plain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(both[3:], live, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(logits(preferred(adapter).model), live)
    adapter.export_lora(a_preference(adapter), tmp_path / "lora")
    exported = logits(PeftModel.from_pretrained(base(), tmp_path / "lora"))
    torch.testing.assert_close(exported, live, atol=2e-5, rtol=1e-5)
    adapter.save_pretrained(tmp_path / "saved")
    again = load_adapter(base(), tmp_path / "saved")
    assert again.settings == adapter.settings and again.objectives == adapter.objectives
    assert torch.equal(logits(preferred(again).model), live)
    merged = adapter.merge(a_preference(adapter))
    assert not any("lora" in key for key, _ in merged.named_parameters())
    torch.testing.assert_close(logits(merged), live, atol=2e-5, rtol=1e-5)


def test_a_merge_adds_to_biases_and_conv1d_layers_are_linear_layers_too(tmp_path):
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", vocab_size=60, **size, **heads)).eval()
    nn.init.normal_(model.model.layers[0].self_attn.q_proj.bias)
    adapter = adapted("moslora", model)
    live = logits(preferred(adapter).model)
    torch.testing.assert_close(logits(adapter.merge(LEAN)), live, atol=2e-5, rtol=1e-5)
    config = AutoConfig.for_model("gpt2", vocab_size=60, n_embd=16, n_layer=2, n_head=2)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    adapter = adapted("moslora", copy.deepcopy(model), targets=("c_attn",))
    live = logits(preferred(adapter).model)
    adapter.export_lora(LEAN, tmp_path)
    torch.testing.assert_close(logits(PeftModel.from_pretrained(model, tmp_path)), live, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(logits(adapter.merge(LEAN)), live, atol=2e-5, rtol=1e-5)


def dense_delta(adapter, name, preference):
    """PBLoRA as published: s (B1 W1 A1 + B2 W2(α) A2), a full matrix."""
    layer, head, r1 = adapter.layers[name], adapter.heads[name], adapter.settings.shared_rank
    A, B = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    core = sum(preference[one] * head.mixed[i].view(head.rank, head.rank) for i, one in enumerate(NAMES))
    return adapter.settings.factor * (B[:, :r1] @ head.shared @ A[:r1] + B[:, r1:] @ core @ A[r1:])


def test_factored_pblora_equals_the_dense_one():
    adapter = adapted("pblora")
    live = logits(preferred(adapter).model)
    dense = base()
    with torch.no_grad():
        for name in adapter.layers:
            dense.get_submodule(name).weight += dense_delta(adapter, name, LEAN)
    torch.testing.assert_close(logits(dense), live, atol=2e-5, rtol=1e-5)


def test_moslora_with_a_linear_generator_and_no_shift_is_a_pblora_of_diagonal_cores():
    """B diag(γ(α)) A = Σ_i α_i B diag(1 + W_γ o_i) A, as the shares sum to 1."""
    modulated = adapted("moslora", shift=False)
    cores = adapted("pblora", rank=8, shared_rank=0, trained=False)
    objectives = modulated.mixer.objectives
    with torch.no_grad():
        for name, layer in cores.layers.items():
            other = modulated.layers[name]
            layer.lora_A["default"].weight.copy_(other.lora_A["default"].weight)
            layer.lora_B["default"].weight.copy_(other.lora_B["default"].weight)
            for i, o in enumerate(objectives):
                cores.heads[name].mixed[i] = (1 + modulated.heads[name].scale.weight @ o).diag().flatten()
    for preference in (LEAN, EVEN):
        found, expected = (logits(preferred(one, preference).model) for one in (cores, modulated))
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


def test_a_preference_per_row_equals_one_after_the_other_and_padding_changes_nothing():
    for name in ["pblora", "moslora", "trunk"]:
        adapter = adapted(name)
        wanted = [LEAN, EVEN, {"helpful": 0.0, "harmless": 1.0}]
        adapter.set_preference(wanted)
        together = logits(adapter.model)
        for place, preference in enumerate(wanted):
            adapter.set_preference(preference)
            alone = logits(adapter.model, TOKENS[place : place + 1])[0]
            torch.testing.assert_close(together[place], alone, atol=1e-5, rtol=1e-5)
        assert (together[0] - together[1]).abs().max() > 1e-3, name
    adapter = preferred(adapted("moslora"))
    short = logits(adapter.model, TOKENS[:1, :3])
    padded = torch.cat([torch.zeros(1, 2, dtype=torch.long), TOKENS[:1, :3]], dim=1)
    mask = torch.tensor([[0, 0, 1, 1, 1]])
    found = logits(adapter.model, padded, attention_mask=mask, position_ids=torch.tensor([[0, 0, 0, 1, 2]]))
    torch.testing.assert_close(found[:, 2:], short, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "kernels"), [*((name, "eager") for name in KINDS), ("lora", "triton"), ("pblora", "triton")]
)
def test_token_by_token_serving_gives_what_it_gives_at_once(name, kernels, monkeypatch, triton):
    """Layers that read one tensor are then served together; rows have a preference each, the first two have none."""
    monkeypatch.setenv("REWARDLAB_KERNELS", kernels)
    adapter = adapted(name)
    wanted = [a_preference(adapter), EVEN if adapter.settings.follows_preference else LEAN, a_preference(adapter)]
    rows = adapter.modulations(adapter._matrix(wanted, ()))
    tokens, cache, steps = torch.cat([TOKENS[:2], TOKENS]), DynamicCache(config=adapter.base.config), []
    with torch.no_grad(), adapter.serving(rows, start=2):
        whole = logits(adapter.model, tokens)
        for first, last in ((0, 2), (2, 3), (3, 4), (4, 5)):
            steps.append(
                logits(adapter.model, tokens[:, first:last], **{cache_argument(adapter.base): cache}, use_cache=True)
            )
        again = logits(adapter.model, tokens)
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(again, whole, atol=2e-5, rtol=2e-5)
    assert (whole[:2] - whole[2:4]).abs().max() > 1e-3


def expected_count(name, k):
    """2 layers of 3 matrices, 64 wide, of rank 8."""
    more = {"lora": 0, "pblora": 4 * 4 + k * 4 * 4, "moslora": 2 * 8 * 64, "trunk": 2 * 8 * (8 + 1), "alpha": 2 * 8 * k}
    return 2 * 3 * (8 * (64 + 64) + more[name]) + (8 * (64 + 1) if name == "trunk" else 0)


def trainable(adapter) -> int:
    return sum(weight.numel() for weight in adapter.model.parameters() if weight.requires_grad)


def test_parameters_grow_with_the_objectives_as_the_formulas_say():
    assert trainable(adapted("lora")) == expected_count("lora", 1) == 6144  # for every objective one more
    for name, slope in {"pblora": 2 * 3 * 16, "moslora": 0, "trunk": 0, "alpha": 2 * 3 * 16}.items():
        options = {"embedding": "random", "texts": ()}
        counts = [trainable(adapted(name, objectives=tuple("abcd"[:k]), **options)) for k in (2, 3, 4)]
        assert counts == [expected_count(name, k) for k in (2, 3, 4)]
        assert counts[1] - counts[0] == counts[2] - counts[1] == slope


def test_descriptions_are_centred_and_scaled_and_random_ones_orthogonal():
    adapter = adapted("trunk", texts=("pollen and wax", "tell me carefully"))
    first, second = adapter.mixer.objectives
    torch.testing.assert_close(first, -second, atol=1e-4, rtol=1e-4)
    assert first.pow(2).mean().item() == pytest.approx(1, abs=1e-4)
    one, two = (adapted("moslora", seed=seed).mixer.objectives for seed in (0, 1))
    torch.testing.assert_close(one @ one.T / 64, torch.eye(2), atol=1e-5, rtol=0)
    assert (one - two).abs().max() > 0.1


def test_an_adapter_of_another_base_or_other_settings_is_refused(tmp_path):
    adapted("moslora").save_pretrained(tmp_path)
    with pytest.raises(DataError, match="was trained on .* not on .*; give the base that it was trained on"):
        load_adapter(base(seed=1), tmp_path)
    assert load_adapter(base().bfloat16(), tmp_path).objectives == NAMES
    adapted("moslora").save_pretrained(tmp_path / "a")
    adapted("pblora").save_pretrained(tmp_path / "b")
    (tmp_path / "b" / "preference_adapter.safetensors").rename(tmp_path / "a" / "preference_adapter.safetensors")
    with pytest.raises(DataError, match="does not fit"):
        load_adapter(base(), tmp_path / "a")
    (tmp_path / "a" / "preference_adapter.json").write_text("{}")
    with pytest.raises(DataError, match="missing or damaged"):
        load_adapter(base(), tmp_path / "a")


def test_a_preference_is_refused_with_the_way_out():
    adapter = adapted("moslora")
    for wrong, names, sentence in [
        ({"helpful": 0.6, "harmless": 0.6}, (), "sums to 1.2"),
        (torch.tensor([0.5, 0.5]), (), "needs the names of its objectives in the adapter's order"),
        (torch.tensor([0.5, 0.5]), ("harmless", "helpful"), "needs the names of its objectives in the adapter's order"),
        (torch.ones(3), NAMES, "has 2 values, got 3"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            adapter.set_preference(wrong, names)


def test_without_a_preference_nothing_is_computed_or_merged():
    with pytest.raises(UsageError, match="no preference is set; call set_preference for helpful, harmless"):
        logits(adapted("moslora").model)
    adapter = adapted("moslora")
    adapter.set_preference([LEAN, EVEN])
    with pytest.raises(UsageError, match="2 preferences for 3 rows"):
        logits(adapter.model)
    with pytest.raises(UsageError, match=r"PreferenceAdapter.merge\(alpha\)"):
        preferred(adapted("moslora")).model.merge_and_unload()


def test_settings_that_make_no_adapter_are_refused():
    for changes, sentence in [
        ({"kind": "dora"}, "'lora', 'pblora' or 'moslora', got 'dora'"),
        ({"kind": "lora"}, "a plain LoRA has one objective"),
        ({"kind": "moslora", "shared_rank": 4}, "shared_rank >= 0 \\(0 unless pblora"),
        ({"kind": "moslora", "texts": ("one",)}, "2 objectives have 1 texts"),
        ({"kind": "moslora", "objectives": ("a", "a")}, "distinct names"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            AdapterSettings(**{"objectives": NAMES} | changes)
    with pytest.raises(UsageError, match="no layer of qwen3 is called query; its linear layers are down_proj"):
        adapted("moslora", targets=("query",))
    with pytest.raises(UsageError, match=r"from_layer must lie in 0..1"):
        adapted("moslora", from_layer=2)
    with pytest.raises(UsageError, match="need the tokenizer"):
        attach(base(), AdapterSettings("moslora", NAMES))
