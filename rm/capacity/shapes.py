"""Shapes of language models: the numbers that the formulas of memory and time need."""

from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UsageError, did_you_mean

READS, MIXES, WIDENS, NARROWS = range(4)
"""Stages of a layer's matrices: attention input (q, k, v), its output, MLP input (gate, up), its output."""


class Linear(NamedTuple):
    """A weight matrix of a decoder layer."""

    name: str
    inputs: int
    outputs: int
    stage: int


class Shape(NamedTuple):
    """Dimensions of a decoder-only model, as needed by the formulas; all layers are equal."""

    name: str
    family: str
    parameters: int
    """Parameters of the causal language model, counting a tied output head once."""
    layer_parameters: int
    """Parameters of one decoder layer, norms and biases included."""
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    """Width of the MLP."""
    vocabulary: int
    """Rows of the embedding."""
    tied: bool
    gated: bool
    """Whether the MLP is a product of two branches."""
    head_normed: bool
    """Whether each head's queries and keys are normalised, as in Qwen 3."""
    linears: tuple[Linear, ...]
    positions: int

    @property
    def embedding(self) -> int:
        """Number of parameters of the embedding; an untied output head has as many."""
        return self.vocabulary * self.width

    @property
    def trunk(self) -> int:
        """Parameters that a scalar reward model keeps: all except a separate output head."""
        return self.parameters - (0 if self.tied else self.embedding)


FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3": {"model_type": "qwen3", "vocab_size": 151936, "head_dim": 128, "max_position_embeddings": 40960},
    "qwen2.5": {"model_type": "qwen2", "vocab_size": 152064, "max_position_embeddings": 32768},
    "llama3": {"model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 131072},
}
SIZES = {  # layers, width, heads, KV heads, MLP width, tied
    "qwen3-0.6b": (28, 1024, 16, 8, 3072, True),
    "qwen3-1.7b": (28, 2048, 16, 8, 6144, True),
    "qwen3-4b": (36, 2560, 32, 8, 9728, True),
    "qwen3-8b": (36, 4096, 32, 8, 12288, False),
    "qwen3-14b": (40, 5120, 40, 8, 17408, False),
    "qwen3-32b": (64, 5120, 64, 8, 25600, False),
    "qwen2.5-0.5b": (24, 896, 14, 2, 4864, True),
    "qwen2.5-1.5b": (28, 1536, 12, 2, 8960, True),
    "qwen2.5-3b": (36, 2048, 16, 2, 11008, True),
    "qwen2.5-7b": (28, 3584, 28, 4, 18944, False),
    "qwen2.5-14b": (48, 5120, 40, 8, 13824, False),
    "qwen2.5-32b": (64, 5120, 40, 8, 27648, False),
    "qwen2.5-72b": (80, 8192, 64, 8, 29568, False),
    "llama3-1b": (16, 2048, 32, 8, 8192, True),
    "llama3-3b": (28, 3072, 24, 8, 8192, True),
    "llama3-8b": (32, 4096, 32, 8, 14336, False),
    "llama3-70b": (80, 8192, 64, 8, 28672, False),
}
"""Qwen 3 (arXiv:2505.09388, table 1), Qwen 2.5 (arXiv:2412.15115, table 1), Llama 3.1 and 3.2, from their configs."""
SMALL_VOCABULARY = 151936  # Qwen 2.5 up to 3B


def choices() -> list[str]:
    """Return the names of the models in the table, and sizes such as `7b`."""
    return [*SIZES, *dict.fromkeys(name.partition("-")[2] for name in SIZES)]


def full_name(name: str) -> str | None:
    """Return a model's name in the table, from a name or a size (the first model of this size); None if unknown.

    >>> full_name("7b"), full_name("Llama3-8B"), full_name("9b")
    ('qwen2.5-7b', 'llama3-8b', None)
    """
    name = name.lower()
    return next((size for size in SIZES if name in (size, size.partition("-")[2])), None)


def find_shape(model: str, *, trust_remote_code: bool = False) -> Shape:
    """Return the shape of a size (`7b`, `qwen3-8b`), a folder or a Hugging Face id; reads only config.json."""
    name = full_name(model)
    if name is not None and not Path(model).exists():
        return table_shape(name)
    if "/" not in model and not Path(model).exists():
        raise UsageError(
            f"no size '{model}', and no folder of that name; "
            + did_you_mean(model.lower(), choices(), f"a Hub id is owner/name, and sizes are {', '.join(SIZES)}")
        )
    from .config_shapes import folder_shape  # PyTorch and Transformers, which a size does not need

    return folder_shape(model, trust_remote_code=trust_remote_code)


def table_settings(name: str) -> dict[str, Any]:
    """Return the settings of a model in the table, as in its config.json."""
    family = name.partition("-")[0]
    layers, width, heads, kv_heads, mlp, tied = SIZES[name]
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": mlp,
        "tie_word_embeddings": tied,
    }
    small = {"vocab_size": SMALL_VOCABULARY} if family == "qwen2.5" and tied else {}
    return {"head_dim": width // heads} | FAMILIES[family] | small | sizes


def table_shape(name: str) -> Shape:
    """Return the shape of a model in the table by counting matrices, biases (Qwen 2.5) and norms."""
    settings = table_settings(name)
    layers, width, heads, kv_heads, mlp, tied = SIZES[name]
    family, head_dim, vocabulary = settings["model_type"], settings["head_dim"], settings["vocab_size"]
    linears = _dense_layer(width, heads * head_dim, kv_heads * head_dim, mlp)
    biases = (heads + 2 * kv_heads) * head_dim if family == "qwen2" else 0
    norms = 2 * width + (2 * head_dim if family == "qwen3" else 0)
    layer_parameters = sum(linear.inputs * linear.outputs for linear in linears) + biases + norms
    return Shape(
        name=name,
        family=family,
        parameters=layers * layer_parameters + width + vocabulary * width * (1 if tied else 2),
        layer_parameters=layer_parameters,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=mlp,
        vocabulary=vocabulary,
        tied=tied,
        gated=True,
        head_normed=family == "qwen3",
        linears=linears,
        positions=settings["max_position_embeddings"],
    )


def _dense_layer(width: int, queries: int, keys: int, mlp: int) -> tuple[Linear, ...]:
    return (
        Linear("q_proj", width, queries, READS),
        Linear("k_proj", width, keys, READS),
        Linear("v_proj", width, keys, READS),
        Linear("o_proj", queries, width, MIXES),
        Linear("gate_proj", width, mlp, WIDENS),
        Linear("up_proj", width, mlp, WIDENS),
        Linear("down_proj", mlp, width, NARROWS),
    )
