import json

import pytest
from rewardlab.rm.capacity import flops
from rewardlab.rm.capacity.choices import (
    PRECISIONS,
    STATES,
    Sharding,
    compute_seconds,
    find_gpu,
    optimizer_bytes,
    read_seconds,
)
from rewardlab.rm.capacity.config_shapes import shape_of
from rewardlab.rm.capacity.flops import Adapters, HeadOutputs, adapter_parameters, forward_flops, training_flops
from rewardlab.rm.capacity.jobs import (
    Decoding,
    Machine,
    Plan,
    Rl,
    all_cache_bytes,
    decode_plan,
    decoding_flops,
    decoding_read_bytes,
    decoding_weight_bytes,
    largest_fitting,
    rl_plan,
    score_plan,
)
from rewardlab.rm.capacity.memory import (
    Step,
    cache_bytes,
    gathered_bytes,
    head_bytes,
    layer_bytes,
    resident_parts,
    saved_activation_bytes,
    step_parts,
    trained_parameters,
    weight_bytes,
)
from rewardlab.rm.capacity.shapes import SIZES, Shape, find_shape, full_name, table_settings, table_shape
from rewardlab.rm.errors import DataError, UsageError
from transformers import AutoConfig

FLOAT = PRECISIONS["float32"]
H100 = find_gpu("h100")


@pytest.fixture(scope="module")
def tiny() -> Shape:
    """2 layers of width 4: 2 heads of 2 on one of keys, an MLP of 6, 10 words, a tied head."""
    size = {"vocab_size": 10, "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 2, "head_dim": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    return shape_of(AutoConfig.for_model("llama", **size, **heads, tie_word_embeddings=True), "tiny")


def machine(gpus: int = 1, strategy: str = "ddp", **settings: float) -> Machine:
    return Machine(H100, Sharding(gpus, strategy), **{"mfu": 0.4, "mbu": 0.4, "reserve": 0.1} | settings)


def a_step(rows: int = 3, length: int = 5, **settings) -> Step:
    return Step(rows, length, settings.pop("top", HeadOutputs(scores=1)), settings.pop("precision", FLOAT), **settings)


def test_parameters_are_those_of_the_architecture_and_of_adapters(tiny):
    # q and o 4 x 4, k and v 4 x 2, three of 4 x 6, two norms of 4; 10 x 4 words, the last norm
    assert tiny.layer_parameters == 16 + 16 + 8 + 8 + 3 * 24 + 2 * 4
    assert tiny.parameters == 2 * 128 + 40 + 4 == tiny.trunk
    assert (tiny.mlp, tiny.kv_heads, tiny.gated, tiny.tied, tiny.head_normed) == (6, 1, True, True, False)
    assert adapter_parameters(tiny, Adapters(3, ("q_proj",))) == 2 * 3 * 8
    assert adapter_parameters(tiny, Adapters(3, ("q_proj",), 1)) == 3 * 8
    assert adapter_parameters(tiny, Adapters(3, ("q_proj",), 0, "pblora", 2), shared_rank=1) == 2 * (24 + 2 * 4 + 1)
    assert adapter_parameters(tiny, Adapters(3, ("q_proj",), 0, "moslora", 2, 4)) == 2 * (24 + 2 * 3 * 4)


def test_the_table_has_the_published_numbers_of_parameters_of_models_that_transformers_builds():
    cases = [
        ("qwen3-0.6b", 596_049_920), ("qwen3-8b", 8_190_735_360), ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512), ("llama3-1b", 1_235_814_400), ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
    ]  # fmt: skip
    for name, published in cases:
        assert find_shape(name).parameters == published
    for name in ["qwen3-0.6b", "qwen3-8b", "qwen2.5-0.5b", "qwen2.5-7b", "llama3-1b", "llama3-8b"]:
        assert table_shape(name) == shape_of(AutoConfig.for_model(**table_settings(name)), name)
    assert all(full_name(name) == name for name in SIZES)
    assert full_name("8B") == "qwen3-8b" and full_name("70b") == "llama3-70b"


