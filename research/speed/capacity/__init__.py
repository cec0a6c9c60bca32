"""Formulas of `rewardlab plan`, compared with what PyTorch counts and allocates.

Small models of real architectures, with random weights, make a training step after the optimizer's first, or decode a
batch, on a CPU. Operations are those of `torch.utils.flop_counter`; bytes are all storages alive at the peak, including
weights and optimizer states.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from transformers import AutoConfig, AutoModelForCausalLM

from ....kernels.policy_loss import ClipRule, policy_loss
from ....policy.advantages._groups import bounds_of_rows
from ....policy.decoding.engines import Engine, SeparateModels, SharedBackbone, language_model
from ....policy.decoding.guided import decode
from ....policy.step.forward import CompletionBatch, install
from ....rm.adapters.adapter import attach
from ....rm.adapters.settings import AdapterSettings
from ....rm.backbones.forward_hooks import cache_argument
from ....rm.backbones.loading import classifier_from_config, share_weights
from ....rm.backbones.logprobs import completion_logprobs
from ....rm.backbones.sequence_scores import sequence_scores
from ....rm.capacity.choices import PRECISIONS
from ....rm.capacity.config_shapes import shape_of
from ....rm.capacity.flops import Adapters, HeadOutputs, forward_flops, training_flops
from ....rm.capacity.jobs import Decoding, Guiding, decoding_bytes
from ....rm.capacity.memory import Step, step_parts
from ....rm.io.markdown import table
from ....rm.losses.bradley_terry import preference_nll
from .._scripts import argument_parser, machine, write
from ..decoding import Bench
from ..decoding import Size as DecodingSize
from .live_bytes import LiveBytes

QKV = ("q_proj", "k_proj", "v_proj")
KINDS = ("scalar", "scalar lora", "arm", "arm lora", "arm pblora", "arm moslora", "policy", "policy lora")
GUIDES: tuple[Guiding, ...] = ("none", "shared", "late", "separate")
BOUNDS = {"operations": 0.02, "bytes": 0.15}
"""Largest acceptable relative error of a formula."""
NAMES = ("first", "second")
aten = torch.ops.aten


@dataclass(frozen=True)
class Size:
    """Sizes of the small models and of a micro-batch."""

    layers: int = 4
    width: int = 128
    mlp: int = 384
    heads: int = 8
    kv_heads: int = 2
    vocabulary: int = 600
    rank: int = 8
    rows: int = 8
    length: int = 64
    prompt: int = 24


class Case(NamedTuple):
    """Model kind, architecture and training settings of one comparison."""

    kind: str
    architecture: str = "qwen3"
    precision: str = "float32"
    checkpointing: bool = False
    attention: str = "sdpa"
    size: Size = Size()

    @property
    def name(self) -> str:
        """Return the case's name in the table."""
        return f"{self.kind}, {self.architecture}, {self.precision}" + ", checkpointing" * self.checkpointing


class Built(NamedTuple):
    """A model, its loss on one batch, and their description for the formulas."""

    model: Any
    loss: Callable[[], Tensor]
    step: Step
    shape: Any


# ---- models ----


def configuration(case: Case) -> Any:
    """Return the architecture's configuration, with an untied output head for Llama."""
    size = case.size
    return AutoConfig.for_model(
        case.architecture,
        vocab_size=size.vocabulary,
        hidden_size=size.width,
        intermediate_size=size.mlp,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.width // size.heads,
        max_position_embeddings=4096,
        tie_word_embeddings=case.architecture != "llama",
        attn_implementation=case.attention,
        pad_token_id=0,
    )


def built(case: Case) -> Built:
    """Build a case's model and batch; the first row is shorter than the others, so that there is padding."""
    size, kind, config = case.size, case.kind, configuration(case)
    dtype = torch.bfloat16 if case.precision == "bfloat16" else torch.float32
    shape = shape_of(config, case.architecture)
    torch.manual_seed(0)
    tokens = torch.randint(1, size.vocabulary, (size.rows, size.length))
    attention = torch.ones_like(tokens, dtype=torch.bool)
    attention[0, -5:] = False
    scalar = kind.startswith("scalar")
    model: Any = (
        classifier_from_config(config, ("reward",), 0).to(dtype)
        if scalar
        else AutoModelForCausalLM.from_config(config, dtype=dtype)
    )
    model, adapters, before = _adapted(model, kind, size)
    answer = attention[:, size.prompt :]
    top = HeadOutputs(scores=1) if scalar else HeadOutputs(head_tokens=int(answer.sum()))
    if case.checkpointing:
        model.gradient_checkpointing_enable()
    model.train()
    losses = {"scalar": _scalar_loss, "arm": _answer_loss, "policy": _policy_loss}
    step = Step(size.rows, size.length, top, PRECISIONS[case.precision], adapters, True, case.checkpointing, "cpu")
    of_batch = losses[kind.partition(" ")[0]](model, tokens, attention, size.prompt)

    def loss() -> Tensor:
        before()
        with torch.autocast("cpu", torch.bfloat16, enabled=case.precision == "mixed"):
            return of_batch()

    return Built(model, loss, step, shape)


