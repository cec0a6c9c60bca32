"""Pairs inside vLLM: the maths, the bookkeeping under both interfaces, and a real engine where there is one."""

import copy
import gc
import importlib.util
import json
import sys
from contextlib import contextmanager
from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rewardlab.policy.decoding import vllm as pairs
from rewardlab.policy.decoding.vllm import (
    Capacity,
    V1Pairs,
    V2Pairs,
    combine,
    guided_llm,
    member_of,
    vllm_guided,
    waves,
)
from rewardlab.rm.adapters.adapter import attach
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.errors import DataError, UsageError
from transformers import AutoModelForCausalLM

SWAP = Enum("Direction", "UNIDIRECTIONAL SWAP").SWAP
ONE_WAY = type(SWAP).UNIDIRECTIONAL
W = 1.5
ALPHA = {"helpful": 0.3, "harmless": 0.7}


def params(pair=None, role="base", weight=2.0, **other):
    extra = {"guide_pair": pair, "guide_role": role, "guide_weight": weight} if pair else None
    return SimpleNamespace(**{"extra_args": extra, "n": 1, "seed": None, "temperature": 0.0} | other)


def config(*, chunked=False, longest=0, speculative=None, device="cuda", loras=1):
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(enable_chunked_prefill=chunked, long_prefill_token_threshold=longest),
        speculative_config=speculative,
        device_config=SimpleNamespace(device_type=device),
        lora_config=SimpleNamespace(max_loras=loras),
    )


def test_a_pair_gets_base_plus_weighted_guide_and_masked_tokens_stay_masked():
    logits = torch.tensor([[0.0, 1.0, 1.0], [5.0, 5.0, 5.0], [1.0, 2.0, 0.0]])
    mixed = combine(logits, torch.tensor([[2, 0]]), torch.tensor([2.0]))
    assert mixed.tolist() == [[1.0, 4.0, 2.0], [5.0, 5.0, 5.0], [1.0, 4.0, 2.0]]
    inf = torch.inf
    logits = torch.tensor([[0.0, -inf, 1.0], [-inf, 3.0, 1.0]])
    for weight, expected in ((2.0, [-inf, -inf, 3.0]), (-2.0, [-inf, -inf, -1.0]), (0.0, [0.0, -inf, 1.0])):
        mixed = combine(logits, torch.tensor([[0, 1]]), torch.tensor([weight]))
        assert mixed.tolist() == [expected, expected]


def test_the_words_of_a_request_make_it_a_member_and_nonsense_is_refused():
    assert member_of(params()) is None
    assert member_of(params(extra_args={"other": 1})) is None
    assert member_of(params("a", "guide", 2)) == ("a", "guide", 2.0)
    assert member_of(params("a", temperature=1.0, seed=0)).role == "base"
    nameless = {"extra_args": {"guide_role": "base"}}
    for wrong, message in (
        ({"role": "bass"}, "pair 'a': guide_role must be base or guide, got 'bass'"),
        ({"weight": float("nan")}, "guide_weight must be a finite number, got nan"),
        ({"weight": None}, "guide_weight must be a finite number, got None"),
        ({"n": 2}, "n must be 1; submit a pair for every completion"),
        ({"temperature": 0.7}, "seed must be a number at a temperature above 0, got None"),
        (nameless, "guide_pair must be a string that both requests of the pair share, got None"),
    ):
        for interface in (V1Pairs, V2Pairs):
            with pytest.raises(UsageError, match=message):
                interface.validate_params(params("a", **wrong))


def test_an_engine_that_could_part_pairs_is_refused():
    for engine, message in (
        (config(chunked=True), "enable_chunked_prefill=False"),
        (config(longest=64), "each prompt in one prefill"),
        (config(speculative=object()), "without speculative decoding"),
        (config(device="cpu"), "max_loras=2"),
    ):
        with pytest.raises(UsageError, match=message):
            V1Pairs(engine, "cpu", False)
        with pytest.raises(UsageError, match=message):
            V2Pairs(engine, None)


