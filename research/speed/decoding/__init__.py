"""Time per token of guided decoding, compared with plain decoding.

A backbone with random weights generates completions of fixed length. The variants alternate every 16 tokens in one
process, and ratios are computed within a round, so that the load of other processes affects all of them.

    plain      the base model alone
    2N rows    the base model alone on twice the rows: the time of a guide without further cost
    shared     base model and adapter on one backbone, one forward of 2N rows
    late       the same with only the last quarter of the layers adapted, which alone process 2N rows
    separate   base model and guide as two models with separate weights
    loop       the published implementation: two models, prompt by prompt, synchronizing at every token
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedTokenizerFast

from ....benchmarks.garden.models import SPECIALS, TEMPLATE
from ....policy.decoding.engines import (
    DecodingModel,
    Engine,
    SeparateModels,
    SharedBackbone,
    decoding_model,
    language_model,
    prompts_of,
)
from ....policy.decoding.guided import POLL, TextPiece, decode, stream
from ....policy.decoding.requests import Request
from ....rm.adapters.adapter import attach
from ....rm.adapters.settings import AdapterSettings
from ....rm.backbones.forward_hooks import cache_argument
from ....rm.backbones.loading import share_weights
from ....rm.types import user_turn
from .._scripts import argument_parser, machine, seconds, write

TURN = 16  # tokens, as many as between two synchronizations with a GPU
TITLES = {"objectives": "objectives, N=2, ms per token", "public loop": "8 prompts, ms per token"}
Rounds = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Size:
    """Sizes of the backbone and of the requests; by default a backbone of 285 million parameters."""

    layers: int = 16
    hidden: int = 1152
    vocabulary: int = 32_000
    rank: int = 8
    tokens: int = 80
    """Tokens of every completion; the first 16 are not timed."""
    prompt: int = 12
    """Words of every prompt."""
    rows: tuple[int, ...] = (1, 2, 8)


BACKBONES = {
    "small": Size(),
    "1b": Size(layers=16, hidden=2048, vocabulary=128_256, tokens=48, rows=(1, 2, 32)),
    "8b": Size(layers=36, hidden=4096, vocabulary=151_936, tokens=48, rows=(1, 2, 32)),
    "toy": Size(layers=4, hidden=192, vocabulary=500, tokens=32, prompt=4, rows=(1, 2)),
}
"""Sizes by name: 285 million parameters, about those of Llama 3.2 1B and of Qwen 3 8B, and of a rehearsal."""


# ---- models and requests ----


class Bench:
    """Models of all variants; adapters on the first backbone share its weights."""

    def __init__(self, size: Size, device: str):
        self.size = size
        self.words = tokenizer(size.vocabulary)
        with torch.device(device):  # the weights of a big model are never on the host
            self.model, self.other = backbone(size), backbone(size)

    def base(self) -> DecodingModel:
        """Return the first backbone alone, as a model that decodes one batch at a time."""
        return decoding_model(share_weights(self.model), self.words)

    def guide(self, objectives: int = 2, *, from_layer: int = 0, model: Any = None) -> DecodingModel:
        """Return a guide with a MoSLoRA on q, k and v, with random weights in place of trained ones."""
        names = tuple(f"objective {number}" for number in range(1, objectives + 1))
        rank, layer = self.size.rank, from_layer
        settings = AdapterSettings("moslora", names, embedding="random", rank=rank, from_layer=layer)
        model = share_weights(self.model) if model is None else model
        adapter = attach(model, settings)
        for key, weight in adapter.state().items():
            if key.endswith(".B"):
                torch.nn.init.normal_(weight, std=0.02)
        return decoding_model(model, self.words, adapter)

    def requests(self, rows: int, objectives: int = 2, **settings: Any) -> list[Request]:
        """Generate requests with different prompts of equal length."""
        names = [f"objective {number}" for number in range(1, objectives + 1)]
        words = np.random.default_rng(0).integers(self.size.vocabulary - 100, size=(rows, self.size.prompt))
        settings = {"max_new_tokens": self.size.tokens, "ignore_eos": True} | settings
        return [
            Request(
                user_turn(" ".join(f"w{word}" for word in row)),
                dict.fromkeys(names, 1 / objectives),
                seed=seed,
                **settings,
            )
            for seed, row in enumerate(words)
        ]


def tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """Build a tokenizer with one token for each word w0, w1, ..."""
    names = (*SPECIALS, *(f"w{number}" for number in range(vocabulary - len(SPECIALS))))
    words = Tokenizer(WordLevel({name: index for index, name in enumerate(names)}, unk_token="<unk>"))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>", chat_template=TEMPLATE)


def backbone(size: Any, dtype: torch.dtype = torch.bfloat16) -> Any:
    """Build a Qwen 3 model with random weights; of `size`, layers, hidden and vocabulary are used."""
    head = 128 if size.hidden >= 4096 else 64
    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.hidden // head,
        num_key_value_heads=8 if size.hidden % 192 else size.hidden // 192,
        head_dim=head,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


# ---- measurement ----


def take_turns(turn: Callable[[], Mapping[str, float]], budget: float) -> Iterator[dict[str, list[float]]]:
    """Yield the numbers of every variant so far after each round; but for one, no round goes beyond `budget` seconds.

    The first round warms up and counts only where there is no time for another.
    """
    begin, rounds = time.perf_counter(), [turn()]
    yield {name: [number] for name, number in rounds[0].items()}
    last = time.perf_counter() - begin
    while (start := time.perf_counter()) + last < begin + budget:
        rounds.append(turn())
        last = time.perf_counter() - start
        yield {name: [row[name] for row in rounds[1:]] for name in rounds[0]}


def round_of(runs: Mapping[str, Callable[[], float]]) -> Callable[[], dict[str, float]]:
    """Return a round that runs every variant once."""
    return lambda: {name: run() for name, run in runs.items()}


def batch_milliseconds(engine: Engine, requests: Sequence[Request], device: str) -> Callable[[], float]:
    """Return a function that measures the milliseconds of decoding the requests in one batch."""
    return lambda: 1000 * seconds(lambda: decode(engine, requests, progress=False), device)


def per_token(asked: Mapping[str, tuple[Engine, Sequence[Request]]], device: str) -> Callable[[], dict[str, float]]:
    """Return a round in which the engines alternate every 16 tokens: milliseconds per token after the first 16.

    Other load of the machine affects all engines alike, and 16 tokens are enough to warm the caches.
    """

    def advance(pieces: Iterator[TextPiece], number: int) -> None:
        for _ in range(number):
            next(pieces)

    def run() -> dict[str, float]:
        tokens = min(request.max_new_tokens for _, requests in asked.values() for request in requests)
        streams = {name: (stream(*batch), len(batch[1])) for name, batch in asked.items()}
        spent = dict.fromkeys(streams, 0.0)
        for turn in range(tokens // TURN):
            for name, (pieces, rows) in streams.items():
                number = rows * TURN // POLL.get(device, TURN)
                took = seconds(partial(advance, pieces, number), device)
                spent[name] += took if turn else 0.0  # the first turn includes the prefill
        for pieces, _ in streams.values():
            pieces.close()
        return {name: 1000 * total / (tokens - TURN) for name, total in spent.items()}

    return run


def summary(rounds: Rounds, against: str) -> dict[str, Any]:
    """Compute median, p10 and p90 of every variant and of its ratio to `against` within a round; keep all rounds."""

    def spread(values: Any) -> dict[str, float]:
        low, middle, high = np.percentile(values, [10, 50, 90]).round(4).tolist()
        return {"median": middle, "p10": low, "p90": high}

    return {
        name: {"ms": spread(values), "ratio": spread(np.divide(values, rounds[against])), "rounds": list(values)}
        for name, values in rounds.items()
    }


# ---- experiments ----


def variants(bench: Bench, device: str, budget: float) -> Iterator[dict[str, Any]]:
    """Measure decoding and prefill of the four variants, and yield the measurements after every round."""
    guide, late = bench.guide(), bench.guide(from_layer=bench.size.layers * 3 // 4)
    separate = SeparateModels(bench.base(), bench.guide(model=share_weights(bench.other)))
    engines: dict[str, Engine] = {
        "plain": SeparateModels(bench.base()),
        "shared": SharedBackbone(guide),
        "late": SharedBackbone(late, late=True),
        "separate": separate,
    }
    measurements, share = {}, budget / len(bench.size.rows) / 2
    for rows in bench.size.rows:
        asked, short = bench.requests(rows), bench.requests(rows, max_new_tokens=1)
        twice = {"2N rows": (SeparateModels(bench.base()), bench.requests(2 * rows))}
        decoding = per_token({name: (engine, asked) for name, engine in engines.items()} | twice, device)
        prefill = round_of({name: batch_milliseconds(engine, short, device) for name, engine in engines.items()})
        results = measurements[f"N={rows}"] = {}
        for kind, turn, part in (("ms per token", decoding, 1.9), ("ms of prefill and first token", prefill, 0.1)):
            for rounds in take_turns(turn, part * share):
                results[kind] = summary(rounds, "plain")
                yield measurements


def objectives(bench: Bench, device: str, budget: float, most: int = 5) -> Iterator[dict[str, Any]]:
    """Measure one adapter for k = 1 to 5 objectives, two rows: forwards and adapter FLOPs per token, and time."""
    guides = {k: bench.guide(k) for k in range(1, most + 1)}
    engines = {k: SharedBackbone(guide) for k, guide in guides.items()}
    timed = per_token({f"k={k}": (engine, bench.requests(2, k)) for k, engine in engines.items()}, device)
    *_, rounds = take_turns(timed, budget)
    times = summary(rounds, "k=1")
    for k, engine in engines.items():
        engine.counters.forwards = 0
        decode(engine, bench.requests(2, k), progress=False)
        times[f"k={k}"]["forwards per token"] = engine.counters.forwards / bench.size.tokens
        times[f"k={k}"]["adapter FLOPs per row and token"] = adapter_flops(guides[k])
    yield times


def adapter_flops(guide: DecodingModel) -> int:
    """Count the FLOPs of the products with A and B and of the modulation between them; a multiply-add counts as two."""
    adapter = guide.adapter
    assert adapter is not None
    rows = adapter.modulations(torch.full((1, len(adapter.objectives)), 1 / len(adapter.objectives)))
    return sum(
        2 * (layer.lora_A["default"].weight.numel() + layer.lora_B["default"].weight.numel())
        + sum(modulation.numel() for modulation in rows[name] if modulation is not None)
        for name, layer in adapter.layers.items()
    )


def compare_with_public_loop(bench: Bench, device: str, budget: float, prompts: int = 8) -> Iterator[dict[str, Any]]:
    """Measure milliseconds per token of 8 completions: by the published loop, and in one batch on a shared backbone."""
    guide, engine = bench.guide(model=share_weights(bench.other)), SharedBackbone(bench.guide())
    asked = bench.requests(prompts, temperature=0.0)
    base, number = bench.base(), prompts * bench.size.tokens
    runs = {
        "loop": lambda: 1000 * seconds(lambda: public_loop(base, guide, asked), device) / number,
        "one batch": lambda: 1000 * seconds(lambda: decode(engine, asked, progress=False), device) / number,
    }
    yield from (summary(rounds, "one batch") for rounds in take_turns(round_of(runs), budget))


@torch.inference_mode()
def public_loop(base: DecodingModel, guide: DecodingModel, requests: Sequence[Request]) -> list[list[int]]:
    """Decode greedily by GenARM's published loop, prompt by prompt, with a cache and a factored adapter added."""
    assert guide.adapter is not None
    answers = []
    for request, prompt in zip(requests, prompts_of(base.encoder, requests), strict=True):
        guide.adapter.set_preference(request.preference)
        models = [language_model(model) for model in (base, guide)]
        caches = [DynamicCache(config=model.config) for model in models]
        tokens, written = torch.tensor([prompt], device=models[0].device), []
        for _ in range(request.max_new_tokens):
            z, arm = (
                model(tokens, **{cache_argument(model): cache}, use_cache=True, logits_to_keep=1).logits[:, -1].float()
                for model, cache in zip(models, caches, strict=True)
            )
            tokens = (z.log_softmax(-1) + request.weight * arm.log_softmax(-1)).argmax(-1, keepdim=True)
            written.append(int(tokens))
        answers.append(written)
    return answers


