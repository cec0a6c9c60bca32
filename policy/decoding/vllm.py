"""Guided decoding in vLLM: a base request and a guide request form a pair and sample the same tokens.

    log π̃(v | x, y_<t) = log π_base(v | x, y_<t) + w log π_guide(v | x, y_<t) - log Z
                                                               GenARM, Xu et al. 2025, arXiv:2410.08193, eq. 8

The guide is the base with a LoRA at one preference (`PreferenceAdapter.export_lora`), so one engine runs both. A logits
processor sets both rows of a pair to u = z_base + w z_guide; with equal seeds they sample equal tokens and stay in
step. A base row without its guide in the same step raises an error: it is never sampled without guidance.

`vllm_guided` submits pairs. To submit pairs yourself, give both requests the same prompt and parameters, with
`SamplingParams(extra_args={"guide_pair": "a", "guide_role": "base" or "guide", "guide_weight": w})`, give the guide a
LoRA request too, and start the engine with `--no-enable-chunked-prefill` and
`--logits-processors rewardlab.policy.decoding.vllm:V1Processor`; model runner V2, vLLM's default on GPUs since 0.31,
requires `V2Processor`.
"""

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...kernels.guided_sampler import mixed
from ...rm.errors import DataError, UsageError

ROLES = ("base", "guide")
INTERFACES = {
    "V1Processor": "vllm.v1.sample.logits_processor",
    "V2Processor": "vllm.v1.worker.gpu.sample.logits_processor",
}
CPU_SLOTS = "on a CPU, vLLM applies the LoRA of the last slot to rows without a LoRA (vllm-project/vllm#48421)"


def combine(
    logits: Float[Tensor, "N V"], pairs: Int[Tensor, "P 2"], weights: Float[Tensor, " P"]
) -> Float[Tensor, "N V"]:
    """Set the logits of each pair (base row, guide row) to u = z_base + w z_guide.

    Logits of -inf stay -inf. A guide with weight 0 is ignored.
    """
    base, guide = pairs.unbind(1)
    u = mixed(logits[base], logits[guide][:, None], weights[:, None].to(logits))
    return logits.index_copy(0, pairs.flatten(), u.repeat_interleave(2, 0))


# ---- pairs ----


class Member(NamedTuple):
    """Role of one request in a pair."""

    pair: str
    role: str
    weight: float
    """Guidance weight w. The weight in the base request is used."""


class LogitsRow(NamedTuple):
    """Row of a member in a step of the engine."""

    row: int
    member: Member
    length: int
    """Number of tokens so far, of prompt and completion."""
    last: int
    """The last token."""


def member_of(params: Any) -> Member | None:
    """Return the role of a request in its pair, from its sampling parameters. None for a request without pair.

    Raise `UsageError` for invalid values.
    """
    options = {key: value for key, value in (params.extra_args or {}).items() if key.startswith("guide_")}
    if not options:
        return None
    pair, role, weight = (options.get(key) for key in ("guide_pair", "guide_role", "guide_weight"))
    for name, value, holds, allowed in (
        ("guide_pair", pair, isinstance(pair, str) and pair, "a string that both requests of the pair share"),
        ("guide_role", role, role in ROLES, "base or guide"),
        ("guide_weight", weight, isinstance(weight, int | float) and math.isfinite(weight), "a finite number"),
        ("n", params.n, params.n == 1, "1; submit a pair for every completion"),
        ("seed", params.seed, params.seed is not None or not params.temperature, "a number at a temperature above 0"),
    ):
        if not holds:
            raise UsageError(f"pair {pair!r}: {name} must be {allowed}, got {value!r}")
    return Member(str(pair), str(role), float(weight or 0))


def in_step(rows: Iterable[LogitsRow]) -> list[tuple[int, int, float]]:
    """Return base row, guide row and weight of every pair; raise an error if a guide is missing or out of step.

    A guide row without its base row is ignored: the base row has ended, or the error is raised at its next token.
    """
    pairs: dict[tuple[str, str], LogitsRow] = {}
    for pair_row in rows:
        key = pair_row.member[:2]
        if key in pairs:
            raise RuntimeError(f"pair '{key[0]}' has two {key[1]} rows; give every pair of requests its own guide_pair")
        pairs[key] = pair_row
    bases = [row for (_, role), row in pairs.items() if role == "base"]
    return [_rows_in_step(base, pairs.get((base.member.pair, "guide"))) for base in bases]