def update(removed=(), added=(), moved=()):
    return SimpleNamespace(removed=removed, added=added, moved=moved)


def begun(*added):
    processor = V1Pairs(config(), "cpu", False)
    processor.update_state(update(added=added))
    return processor


def test_rows_are_followed_as_they_are_added_moved_swapped_and_removed():
    logits = torch.eye(4)
    processor = begun((0, params("a"), [7], []), (1, params("a", "guide"), [7], []), (2, params(), [7], []))
    both = logits[0] + 2 * logits[1]
    assert torch.equal(processor.apply(logits), torch.stack([both, both, logits[2], logits[3]]))

    processor.update_state(None)
    processor.update_state(update(moved=[(0, 2, SWAP)]))
    both = logits[2] + 2 * logits[1]
    assert torch.equal(processor.apply(logits), torch.stack([logits[0], both, both, logits[3]]))

    processor.update_state(update(removed=[0], moved=[(2, 0, ONE_WAY)]))
    both = logits[0] + 2 * logits[1]
    assert torch.equal(processor.apply(logits)[:2], torch.stack([both, both]))

    processor.update_state(update(removed=[1], added=[(0, params(), [7], [])]))
    assert torch.equal(processor.apply(logits), logits)
    assert not processor.is_argmax_invariant()


def test_a_base_row_out_of_step_with_its_guide_stops_the_engine_and_a_guide_alone_is_left_as_it_is():
    base = (0, params("a"), [7], [8])
    absent = "pair 'a' is out of step: base at 2 tokens, the last 8; its guide is absent"
    with pytest.raises(RuntimeError, match=absent):
        begun(base, (1, params("b", "guide"), [7], [8])).apply(torch.eye(2))
    for answer in ([], [9], [8, 8]):  # it fell behind, drew another token, ran ahead
        with pytest.raises(RuntimeError, match="out of step"):
            begun(base, (1, params("a", "guide"), [7], answer)).apply(torch.eye(2))
    with pytest.raises(RuntimeError, match="pair 'a' has two base rows"):
        begun((0, params("a"), [7], []), (1, params("a"), [7], [])).apply(torch.eye(2))
    assert torch.equal(begun((1, params("a", "guide"), [7], [])).apply(torch.eye(2)), torch.eye(2))


def context(slots, lengths, last):
    return SimpleNamespace(
        idx_mapping_np=np.array(slots), seq_lens_upper_bound_np=np.array(lengths), input_ids=torch.tensor(last)
    )


def test_slots_are_found_in_any_row_forget_who_had_them_and_stop_the_engine_out_of_step():
    processor = V2Pairs(config(), None)
    assert processor.add_request(5, params("a")) and processor.add_request(3, params("a", "guide"))
    assert not processor.add_request(0, params())
    logits, both = torch.eye(3), torch.tensor([2.0, 0.0, 1.0])
    mixed = processor.apply(logits, context([3, 0, 5], [4, 9, 4], [7, 1, 7]))
    assert torch.equal(mixed, torch.stack([both, logits[1], both]))
    assert not processor.add_request(5, params()) and not processor.add_request(3, params())
    assert processor.apply(logits, context([3, 0, 5], [4, 9, 4], [7, 1, 7])) is logits
    processor = V2Pairs(config(), None)
    processor.add_request(5, params("a")), processor.add_request(3, params("a", "guide"))
    for slots, lengths, last in (([5], [4], [7]), ([5, 3], [4, 5], [7, 7]), ([5, 3], [4, 4], [7, 8])):
        with pytest.raises(RuntimeError, match="pair 'a' is out of step"):
            processor.apply(torch.eye(len(slots)), context(slots, lengths, last))