EXPERIMENTS: Mapping[str, tuple[Callable[[Bench, str, float], Iterator[dict[str, Any]]], float]] = {
    "variants": (variants, 0.6),
    "objectives": (objectives, 0.25),
    "public loop": (compare_with_public_loop, 0.15),
}
"""Function and share of the budget of each experiment, in their order."""


# ---- report ----


def measure(size: Size, device: str, budget: float, cases: str = "") -> Iterator[dict[str, Any]]:
    """Yield the measurements so far after each round of the experiments whose name the expression `cases` finds.

    `budget` is in seconds; every number of rows makes at least one round.
    """
    torch.manual_seed(0)
    end = time.perf_counter() + budget
    bench = Bench(size, device)
    parameters = sum(weight.numel() for weight in bench.model.parameters())
    measurements = {"parameters": parameters, "size": vars(size), "machine": machine(device)}
    chosen = {name: entry for name, entry in EXPERIMENTS.items() if re.search(cases, name)}
    shares = sum(share for _, share in chosen.values())
    budget = end - time.perf_counter()  # without the time of the models' weights
    for name, (run, share) in chosen.items():
        for results in run(bench, device, share / shares * budget):
            measurements = measurements | {name: results}
            yield measurements


def markdown(measurements: Mapping[str, Any]) -> str:
    """Format every experiment as a Markdown table."""
    tables = [
        (f"{rows}, {what}", times)
        for rows, kinds in measurements.get("variants", {}).items()
        for what, times in kinds.items()
    ]
    tables += [(title, measurements[name]) for name, title in TITLES.items() if name in measurements]
    lines = []
    for title, times in tables:
        lines += [f"| {title} | median | p10 | p90 | ratio | p10 | p90 |", "|---" * 7 + "|"]
        for name, row in times.items():
            cells = [*row["ms"].values(), *row["ratio"].values()]
            lines.append(f"| {name} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> None:
    """Measure and print the tables; write every round to `--output` at once."""
    parser = argument_parser(__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--budget", type=float, default=600, help="seconds")
    parser.add_argument("--backbone", default="small", choices=[*BACKBONES])
    parser.add_argument("--cases", default="", help=f"regular expression: some of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--speculative", action="store_true", help="speculative decoding in place of the tables above")
    parser.add_argument("--layers", type=int, default=3, help="of the small model of --speculative")
    parser.add_argument("--model", help="a pretrained model in place of random weights, beside Transformers' generate")
    parser.add_argument("--dtype", default="float32", help="of --model")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 8], help="batch sizes of --model")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of every completion of --model")
    parser.add_argument("--clock", default="wall", choices=["wall", "cpu"], help="of --model")
    options = parser.parse_args(arguments)
    if options.model:
        from . import pretrained  # imports this module

        model, words = pretrained.load(options.model, options.dtype, options.device)
        settings = {"rows": options.rows, "tokens": options.tokens, "clock": options.clock, "budget": options.budget}
        for measurements in pretrained.measure(model, words, **settings):
            write(measurements, options.output)
        print(markdown(measurements))
        return
    if options.speculative:
        from . import speculation  # imports this module

        measurements = speculation.measure(size or Size(), options.layers, options.device, options.budget)
        write(measurements, options.output)
        print(speculation.markdown(measurements))
        return
    measurements: dict[str, Any] = {}
    size = size or BACKBONES[options.backbone]
    for measurements in measure(size, options.device, options.budget, options.cases):
        write(measurements, options.output)
    print(markdown(measurements))