def test_a_folder_needs_a_config_and_no_weights(tmp_path):
    with pytest.raises(DataError, match=r"cannot read its config.json .*; give a size such as 7b"):
        find_shape(str(tmp_path))
    AutoConfig.for_model(**table_settings("qwen3-0.6b")).save_pretrained(tmp_path)
    assert find_shape(str(tmp_path)).parameters == 596_049_920
    assert [one.name for one in tmp_path.iterdir()] == ["config.json"]


def test_other_decoders_are_read_too_and_what_the_formulas_are_not_for_is_refused(tmp_path):
    for family, mixes, gated in [("gpt2", "c_proj", False), ("phi3", "o_proj", True), ("opt", "out_proj", False)]:
        shape = shape_of(AutoConfig.for_model(family), family)
        assert [one.name for one in shape.linears if one.stage == 1] == [mixes]
        assert shape.gated is gated
    for family, sentence in [("mixtral", "has experts"), ("mamba", "dense decoders"), ("t5", "not of a causal")]:
        with pytest.raises(UsageError, match=sentence):
            shape_of(AutoConfig.for_model(family), family)
    for name, value in [("num_hidden_layers", 5000), ("hidden_size", -4), ("num_hidden_layers", 0)]:
        AutoConfig.for_model(**table_settings("qwen3-0.6b")).save_pretrained(tmp_path)
        written = json.loads((tmp_path / "config.json").read_text()) | {name: value, "layer_types": None}
        (tmp_path / "config.json").write_text(json.dumps(written))
        with pytest.raises((UsageError, DataError), match=str(tmp_path)):
            find_shape(str(tmp_path))


def test_operations_of_a_forward_are_the_products(tiny):
    assert flops.linear_flops(tiny) == 2 * (16 + 8 + 8 + 16 + 72)  # 240
    assert flops.attention_flops(tiny, 5, 5) == 2 * (2 * 2 * 2 * 25)  # q kᵀ and times v: 2 heads of 2, 25 pairs
    layer = 15 * 240 + 3 * 400
    assert forward_flops(tiny, 3, 5, HeadOutputs()) == 2 * layer
    assert forward_flops(tiny, 3, 5, HeadOutputs(head_tokens=6)) == 2 * layer + 6 * 2 * 40
    assert forward_flops(tiny, 3, 5, HeadOutputs(scores=2)) == 2 * layer + 15 * 2 * 8
    assert forward_flops(tiny, 3, 1, HeadOutputs(3), cached=7) == 2 * (3 * 240 + 3 * 4 * 4 * 8) + 3 * 80


def test_training_all_weights_costs_three_forwards_but_for_what_is_made_again(tiny):
    linear, attention, head = 2 * 15 * 240, 2 * 3 * 400, 15 * 8
    found = {fused: training_flops(tiny, 3, 5, HeadOutputs(scores=1), fused=fused) for fused in (True, False)}
    assert found[False] == 3 * (linear + attention + head)
    assert found[True] == found[False] + attention // 2
    assert training_flops(tiny, 3, 5, HeadOutputs(6)) == 3 * linear + 7 * attention // 2 + 4 * 6 * 80
    once = training_flops(tiny, 3, 5, HeadOutputs(scores=1))
    again = training_flops(tiny, 3, 5, HeadOutputs(scores=1), checkpointing=True)
    assert again - once == 2 * (15 * (240 - 48) + 3 * 400)


def test_a_frozen_matrix_has_no_gradient_of_its_own(tiny):
    adapters = Adapters(1, ("o_proj",), from_layer=1)
    linear, attention = 15 * 240, 3 * 400
    added = 15 * 2 * (4 + 4)
    # behind o_proj of layer 1 the gradient passes gate, up and down; the adapter's A reads what wants none
    back = 15 * 2 * 72 + 2 * added - 15 * 2 * 4
    assert training_flops(tiny, 3, 5, HeadOutputs(), adapters) == 2 * (linear + attention) + added + back