def _rows_in_step(base: LogitsRow, guide: LogitsRow | None) -> tuple[int, int, float]:
    if guide is None or base[2:] != guide[2:]:
        state = "is absent" if guide is None else f"is at {guide.length} tokens, the last {guide.last}"
        raise RuntimeError(
            f"pair '{base.member.pair}' is out of step: base at {base.length} tokens, the last {base.last}; its guide "
            f"{state}; create the engine again, with room for both requests, and submit both at once with the same "
            "prompt and parameters (as `vllm_guided` does)"
        )
    return base.row, guide.row, base.member.weight


def _combine_pairs(logits: Float[Tensor, "N V"], pair_rows: Sequence[LogitsRow]) -> Float[Tensor, "N V"]:
    rows = in_step(pair_rows)
    if not rows:
        return logits
    pairs = torch.tensor([row[:2] for row in rows], device=logits.device)
    return combine(logits, pairs, torch.tensor([row[2] for row in rows], device=logits.device))


# ---- vLLM's two interfaces ----


class GuidedPairs:
    """Common base class of the logits processors for vLLM's two model runners."""

    def __init__(self, vllm_config: Any, *_: Any):
        scheduler = vllm_config.scheduler_config
        if scheduler.enable_chunked_prefill or scheduler.long_prefill_token_threshold:
            # a row with a partly processed prompt cannot be told from one with a complete prompt
            raise UsageError("pairs require each prompt in one prefill; start vLLM with enable_chunked_prefill=False")
        if vllm_config.speculative_config is not None:
            raise UsageError("pairs sample one token per step; start vLLM without speculative decoding")
        if vllm_config.device_config.device_type == "cpu" and vllm_config.lora_config.max_loras < 2:
            raise UsageError(f"{CPU_SLOTS}; start it with max_loras=2")

    @classmethod
    def validate_params(cls, params: Any) -> None:
        """Raise an error if the pair parameters of a request are invalid."""
        member_of(params)


class V1Pairs(GuidedPairs):
    """Pairs under vLLM's model runner V1, which reports rows that are added, moved and removed."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool):
        super().__init__(vllm_config)
        self.members: dict[int, tuple[Member, list[int], list[int]]] = {}
        """Row -> member, prompt and the growing completion."""

    def is_argmax_invariant(self) -> bool:
        """Return False: guidance changes greedy rows too."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Apply the removed, added and moved rows of a step."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.members.pop(row, None)
        for row, params, prompt, completion in batch_update.added:
            member = member_of(params)
            self._set_member(row, member and (member, prompt, completion))
        for source, target, direction in batch_update.moved:
            moving, standing = self.members.pop(source, None), self.members.pop(target, None)
            self._set_member(target, moving)
            if direction.name == "SWAP":
                self._set_member(source, standing)

    def apply(self, logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        """Return the step's logits with its pairs combined."""
        rows = [
            LogitsRow(row, member, len(prompt) + len(completion), (completion or prompt)[-1])
            for row, (member, prompt, completion) in self.members.items()
        ]
        return _combine_pairs(logits, rows)

    def _set_member(self, row: int, entry: Any) -> None:
        """Set the member of a row, or remove the row if `entry` is None."""
        if entry is None:
            self.members.pop(row, None)
        else:
            self.members[row] = entry


class V2Pairs(GuidedPairs):
    """Pairs under vLLM's model runner V2, where a request keeps its slot and every step lists the slots of its rows."""

    def __init__(self, vllm_config: Any, req_states: Any):
        super().__init__(vllm_config)
        self.members: dict[int, Member] = {}
        """Members by slot."""

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Assign a request to a slot, replacing the previous one."""
        self.members.pop(req_idx, None)
        member = member_of(sampling_params)
        if member is not None:
            self.members[req_idx] = member
        return member is not None

    def apply(self, logits: Float[Tensor, "N V"], ctx: Any) -> Float[Tensor, "N V"]:
        """Return the step's logits with its pairs combined; reading the last tokens synchronises with the device."""
        slots, lengths = ctx.idx_mapping_np.tolist(), ctx.seq_lens_upper_bound_np.tolist()
        if self.members.keys().isdisjoint(slots):
            return logits
        rows = enumerate(zip(slots, lengths, ctx.input_ids.tolist(), strict=True))
        members = self.members
        guided = [LogitsRow(row, members[slot], length, last) for row, (slot, length, last) in rows if slot in members]
        return _combine_pairs(logits, guided)


def __getattr__(name: str) -> type:
    """Create `V1Processor` or `V2Processor` as a subclass of vLLM's class, which is imported only on access."""
    if name not in INTERFACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    processors = {"V1Processor": V1Pairs, "V2Processor": V2Pairs}[name]
    interface = _import_vllm(INTERFACES[name]).LogitsProcessor
    globals()[name] = type(name, (processors, interface), {"__module__": __name__, "__doc__": processors.__doc__})
    return globals()[name]


def _import_vllm(module: str = "vllm") -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"no module {error.name}; pip install 'rewardlab[vllm]' for a GPU, or see `make test-vllm` for a CPU"
        ) from error