def test_a_wave_is_full_when_rows_tokens_or_cache_are():
    room = Capacity(rows=4, tokens=100, blocks=100, block=4, context=64)
    for narrow in (room, room._replace(rows=9, tokens=29), room._replace(rows=9, blocks=11)):
        assert list(waves([5, 5, 5], 3, narrow)) == [[0, 1], [2]]
    assert list(waves([], 3, room)) == []
    refused = "prompt 1 has 9 tokens, its completion up to 3; such a pair .* raise max_num_batched"
    with pytest.raises(UsageError, match=refused):
        list(waves([5, 9], 3, Capacity(rows=4, tokens=17, blocks=100, block=4, context=64)))


@given(st.lists(st.integers(1, 20), max_size=20), st.integers(1, 30))
def test_waves_keep_the_order_and_never_overdraw(prompts, answer):
    room = Capacity(rows=7, tokens=50, blocks=20, block=8, context=40)
    found = list(waves(prompts, answer, room))
    assert [place for wave in found for place in wave] == [*range(len(prompts))]
    for wave in found:
        left = room
        for place in wave:
            left = left.less(prompts[place], answer)
        assert wave and left.enough


def test_an_engine_at_work_and_a_folder_without_lora_or_with_a_bias_are_refused(tmp_path):
    def engine(works: bool):
        return SimpleNamespace(llm_engine=SimpleNamespace(has_unfinished_requests=lambda: works))

    with pytest.raises(UsageError, match="unfinished requests"):
        vllm_guided(engine(True), [[1]], tmp_path)
    with pytest.raises(DataError, match="holds no PEFT LoRA .* export_lora"):
        vllm_guided(engine(False), [[1]], tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"lora_bias": True}))
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(DataError, match="has a LoRA bias, .* without shift"):
        vllm_guided(engine(False), [[1]], tmp_path)


def test_a_rendered_prompt_that_begins_with_bos_gets_no_second_one():
    tokenizer = SimpleNamespace(
        bos_token_id=1, encode=lambda text: [1, *(1 if word == "<s>" else 7 for word in text.split())]
    )
    for prompt, ids in (("<s> a", [1, 7]), ("a", [1, 7]), ("a <s>", [1, 7, 1])):
        assert pairs._prompt_ids(tokenizer, prompt) == ids
    assert pairs._prompt_ids(tokenizer, [1, 1, 7]) == [1, 1, 7]
    assert pairs._prompt_ids(SimpleNamespace(bos_token_id=None, encode=lambda text: [7, 7]), "a a") == [7, 7]