def test_bytes_that_a_layer_saves_alone_with_adapters_and_with_checkpointing(tiny):
    # per token: 3 numbers for each of two norms (input, normed, output: 4 wide), q, k, v, output of attention with
    # keys repeated (4 wide each) and 2 log-sums, gate, SiLU, up and their product (6 wide), 5 of the mask's row
    numbers = 2 * 3 * 4 + 4 * 4 + 2 + 4 * 6 + 5
    assert layer_bytes(tiny, a_step()) == 4 * 15 * numbers
    unpadded = numbers - 2 * 2 - 5  # keys and values of one head
    assert layer_bytes(tiny, a_step(padded=False)) == 4 * 15 * unpadded
    # in bfloat16 the norms' inputs and the log-sums stay float32
    narrow = layer_bytes(tiny, a_step(precision=PRECISIONS["bfloat16"]))
    assert narrow == 15 * (2 * (numbers - 8 - 2) + 4 * (8 + 2))
    step = a_step(adapters=Adapters(3, ("q_proj",)))
    # two norms' inputs, one norm's output, attention as before, gate, SiLU and up, 3 features
    assert layer_bytes(tiny, step) == 4 * 15 * (2 * 4 + 4 + 4 * 4 + 2 + 3 * 6 + 5 + 3)
    assert saved_activation_bytes(tiny, a_step(checkpointing=True)) == 15 * (2 * 4 * 4 + 2 * 4 * 4)


def test_weights_gradients_and_states_of_all_and_of_adapters(tiny):
    assert trained_parameters(tiny, a_step()) == tiny.parameters + 4
    assert resident_parts(tiny, a_step(), Sharding(), "adamw") == {"weights": 4 * 304, "optimizer": 8 * 304}
    adapted = a_step(adapters=Adapters(3, ("q_proj",)), precision=PRECISIONS["bfloat16"])
    assert weight_bytes(tiny, adapted) == 2 * 300 + 4 * (48 + 4)
    assert resident_parts(tiny, adapted, Sharding(), "adamw")["optimizer"] == 8 * (48 + 4)
    assert [optimizer_bytes(10, 4, name) for name in STATES] == [80, 20, 40, 0]


def test_the_cache_has_a_key_and_a_value_of_every_kv_head_and_a_shared_backbone_is_held_once(tiny):
    assert cache_bytes(tiny, 3, 7, 2) == 2 * 2 * 1 * 2 * 2 * 3 * 7
    shared = Decoding(tiny, 3, 4, 3, 2, "shared", Adapters(2))
    late = shared._replace(guiding="late", adapters=Adapters(2, from_layer=1))
    plain, separate = shared._replace(guiding="none", adapters=None), Decoding(tiny, 3, 4, 3, 2, "separate", None, tiny)
    one = cache_bytes(tiny, 3, 7, 2)
    assert [all_cache_bytes(work, 7) for work in (plain, late, shared, separate)] == [one, 1.5 * one, 2 * one, 2 * one]
    plain = Decoding(tiny, 3, 4, 2, 2)
    separate = plain._replace(guiding="separate", guide=tiny)
    shared = plain._replace(guiding="shared", adapters=Adapters(2, ("q_proj",)))
    assert decoding_weight_bytes(separate) == 2 * decoding_weight_bytes(plain) == 2 * 2 * 300
    assert decoding_weight_bytes(shared) == 2 * 300 + 4 * 2 * 2 * 8
    weights = [decoding_read_bytes(work) - all_cache_bytes(work, 5) for work in (plain, shared, separate)]
    assert weights == [600, 600, 1200]
    assert decoding_flops(separate)[1] == 2 * decoding_flops(plain)[1]


def test_seconds_are_work_over_the_assumed_share_of_the_peak_of_the_table():
    assert compute_seconds(989e12, H100, 0.5) == pytest.approx(2.0)
    assert compute_seconds(67e12, H100, 1.0, narrow=False) == pytest.approx(1.0)
    assert read_seconds(3350e9, H100, 0.25) == pytest.approx(4.0)