def _adapted(model: Any, kind: str, size: Size) -> tuple[Any, Adapters | None, Callable[[], object]]:
    """Return the model with the adapter of its kind, and a function to call before each forward."""
    what, _, adapter = kind.partition(" ")
    if not adapter:
        return model, None, lambda: None
    if what != "arm":
        task = "SEQ_CLS" if what == "scalar" else "CAUSAL_LM"
        lora = LoraConfig(r=size.rank, target_modules="all-linear", task_type=task)
        return get_peft_model(model, lora), Adapters(size.rank), lambda: None
    objectives = NAMES[: 1 if adapter == "lora" else 2]
    settings = AdapterSettings(adapter, objectives, rank=size.rank, embedding="random")  # type: ignore[arg-type]
    over = attach(model, settings)
    adapters = Adapters(size.rank, QKV, 0, adapter, len(objectives), size.width)
    equal = dict.fromkeys(objectives, 1 / len(objectives))
    return over.model, adapters, lambda: over.set_preference(equal) if len(objectives) > 1 else None


def _scalar_loss(model: Any, tokens: Tensor, attention: Tensor, prompt: int) -> Callable[[], Tensor]:
    return lambda: _pairs(sequence_scores(model, tokens, attention)[:, 0])


def _answer_loss(model: Any, tokens: Tensor, attention: Tensor, prompt: int) -> Callable[[], Tensor]:
    start = torch.full((len(tokens),), prompt)
    return lambda: _pairs(completion_logprobs(model, tokens, attention, start).sum(1))


def _pairs(rewards: Tensor) -> Tensor:
    chosen, rejected = rewards.float().chunk(2)
    return preference_nll(chosen - rejected, torch.ones_like(chosen)).mean()


def _policy_loss(model: Any, tokens: Tensor, attention: Tensor, prompt: int) -> Callable[[], Tensor]:
    """Return the loss of `PolicyTrainer`: PPO's clip rule on the log-probabilities of one forward."""
    install(model.get_base_model() if hasattr(model, "get_base_model") else model)
    response = attention[:, prompt:]
    answers = CompletionBatch(tokens, attention, torch.full((len(tokens),), prompt), response)
    weights = response / response.sum()
    rule = ClipRule((0.8, 1.2), (0.8, 1.2))

    def loss() -> Tensor:
        logprob = model(completions=answers).logprob
        flat = logprob.flatten(), logprob.detach().flatten(), torch.ones(logprob.numel()), weights.flatten()
        return policy_loss(*flat, bounds_of_rows(logprob), rule=rule, mask=response.flatten()).total

    return loss


# ---- counts and formulas ----


def counter() -> FlopCounterMode:
    """Return PyTorch's FLOP counter, extended by the CPU's attention and by in-place `addmm_`."""
    return FlopCounterMode(
        display=False,
        custom_mapping={
            aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
            aten._scaled_dot_product_flash_attention_for_cpu_backward: (
                lambda gradient, q, k, v, *_, **__: sdpa_backward_flop_count(gradient, q, k, v)
            ),
            aten.addmm_: lambda _, left, right, *__, **___: 2 * left[0] * left[1] * right[1],
        },
    )


def operations(run: Callable[[], object]) -> int:
    """Count the FLOPs of a call's matrix products."""
    with counter() as counted:
        run()
    return counted.get_total_flops()


def training_operations(case: Case) -> dict[str, tuple[int, int]]:
    """Return formula and count of the operations of a forward, and of forward and backward."""
    _, loss, step, shape = built(case)
    loss()  # selects the output head, once
    fused = case.attention == "sdpa"
    batch = (shape, step.rows, step.length, step.top, step.adapters)
    both = training_flops(*batch, fused=fused, checkpointing=step.checkpointing)
    return {
        "forward": (forward_flops(*batch), operations(loss)),
        "forward and backward": (both, operations(lambda: loss().backward())),
    }


def training_bytes(case: Case) -> tuple[int, int]:
    """Return formula and measured peak of the bytes of an optimizer step after the first."""
    model, loss, step, shape = built(case)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], fused=True)

    def move() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    move()
    states = [value for state in optimizer.state.values() for value in state.values()]
    with LiveBytes([*model.parameters(), *states]) as live:
        live.restart()
        move()
    return sum(step_parts(shape, step).values()), live.peak