@pytest.mark.parametrize("name", ["V1Processor", "V2Processor"])
def test_without_vllm_the_way_out_is_told(name, monkeypatch, tmp_path):
    monkeypatch.delitem(vars(pairs), name, raising=False)
    monkeypatch.setitem(sys.modules, pairs.INTERFACES[name], None)
    with pytest.raises(UsageError, match="no module vllm.*; pip install 'rewardlab\\[vllm\\]'"):
        getattr(pairs, name)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UsageError, match="pip install"):
        guided_llm(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'V3Processor'"):
        pairs.V3Processor  # noqa: B018


@pytest.fixture(scope="module")
def vllm():
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed; make test-vllm runs these in an environment of its own")
    return importlib.import_module("vllm")


def model_of(words, architecture):
    """Random weights that are wide enough for answers of many different tokens."""
    config = small_config(words, architecture, hidden=128, layers=3, heads=2, positions=256)
    config.tie_word_embeddings = False
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            weight.data.normal_(0, 1.0 if "embed" in name else 0.15)
    return model


def adapted(model, kind):
    settings = AdapterSettings(
        kind=kind,
        objectives=("helpful",) if kind == "lora" else ("helpful", "harmless"),
        rank=4,
        shared_rank=4 if kind == "pblora" else 0,
        targets=("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"),
    )
    adapter = attach(copy.deepcopy(model), settings)
    torch.manual_seed(5)
    for key, value in adapter.state().items():
        if value.dtype.is_floating_point and value.dim() > 1 and not key.endswith(".A"):
            value.add_(0.2 * torch.randn_like(value))
    adapter.set_preference(ALPHA if kind == "pblora" else None)
    return adapter


@torch.inference_mode()
def two_models(model, adapter, prompt, steps, weight=W):
    """Greedy guided tokens, each from two whole forwards without a cache."""
    ids = list(prompt)
    for _ in range(steps):
        tokens = torch.tensor([ids])
        u = model(tokens).logits[0, -1]
        if weight:
            u = u + weight * adapter.model(tokens).logits[0, -1]
        ids.append(int(u.argmax()))
    return ids[len(prompt) :]


@contextmanager
def engine(words, folder, architecture="qwen3", kind="pblora", own_process="0", **settings):
    """An engine on a random model and its guide, the two models outside it, and prompts of many lengths."""
    model = model_of(words, architecture)
    model.save_pretrained(folder / "base")
    words.save_pretrained(folder / "base")
    adapter = adapted(model, kind)
    adapter.export_lora(ALPHA, folder / "guide")
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(3, 20, (32,), generator=generator).tolist()
    prompts = [torch.randint(7, len(words), (length,), generator=generator).tolist() for length in lengths]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", own_process)
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        llm = guided_llm(folder / "base", dtype="float32", enforce_eager=True, **settings)
        yield SimpleNamespace(
            llm=llm, model=model, adapter=adapter, prompts=prompts, folder=folder, guide=folder / "guide"
        )
        del llm
        gc.collect()


@pytest.fixture(
    scope="module", params=[("qwen3", "pblora", "0"), ("llama", "lora", "1")], ids=["in process", "own process"]
)
def world(request, vllm, words, tmp_path_factory):
    """With room for 8 pairs."""
    with engine(words, tmp_path_factory.mktemp("world"), *request.param, max_num_seqs=16) as made:
        yield made


def tokens_of(answers):
    return [list(answer.token_ids) for answer in answers]


def test_vllm_draws_the_tokens_of_two_models_and_with_a_weight_of_zero_those_of_the_base(world):
    expected = [two_models(world.model, world.adapter, prompt, 16) for prompt in world.prompts]
    alone = [two_models(world.model, world.adapter, prompt, 16, weight=0) for prompt in world.prompts]
    found = tokens_of(vllm_guided(world.llm, world.prompts, world.guide, W, max_new_tokens=16, ignore_eos=True))
    different = len({token for answer in expected for token in answer})
    guided = sum(own != other for own, other in zip(expected, alone, strict=True))
    assert found == expected
    assert different > 100 and guided > 25
    expected = [two_models(world.model, world.adapter, prompt, 8, weight=0) for prompt in world.prompts]
    found = vllm_guided(world.llm, world.prompts, world.guide, 0.0, max_new_tokens=8, ignore_eos=True)
    assert tokens_of(found) == expected


def test_a_lora_written_anew_is_read_anew(world):
    doubled, kept = world.folder / "anew", copy.deepcopy(world.adapter.state())
    world.adapter.export_lora(ALPHA, doubled)
    before = tokens_of(vllm_guided(world.llm, world.prompts[:4], doubled, W, max_new_tokens=8, ignore_eos=True))
    state = world.adapter.state()
    try:
        for key in state:
            if key.endswith(".B"):
                state[key].mul_(2)
        world.adapter.export_lora(ALPHA, doubled)
        expected = [two_models(world.model, world.adapter, prompt, 8) for prompt in world.prompts[:4]]
    finally:
        for key, value in kept.items():
            state[key].copy_(value)
    found = tokens_of(vllm_guided(world.llm, world.prompts[:4], doubled, W, max_new_tokens=8, ignore_eos=True))
    assert found == expected and found != before


def test_sampled_pairs_stay_in_step_and_a_seed_repeats_itself(world):
    sampling = {"max_new_tokens": 12, "temperature": 1.0, "top_p": 0.95, "ignore_eos": True}
    found = [
        tokens_of(vllm_guided(world.llm, world.prompts, world.guide, W, seed=seed, **sampling)) for seed in (3, 3, 4)
    ]
    assert found[0] == found[1] != found[2]


def test_texts_and_stop_strings_end_both_rows_at_once(world, words):
    text = words.decode(world.prompts[1])
    whole = vllm_guided(world.llm, [text] * 3, world.guide, W, max_new_tokens=12, ignore_eos=True)[0]
    stop = whole.text.split()[4]
    answers = vllm_guided(world.llm, [text] * 3, world.guide, W, max_new_tokens=12, ignore_eos=True, stop=[stop])
    assert {answer.finish_reason for answer in answers} == {"stop"}
    assert all(whole.text.startswith(answer.text) and stop not in answer.text for answer in answers)


def test_the_engine_stops_at_a_base_request_without_a_guide(world, vllm):
    """The last one of an engine: it is spent."""
    extra = {"guide_pair": "a", "guide_role": "base", "guide_weight": 1.0}
    params = vllm.SamplingParams(temperature=0, max_tokens=4, extra_args=extra)
    with pytest.raises(Exception, match="out of step|EngineCore"):
        world.llm.generate({"prompt_token_ids": [8, 9]}, params, use_tqdm=False)


def test_pairs_go_in_waves_where_the_cache_is_small_and_stop_where_it_parts_them(vllm, words, tmp_path):
    small = {"max_model_len": 64, "block_size": 32, "num_gpu_blocks_override": 9}
    with engine(words, tmp_path, **small) as world:
        expected = [two_models(world.model, world.adapter, prompt, 40) for prompt in world.prompts[:5]]
        found = vllm_guided(world.llm, world.prompts[:5], world.guide, W, max_new_tokens=40, ignore_eos=True)
        assert tokens_of(found) == expected

        lora = importlib.import_module("vllm.lora.request").LoRARequest("guide", 1, str(world.guide))
        requests = [
            ({"prompt_token_ids": prompt}, {"guide_pair": f"{place}", "guide_role": role, "guide_weight": W})
            for place, prompt in enumerate(world.prompts[:4])
            for role in ("base", "guide")
        ]
        sampling = [
            vllm.SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, extra_args=extra)
            for _, extra in requests
        ]
        with pytest.raises(RuntimeError, match="out of step: .* its guide is absent; create the engine again"):
            world.llm.generate([one for one, _ in requests], sampling, lora_request=[None, lora] * 4, use_tqdm=False)