def test_twice_the_batch_is_twice_the_activations_and_sharding_divides_the_rest(tiny):
    one, two = (a_step(rows) for rows in (3, 6))
    assert (saved_activation_bytes(tiny, two), head_bytes(tiny, two)) == (
        2 * saved_activation_bytes(tiny, one),
        2 * head_bytes(tiny, one),
    )
    for strategy in ["fsdp", "zero3"]:
        alone, sharding = Sharding(), Sharding(4, strategy)
        whole, share = (resident_parts(tiny, a_step(), one, "adamw") for one in (alone, sharding))
        assert {name: 4 * size for name, size in share.items()} == whole, strategy
        parts = [step_parts(tiny, a_step(), one, accumulated=True) for one in (alone, sharding)]
        assert parts[0]["gradients"] == 4 * parts[1]["gradients"] and parts[0]["activations"] == parts[1]["activations"]


def test_a_copy_on_every_gpu_is_not_divided_and_zero_keeps_narrow_weights_beside_their_masters(tiny):
    alone, eight = (step_parts(tiny, a_step(), Sharding(gpus)) for gpus in (1, 8))
    assert eight == alone | {"buckets": 4 * 304}
    assert gathered_bytes(tiny, a_step(), Sharding()) == 0
    mixed = a_step(precision=PRECISIONS["mixed"])
    fsdp, zero = (resident_parts(tiny, mixed, Sharding(2, name), "adamw")["weights"] for name in ("fsdp", "zero3"))
    assert zero - fsdp == 2 * 300 // 2


def test_reference_critic_and_r2m_head_are_held_with_their_states(tiny):
    work = Rl(prompt=2, group=2, rewards=[tiny])

    def parts(adapters=None):
        step = a_step(2, top=HeadOutputs(6), adapters=adapters)
        return rl_plan(tiny, step, work, machine(), "adamw").phases[-1].parts

    assert parts()["reference"] == 4 * 300 and "reference" not in parts(Adapters(2))
    assert parts()["reward models"] == 4 * (300 + 4)
    work = Rl(prompt=2, group=2, rewards=[tiny], critic=True, feedback=True)
    plan = rl_plan(tiny, a_step(2, top=HeadOutputs(6)), work, machine(), "adamw")
    assert plan.phases[-1].parts["critic"] == 4 * 4 * 5
    assert plan.phases[-1].parts["R2M head"] == 4 * 4 * (2 * 16 + 2 * 16)
    assert plan.host == 2 * 5 * 4 * 2  # bfloat16 states of 2 answers of 5 tokens
    assert [phase.name for phase in plan.phases] == ["completions", "log-probabilities", "rewards of tiny", "update"]


def test_the_largest_batch_is_the_last_that_fits():
    shape, gpu = find_shape("8b"), machine()

    def plan(rows: int) -> Plan:
        return decode_plan(Decoding(shape, rows, 512, 512, 2), gpu)

    most = largest_fitting(lambda rows: plan(rows).fits(gpu))
    assert plan(most).fits(gpu) and not plan(most + 1).fits(gpu)
    assert largest_fitting(lambda rows: plan(rows).fits(machine(reserve=0.9))) == 0


def test_decoding_waits_for_memory_with_few_rows_and_scoring_holds_one_forward(tiny):
    shape = find_shape("0.6b")
    bounds = [decode_plan(Decoding(shape, rows, 8, 8, 2), machine()).phases[0].bound for rows in (1, 4096)]
    assert bounds == ["memory", "operations"]
    phase = score_plan(tiny, a_step(), machine()).phases[0]
    assert phase.parts["weights"] == 4 * 304 and phase.flops == forward_flops(tiny, 3, 5, HeadOutputs(scores=1))


def test_what_makes_no_sense_is_refused():
    for make, sentence in [
        (lambda: find_shape("qwen3-9b"), "no size 'qwen3-9b', and no folder of that name; did you mean 'qwen3-8b'"),
        (lambda: Sharding(0), "gpus must be at least 1, got 0"),
        (lambda: Sharding(2, "fsdp2"), "unknown strategy 'fsdp2'; did you mean 'fsdp'"),
        (lambda: optimizer_bytes(1, 4, "adam"), "unknown optimizer 'adam'; did you mean 'adamw'"),
        (lambda: find_gpu("h1000"), "unknown GPU 'h1000'; did you mean 'h100'"),
        (lambda: machine(mfu=1.5), r"mfu must lie in \(0, 1\], got 1.5"),
        (lambda: machine(reserve=1.0), r"reserve must lie in \[0, 1\), got 1.0"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            make()
