import copy
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PromptTuningConfig, TaskType, get_peft_model
from rewardlab.rm.backbones import packing
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.backbones.sequence_scores import sequence_scores
from rewardlab.rm.backbones.tokenization import pad
from rewardlab.rm.kinds import _batches
from rewardlab.rm.kinds.scalar import model as scalar_module
from rewardlab.rm.kinds.scalar.model import ScalarRewardModel, scalar_from_config
from rewardlab.rm.types import Example, user_turn
from transformers import AutoConfig, AutoModelForSequenceClassification

VOCABULARY, LONGEST = 120, 96
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024, "pad_token_id": 0,
}  # fmt: skip
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256, "pad_token_id": 0}
BERT = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
LINEAR = {f"linear_{name}": 8 for name in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")}
LINEAR |= {"num_hidden_layers": 4, "shared_expert_intermediate_size": 16}
EXPERTS = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
WINDOW, MIXED = 20, ["sliding_attention", "full_attention"]
PACKED = {
    "qwen3": ("qwen3", SIZES, sys.maxsize),
    "qwen3_moe": ("qwen3_moe", SIZES | EXPERTS, sys.maxsize),
    "llama": ("llama", SIZES, sys.maxsize),
    "gpt2": ("gpt2", GPT2, sys.maxsize),
    "gpt_neox": ("gpt_neox", SIZES, sys.maxsize),
    "mistral, sliding": ("mistral", SIZES | {"sliding_window": WINDOW}, WINDOW),
    "gemma3": ("gemma3_text", SIZES | {"sliding_window": WINDOW, "layer_types": MIXED}, WINDOW),
}
PLAIN = {
    "bert": ("bert", BERT | {"num_attention_heads": 2}),
    "bloom, biases by distance": ("bloom", {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "gemma2, soft caps": ("gemma2", SIZES),
    "gpt_oss, sinks": ("gpt_oss", SIZES | {"num_local_experts": 4}),
    "qwen3_next, linear attention": ("qwen3_next", SIZES | EXPERTS | LINEAR),
    "phi3, long positions": ("phi3", SIZES | {"rope_parameters": LONG | {"original_max_position_embeddings": 64}}),
    "llama4-like chunks": ("qwen3", SIZES | {"layer_types": ["full_attention", "chunked_attention"]}),
}


def model_of(kind, sizes, *, objectives=1, dtype=torch.float32):
    """Random weights, large enough that what a token attends to matters."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **sizes)
    config.num_labels = objectives
    model = AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(4)
    return model.to(dtype)


def tree(random, number, longest=LONGEST):
    found = [[3]]
    while len(found) < number:
        first = found[random.integers(len(found))]
        kept = first[: random.integers(len(first) + 1)] if random.random() < 0.7 else []
        found.append([*kept, *random.integers(2, VOCABULARY, random.integers(1, 40)).tolist()][:longest])
    return sorted({tuple(row) for row in found})


def padded(model, rows):
    batch = pad(rows)
    with torch.inference_mode():
        return sequence_scores(model, batch.tokens, batch.attention)


def together(model, rows, batch_tokens, least=2):
    found = []
    with torch.inference_mode(), packing.packed_attention(model):
        for some in packing.prefix_batches(rows, batch_tokens, least):
            found.append(packing.packed_scores(model, packing.Packed(some, torch.device("cpu"), least)))
    return torch.cat(found)


@pytest.fixture(scope="module")
def qwen():
    return model_of("qwen3", SIZES, objectives=3)


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 2000), st.integers(1, 30), st.integers(0, 2**14))
def test_random_trees_of_sequences_keep_their_scores(qwen, seed, number, batch_tokens, least, slack):
    """Three objectives; batches of one sequence up to all; calls of one span up to many."""
    assert padded(qwen, tree(np.random.default_rng(0), 40)).std(0).min() > 0.1, "they are worth comparing"
    rows = tree(np.random.default_rng(seed), number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(packing.SLACK, "cpu", slack)
        patch.setattr(packing, "QUERIES", 1 + slack % 50)
        found = together(qwen, rows, batch_tokens, least)
    assert found.shape == (len(rows), 3)
    assert (found - padded(qwen, rows)).abs().max() < 1e-5


def test_architectures_that_take_packed_rows_give_the_same_scores():
    for name in PACKED:
        kind, sizes, limit = PACKED[name]
        model = model_of(kind, sizes)
        assert packing.packing_limit(model) == limit, name
        rows = tree(np.random.default_rng(1), 30, min(limit, LONGEST))
        assert (together(model, rows, 300) - padded(model, rows)).abs().max() < 1e-5, name
        assert model.config._attn_implementation == "sdpa", name


def test_architectures_whose_layers_are_not_attention_alone_are_left_alone():
    for name in PLAIN:
        model = model_of(*PLAIN[name])
        before = model.config._attn_implementation
        assert packing.packing_limit(model) == 0 and model.config._attn_implementation == before, name
    # Its first layer looks at the tokens around, which no config tells
    model = model_of("qwen3", SIZES)
    model.model.layers[0].mlp.register_forward_hook(lambda _module, _inputs, states: states + states.roll(1, 1))
    assert packing.packing_limit(model) == 0


def test_long_beginnings_are_right(qwen):
    random = np.random.default_rng(2)
    start = random.integers(2, VOCABULARY, packing.QUERIES + 9).tolist()
    rows = sorted((*start, *random.integers(2, VOCABULARY, packing.QUERIES + more).tolist()) for more in (0, 1, 300))
    assert (together(qwen, rows, 4000) - padded(qwen, rows)).abs().max() < 1e-5


def test_an_eager_model_and_an_adapter_are_packed_and_a_learnt_prompt_is_not(qwen):
    model = model_of("qwen3", SIZES, objectives=3)
    model.set_attn_implementation("eager")
    rows = tree(np.random.default_rng(4), 20)
    assert packing.packing_limit(model) and (together(model, rows, 300) - padded(qwen, rows)).abs().max() < 1e-5
    assert model.config._attn_implementation == "eager"
    lora = LoraConfig(r=4, task_type=TaskType.SEQ_CLS, target_modules="all-linear", init_lora_weights=False)
    model = get_peft_model(model_of("llama", SIZES), lora).eval()
    assert packing.packing_limit(model) == sys.maxsize
    assert (together(model, rows, 300) - padded(model, rows)).abs().max() < 1e-5
    prompted = PromptTuningConfig(task_type=TaskType.SEQ_CLS, num_virtual_tokens=3)
    assert packing.packing_limit(get_peft_model(model_of("llama", SIZES), prompted).eval()) == 0


def test_rows_that_are_not_read_as_packed_are_refused(qwen, monkeypatch):
    with (
        packing.packed_attention(qwen),
        pytest.raises(ValueError, match="Qwen3Attention does not support packed rows"),
    ):
        qwen(input_ids=torch.tensor([[3, 4]]))
    # As if somebody else set the attention back meanwhile
    first = qwen.model.layers[0].self_attn
    other = copy.deepcopy(qwen.config)
    other._attn_implementation_internal = "sdpa"
    monkeypatch.setattr(first, "config", other)
    with packing.packed_attention(qwen), pytest.raises(ValueError, match="1 of 2 layers attended to the packed row"):
        packing.packed_scores(qwen, packing.Packed([[3, 4], [5]], torch.device("cpu")))


def test_threads_take_turns_and_a_failure_leaves_the_attention_as_it_was(reward_model, monkeypatch):
    examples = answers()
    alone = reward_model.rate(examples)
    with ThreadPoolExecutor(4) as pool:
        for rewards in pool.map(reward_model.rate, [examples] * 8):
            np.testing.assert_allclose(rewards, alone, atol=1e-6)
    assert reward_model.model.config._attn_implementation == "sdpa"

    def fail(*_arguments):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(scalar_module, "packed_scores", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        reward_model.rate(answers())
    assert reward_model.model.config._attn_implementation == "sdpa"


def test_the_layout_by_hand_shares_a_beginning_from_some_length_on():
    """x = 5 6 7, y = 5 6 8 9, z = 4: sorted z, x, y; y adds 8 and 9 behind the places of 5 and 6."""
    packed = packing.Packed([[4], [5, 6, 7], [5, 6, 8, 9]], torch.device("cpu"), least=2)
    assert packed.tokens.tolist() == [[4, 5, 6, 7, 8, 9]]
    assert packed.positions.tolist() == [[0, 0, 1, 2, 2, 3]]
    assert packed.last.tolist() == [0, 3, 5]
    rest, wholes = packed.parts
    assert rest.keys.tolist() == [[1, 2, 4, 5]] and rest.queries.tolist() == [[4, 5]]
    assert rest.positions.tolist() == [[2, 3]]
    assert wholes.keys.tolist() == [[0, 0, 0], [1, 2, 3]] and wholes.positions is None
    assert packed.order.tolist() == [2, 5, 6, 7, 0, 1]
    assert packing.common_prefix_length(range(20), [*range(17), 40]) == 17
    assert packing.common_prefix_length(range(20), [*range(15), 40]) == 0
    assert packing.common_prefix_length(range(17), range(30)) == 17


def test_batches_count_what_is_computed():
    """Six answers of 5 tokens to a prompt of 20 cost 20 + 30; beyond the budget the prompt is computed again."""
    rows = [(*range(20), place, 1, 2, 3, 4) for place in range(100, 106)]
    assert [len(some) for some in packing.prefix_batches(rows, 50)] == [6]
    assert [len(some) for some in packing.prefix_batches(rows, 49)] == [5, 1]
    assert [len(some) for some in packing.prefix_batches(rows, 30)] == [2, 2, 2]
    assert [len(some) for some in packing.prefix_batches(rows, 1)] == [1] * 6
    assert packing.Packed(rows, torch.device("cpu")).tokens.shape == (1, 50)


@pytest.fixture(scope="module")
def reward_model() -> ScalarRewardModel:
    words = small_tokenizer(["roba kano mili suke tena " * 20], 300)
    return scalar_from_config(small_config(words, hidden=32), words, objectives=("a", "b"), max_length=60, seed=1)


def answers(number=24):
    random = np.random.default_rng(0)
    prompts = [" ".join(random.choice(["roba", "kano", "mili", "suke"], 14)) for _ in range(4)]
    said = [" ".join(random.choice(["tena", "suke", "kano"], random.integers(1, 70))) for _ in range(number)]
    return [Example(user_turn(prompts[place % 4]), one) for place, one in enumerate(said)]


def counted(monkeypatch):
    totals = []

    def packed(*arguments):
        totals.append(packing.Packed(*arguments).tokens.shape[1])
        return packing.Packed(*arguments)

    monkeypatch.setattr(scalar_module, "Packed", packed)
    return totals


def test_rate_gives_the_scores_that_each_has_alone(reward_model, monkeypatch):
    """Some are truncated on the left and share nothing; any order and any budget."""
    examples, totals = answers(), counted(monkeypatch)
    lengths = [one.length for one in reward_model.encoder.encode_all(examples)]
    assert min(lengths) < 40 and max(lengths) > 60
    alone = np.concatenate([reward_model.rate([one]) for one in examples])
    assert not totals  # a sequence alone is read the plain way
    assert alone.shape == (24, 2) and alone.std(0).min() > 1e-3
    for batch_tokens in (1, 100, 16_384):
        np.testing.assert_allclose(reward_model.rate(examples, batch_tokens=batch_tokens), alone, atol=1e-6)
    np.testing.assert_allclose(reward_model.rate(examples[::-1])[::-1], alone, atol=1e-6)
    assert totals and max(totals) < sum(min(one, 60) for one in lengths)
    assert reward_model.rate([]).shape == (0, 2)


def test_equal_sequences_are_computed_once_and_a_cpu_is_given_what_fits_its_caches(reward_model, monkeypatch):
    totals = counted(monkeypatch)
    first, second = answers(2)
    rewards = reward_model.rate([first, second, first, first])
    assert (rewards[0] == rewards[2]).all() and (rewards[0] == rewards[3]).all()
    reward_model.rate([first, second])
    assert totals[0] == totals[1]
    totals = counted(monkeypatch)
    monkeypatch.setattr(_batches, "CPU_TOKENS", 100)
    reward_model.rate(answers())
    assert len(totals) > 3 and max(totals) <= 100


def test_sequences_beyond_the_limit_are_padded(reward_model, monkeypatch):
    examples, totals = answers(), counted(monkeypatch)
    is_whole_sequence = reward_model.rate(examples)
    lengths = [len(one.ids) for one in reward_model.encoder.encode_all(examples)]
    totals.clear()
    monkeypatch.setattr(scalar_module, "packing_limit", lambda _model: 40)
    np.testing.assert_allclose(reward_model.rate(examples), is_whole_sequence, atol=1e-6)
    assert sum(totals) <= sum(one for one in lengths if one <= 40) < sum(lengths)
    totals.clear()
    monkeypatch.setattr(scalar_module, "packing_limit", lambda _model: 0)
    np.testing.assert_allclose(reward_model.rate(examples), is_whole_sequence, atol=1e-6)
    assert not totals