def test_runner_v2_takes_its_class_and_refuses_the_other(vllm):
    loader = importlib.import_module("vllm.v1.worker.gpu.sample.logits_processor.loader")
    state = SimpleNamespace(
        **dict.fromkeys(("all_token_ids", "prompt_len", "prefill_len", "total_len")),
        **{"device": "cpu", "max_num_reqs": 4, "vocab_size": 3},
    )
    (processor,) = loader.build_custom_logits_processors(config(), state, False, [f"{pairs.__name__}:V2Processor"])
    processor.add_request(2, vllm.SamplingParams(temperature=0, extra_args=params("a").extra_args))
    processor.add_request(1, vllm.SamplingParams(temperature=0, extra_args=params("a", "guide").extra_args))
    rows = torch.tensor([1, 2])
    step = importlib.import_module("vllm.v1.worker.gpu.sample.logits_processor").LogitsContext(
        expanded_idx_mapping=rows,
        idx_mapping=rows,
        idx_mapping_np=rows.numpy(),
        expanded_local_pos=torch.zeros(2),
        input_ids=torch.tensor([7, 7]),
        pos=torch.tensor([3, 3]),
        seq_lens_upper_bound_np=np.array([4, 4]),
    )
    assert processor.apply(torch.eye(2, 3), step).tolist() == [[2.0, 1.0, 0.0]] * 2
    with pytest.raises(ValueError, match="not a subclass"):
        loader.build_custom_logits_processors(config(), state, False, [f"{pairs.__name__}:V1Processor"])
