"""Model folders: contract, golden scores, weights, tokenizer, chat template, adapters, and what ensembles keep."""

from functools import cache, partial
from pathlib import Path
from typing import Any

from rewardlab.rm.adapters.adapter import WEIGHTS as ADAPTER_WEIGHTS
from rewardlab.rm.adapters.adapter import attach
from rewardlab.rm.adapters.settings import SETTINGS as ADAPTER
from rewardlab.rm.adapters.settings import load_settings
from rewardlab.rm.backbones.loading import SMALL_TEMPLATE, load_tokenizer, small_tokenizer
from rewardlab.rm.backbones.tokenization import Encoder, describe_tokenizer
from rewardlab.rm.contract.golden_scores import read_golden
from rewardlab.rm.contract.scoring_contract import FILE, ScoringContract, load_contract
from rewardlab.rm.load import load_reward_model

from tests.fuzzing.shapes import JSON, JSON_LINES, SAFETENSORS, SIGNED
from tests.fuzzing.target import Target
from tests.fuzzing.world import EXAMPLES, TEXTS, arm_base, home, inside

TEMPLATE = "chat_template.jinja"
TEMPLATES = (
    SMALL_TEMPLATE.encode(),
    b"{%- for m in messages %}{{ '<|' ~ m['role'] ~ '|>\\n' + m['content'] | trim + '<|end|>\\n' }}{%- endfor %}"
    b"{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{%- endif %}",
    b"{% macro turn(m) %}{{ m.role|upper }}: {{ m.content.strip().replace('a', 'b') }}{% endmacro %}"
    b"{% set ns = namespace(n=0) %}{% for m in messages if m.role != 'tool' %}{% set ns.n = ns.n + 1 %}"
    b"{{ '%d. ' % ns.n }}{{ turn(m) }}{{ ' ' * 2 }}{{ eos_token }}{% endfor %}",
)


def models() -> list[Target]:
    return [
        _in("scalar", FILE, _contract, SIGNED),
        _in("scalar", "golden.jsonl", lambda path: read_golden(path.parent), JSON_LINES),
        _in("scalar", "config.json", _model, JSON),
        _in("scalar", "model.safetensors", _model, SAFETENSORS),
        _in("scalar", "tokenizer.json", _tokenizer, JSON),
        _in("scalar", "tokenizer_config.json", _tokenizer, JSON),
        _in("scalar", TEMPLATE, _model, None, name="scalar/chat template"),
        Target("models/a template for a model", TEMPLATE, TEMPLATES, _template),
        _in("lora", "adapter_config.json", _model, JSON),
        _in("lora", "adapter_model.safetensors", _model, SAFETENSORS),
        _in("latent", "latent_heads.safetensors", _model, SAFETENSORS),
        _in("ensemble", "ensemble.json", _model, JSON),
        _in("linear", "vocabulary.json", _model, JSON),
        _in("linear", "linear.safetensors", _model, SAFETENSORS),
        _in("arm", ADAPTER, lambda path: load_settings(path.parent), JSON),
        _in("arm", ADAPTER_WEIGHTS, _arm, SAFETENSORS),
    ]


_in = partial(inside, "models")


def _contract(path: Path) -> None:
    load_contract(path.parent)
    _model(path)


def _model(path: Path) -> None:
    load_reward_model(str(path.parent)).rate(EXAMPLES[:2])


def _tokenizer(path: Path) -> None:
    load_tokenizer(str(path.parent))
    _model(path)


def _template(path: Path) -> None:
    """Given with --chat_template, it need not be the one that the model was trained with."""
    words = load_tokenizer(str(home() / "scalar"), chat_template=str(path))
    encoder = Encoder(words, ScoringContract("scalar", max_length=64, truncation="left", **describe_tokenizer(words)))
    encoder.encode_all(EXAMPLES)
    encoder.encode_completion(EXAMPLES[0])


@cache
def _adapter(settings: str) -> Any:
    return attach(arm_base(), load_settings(Path(settings)), small_tokenizer(TEXTS, 300))


def _arm(path: Path) -> None:
    _adapter(str(path.parent)).load_weights(path.parent)