# ---- engine and completions ----


def guided_llm(model: str | Path, *, max_lora_rank: int = 16, **settings: Any) -> Any:
    """Create a `vllm.LLM` for `vllm_guided`. `settings` are arguments of vLLM.

    `max_num_batched_tokens` limits the number of simultaneous pairs.
    """
    vllm = _import_vllm()
    settings |= {"model": str(model), "enable_lora": True, "max_lora_rank": max_lora_rank}
    settings |= {"enable_chunked_prefill": False}
    if _import_vllm("vllm.platforms").current_platform.is_cpu():
        settings = {"max_loras": 2} | settings
    second = vllm.EngineArgs(**settings).create_engine_config().use_v2_model_runner
    return vllm.LLM(logits_processors=[f"{__name__}:{'V2Processor' if second else 'V1Processor'}"], **settings)


def vllm_guided(
    llm: Any,
    prompts: Sequence[str | Sequence[int]],
    lora_path: Path,
    weight: float = 1.0,
    *,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    seed: int = 0,
    **sampling: Any,
) -> list[Any]:
    """Return a guided completion of every prompt, in order, as vLLM's `CompletionOutput`.

    Its fields include text, token_ids and finish_reason. `llm` comes from `guided_llm`, `lora_path` from `export_lora`
    of an adapter without shift. Prompts are rendered texts or token ids. Temperature 0 is greedy; prompt i uses seed +
    i. `sampling` is passed to vLLM's `SamplingParams`: top_p, top_k, min_p, stop, ignore_eos. Pairs are submitted in
    waves that fit the engine at full length, so that no request starts without its partner or is preempted.
    """
    engine = llm.llm_engine
    if engine.has_unfinished_requests():
        raise UsageError("the engine has unfinished requests; submit guided requests after they end")
    lora = _lora_request(lora_path)
    if engine.vllm_config.device_config.device_type == "cpu":
        for other in {*engine.list_loras()} - {lora.lora_int_id}:  # this one then gets the first slot: see `CPU_SLOTS`
            engine.remove_lora(other)
    prompts = [_prompt_ids(llm.get_tokenizer(), prompt) for prompt in prompts]
    completions: dict[int, Any] = {}
    for wave in waves([*map(len, prompts)], max_new_tokens, Capacity.of(engine.vllm_config)):
        requests = []
        for request_index in wave:
            options = {"max_tokens": max_new_tokens, "temperature": temperature, "seed": seed + request_index}
            requests += _pair(prompts[request_index], f"{request_index}", weight, options | sampling, lora)
        completions |= zip(wave, _run(llm, requests)[::2], strict=True)
    return [completions[index] for index in range(len(prompts))]