def step_operations(case: Case, cached: int = 40) -> tuple[int, int]:
    """Return formula and count of the operations of one token per row after `cached` positions."""
    size, config = case.size, configuration(case)
    model = AutoModelForCausalLM.from_config(config).eval()
    tokens = torch.zeros(size.rows, cached, dtype=torch.long)
    with torch.inference_mode():
        cache = cache_argument(model)
        inputs = {cache: model(tokens, use_cache=True, logits_to_keep=1)[cache]}
        counted = operations(lambda: model(tokens[:, :1], **inputs, use_cache=True))
    shape = shape_of(config, case.architecture)
    return forward_flops(shape, size.rows, 1, HeadOutputs(size.rows), cached=cached), counted


def decoded_bytes(guiding: Guiding, rows: int, size: DecodingSize) -> tuple[int, int]:
    """Return formula and measured peak of the bytes of decoding a batch."""
    bench = Bench(size, "cpu")
    shape, late = shape_of(bench.model.config, "bench"), size.layers * 3 // 4
    adapters = Adapters(size.rank, QKV, late if guiding == "late" else 0, "moslora", 2, size.hidden)
    work = Decoding(shape, rows, 0, size.tokens, 2, guiding, None if guiding == "none" else adapters)
    engine: Engine
    if guiding == "none":
        engine = SeparateModels(bench.base())
    elif guiding == "separate":
        engine = SeparateModels(bench.base(), bench.guide(model=share_weights(bench.other)))
        work = work._replace(guide=shape)
    else:
        engine = SharedBackbone(bench.guide(from_layer=adapters.from_layer), late=guiding == "late")
    requests = bench.requests(rows)
    guides = engine.guide_models if isinstance(engine, SeparateModels) else []
    weights = [weight for model in (engine.base, *guides) for weight in language_model(model).parameters()]
    with LiveBytes(weights) as live:
        live.restart()
        prompt = decode(engine, requests, progress=False)[0].prompt_tokens
    return sum(decoding_bytes(work._replace(prompt=prompt)).values()), live.peak


# ---- report ----


def row(what: str, name: str, formula: int, counted: int) -> dict[str, Any]:
    """Return the table row of one comparison."""
    return {"what": what, "case": name, "formula": formula, "counted": counted, "off": formula / counted - 1}


def measure(log: Callable[[str], object]) -> dict[str, Any]:
    """Compare all cases: operations in float32, bytes in every precision, and decoding."""
    rows = []
    for kind, architecture, checkpointing in product(KINDS, ("qwen3", "llama"), (False, True)):
        case = Case(kind, architecture, checkpointing=checkpointing)
        rows += [
            row(f"operations, {quantity}", case.name, *formula_and_count)
            for quantity, formula_and_count in training_operations(case).items()
        ]
        for precision in PRECISIONS:
            case = case._replace(precision=precision)
            rows.append(row("bytes of a step", case.name, *training_bytes(case)))
        log(case.name)
    for architecture in ("qwen3", "llama"):
        rows.append(row("operations, a token", architecture, *step_operations(Case("policy", architecture))))
    size = DecodingSize(layers=8, hidden=192, vocabulary=500, rank=4, tokens=64, prompt=32)
    for guiding, number in product(GUIDES, (4, 16)):
        rows.append(row("bytes of decoding", f"guide {guiding}, {number} rows", *decoded_bytes(guiding, number, size)))
    return {"rows": rows, "size": asdict(Size()), "decoding": asdict(size), "bounds": BOUNDS}


def worst(rows: Sequence[Mapping[str, Any]], bound: str) -> float:
    """Return the largest relative error of a formula."""
    return max(abs(row["off"]) for row in rows if row["what"].startswith(bound))


def markdown(measurements: Mapping[str, Any]) -> str:
    """Format the table as Markdown, with the largest error of each formula."""
    lines = [
        [row["what"], row["case"], f"{row['formula']:,}", f"{row['counted']:,}", f"{row['off']:+.2%}"]
        for row in measurements["rows"]
    ]
    ends = [
        f"{name}: at most {worst(measurements['rows'], name):.2%} off, allowed {bound:.0%}"
        for name, bound in BOUNDS.items()
    ]
    header = ["what", "case", "formula", "counted", "off"]
    return "\n".join([table(header, lines, right=header[2:]), "", *ends, "", f"{measurements['seconds']:.0f} s"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a formula's error exceeds its bound."""
    options = argument_parser(__doc__).parse_args(arguments)
    start = time.perf_counter()
    measurements = measure(lambda name: print(name, flush=True))
    measurements |= {"seconds": round(time.perf_counter() - start, 1), "machine": machine("cpu")}
    measurements["machine"] |= {"dtype": "as told"}
    write(measurements, options.output)
    print(markdown(measurements))
    return int(any(worst(measurements["rows"], name) > bound for name, bound in BOUNDS.items()))