def _prompt_ids(tokenizer: Any, prompt: str | Sequence[int]) -> list[int]:
    """Return the token ids of a prompt; a rendered text that begins with BOS gets no second one."""
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else [*prompt]
    return ids[1:] if isinstance(prompt, str) and ids[:2] == [tokenizer.bos_token_id] * 2 else ids


def _pair(prompt: list[int], pair: str, weight: float, sampling: dict[str, Any], lora: Any) -> Iterator[tuple]:
    """Yield prompt, parameters and LoRA of base and guide."""
    for role in ROLES:
        extra = {"guide_pair": pair, "guide_role": role, "guide_weight": weight}
        params = _import_vllm().SamplingParams(**sampling, extra_args=extra)
        yield {"prompt_token_ids": prompt}, params, lora if role == "guide" else None


def _run(llm: Any, requests: Sequence[tuple]) -> list[Any]:
    """Run requests so that all start in the same step: the engine is paused until the last one is submitted."""
    prompts, params, loras = zip(*requests, strict=True)
    llm.sleep(level=0, mode="keep")
    try:
        llm.enqueue([*prompts], [*params], lora_request=[*loras], use_tqdm=False)
    finally:
        llm.wake_up(tags=["scheduling"])
    return [output.outputs[0] for output in llm.wait_for_completion(use_tqdm=False)]  # in the order of queueing


def _lora_request(folder: Path) -> Any:
    """Create a LoRA request with an id from path and modification time: vLLM caches weights by id."""
    config, weights = Path(folder) / "adapter_config.json", Path(folder) / "adapter_model.safetensors"
    try:
        biased = json.loads(config.read_text(encoding="utf-8")).get("lora_bias")
        name = f"{weights.resolve()} {weights.stat().st_mtime_ns}"
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} holds no PEFT LoRA ({error}); write one with export_lora") from error
    if biased:
        raise DataError(f"{folder} has a LoRA bias, which vLLM does not support; export an adapter without shift")
    return _import_vllm("vllm.lora.request").LoRARequest(name, zlib.crc32(name.encode()) % (2**31 - 1) + 1, str(folder))


# ---- waves ----


class Capacity(NamedTuple):
    """Capacity of an engine for simultaneous requests."""

    rows: int
    tokens: int
    """Maximum number of tokens per step."""
    blocks: int
    """Blocks of the KV cache."""
    block: int
    """Tokens per block."""
    context: int

    @classmethod
    def of(cls, config: Any) -> "Capacity":
        """Return the capacity of a running engine; vLLM reserves one block."""
        scheduler, cache = config.scheduler_config, config.cache_config
        rows, tokens = scheduler.max_num_seqs, scheduler.max_num_batched_tokens
        return cls(rows, tokens, cache.num_gpu_blocks - 1, cache.block_size, config.model_config.max_model_len)

    def less(self, prompt: int, completion: int) -> "Capacity":
        """Return the remaining capacity beside one more pair, with completions of maximum length."""
        blocks = math.ceil(min(prompt + completion, self.context) / self.block)
        return self._replace(rows=self.rows - 2, tokens=self.tokens - 2 * prompt, blocks=self.blocks - 2 * blocks)

    @property
    def enough(self) -> bool:
        """Whether no resource is exceeded."""
        return min(self.rows, self.tokens, self.blocks) >= 0


def waves(prompts: Sequence[int], completion: int, capacity: Capacity) -> Iterator[list[int]]:
    """Group prompts, given by their lengths, into consecutive waves whose pairs fit together; yield their indices.

    >>> list(waves([3, 3, 5], 2, Capacity(rows=8, tokens=16, blocks=99, block=16, context=64)))
    [[0, 1], [2]]
    """
    wave, remaining = [], capacity
    for index, prompt in enumerate(prompts):
        if not capacity.less(prompt, completion).enough:
            raise UsageError(
                f"prompt {index} has {prompt} tokens, its completion up to {completion}; such a pair exceeds "
                f"the engine's {capacity}; raise max_num_batched_tokens, max_num_seqs or the KV cache"
            )
        if not remaining.less(prompt, completion).enough:
            yield wave
            wave, remaining = [], capacity
        wave, remaining = [*wave, index], remaining.less(prompt, completion)
    if wave:
        yield wave
