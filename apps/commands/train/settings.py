"""The settings of `rewardlab train`."""

from dataclasses import dataclass
from typing import Literal

from ....rm.registry import load
from ....rm.types import OVERALL
from ...settings.fields import as_list, given, one_of, setting


@dataclass
class TrainConfig:
    """Which model, which data, what to do with rows that do not fit."""

    data: list[str] = setting(
        "Preference files (.jsonl, .json, .parquet, also .gz) or hub-id[@revision][:split].", default_factory=list
    )
    output: str = setting("Folder for the trained model.", default="")
    eval_data: list[str] = setting(
        "Preference data for evaluation and for choosing the best checkpoint.", default_factory=list
    )
    kind: str = setting("scalar, linear, embedding, autoregressive, multi_head, ensemble or boosted.", default="scalar")
    model: str | None = setting(
        "Backbone to start from: path or Hub id. Scalar without one: a small model from scratch.", default=None
    )
    objective: str = setting("Which label of the pairs to learn.", default=OVERALL)
    loss: str = setting("One of rm/losses, as name(key=value), or package.module:factory.", default="bradley_terry")
    max_length: int | None = setting("Longest sequence in tokens.", default=None)
    chat_template: str | None = setting("Jinja file, or plain: turns joined by blank lines.", default=None)
    on_bad_row: Literal["refuse", "skip"] = setting("What to do with a row that cannot be used.", default="refuse")
    on_long: Literal["truncate", "skip", "refuse"] = setting(
        "What to do with a pair beyond max_length.", default="truncate"
    )
    dtype: str = setting("Precision of the weights: float32 or bfloat16.", default="float32")
    lora: bool = setting("Train low-rank adapters instead of all weights.", default=False)
    lora_r: int = setting("Rank.", default=16)
    lora_alpha: int = setting("Scale is alpha / r.", default=32)
    lora_dropout: float = setting("Dropout before the adapters.", default=0.0)
    lora_target_modules: list[str] = setting("Layers that get adapters.", default_factory=lambda: ["all-linear"])
    small_hidden: int = setting("Width of the small model from scratch.", default=128)
    small_layers: int = setting("Layers of the small model from scratch.", default=2)
    small_vocabulary: int = setting("Tokens that the small model learns from the training text.", default=4096)
    inverse_regularization: float | None = setting(
        "C of the linear and embedding heads; larger is less shrunk.", default=None
    )
    golden: int = setting("Conversations kept with their scores beside the weights.", default=16)
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)
    stream: bool = setting(
        "Read --data as training goes, for files that do not fit into memory: shuffled a block at a time, resumed "
        "exactly. Needs --max_steps.",
        default=False,
    )
    stream_block: int = setting("Pairs of a block, which are read and shuffled together.", default=4096)
    processes: int = setting("How many torchrun started; they share every batch.", default=1)
    resume: bool = setting("Continue a run that was cut off.", default=False)
    overwrite: bool = setting("Replace the output folder.", default=False)

    def __post_init__(self):
        self.data, self.eval_data = as_list(self.data), as_list(self.eval_data)
        self.lora_target_modules = as_list(self.lora_target_modules)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        load("rm.models", self.kind)
        if ":" not in self.kind:
            kinds = ("scalar", "linear", "embedding", "autoregressive", "multi_head", "ensemble", "boosted")
            one_of("kind", self.kind, kinds)
        if self.kind != "ensemble":
            given("data", self.data)
        one_of("on_bad_row", self.on_bad_row, ("refuse", "skip"))
        one_of("on_long", self.on_long, ("truncate", "skip", "refuse"))
        one_of("dtype", self.dtype, ("float32", "bfloat16", "float16"))


ADAPTER_OF_METHOD = {"genarm": "lora", "parm": "pblora", "uniarm": "moslora"}


@dataclass
class GuideConfig:
    """An autoregressive reward model (--kind autoregressive): which adapter, which loss; the objectives of any."""

    adapter: str = setting(
        "lora or genarm, pblora or parm, moslora or uniarm (a method's name stands for its adapter); none trains all "
        "weights.",
        default="moslora",
    )
    objectives: list[str] = setting(
        "Labels of the pairs to follow, in this order. --data NAME=FILE says that a file is labelled for one of them.",
        default_factory=lambda: [OVERALL],
    )
    texts: list[str] = setting(
        "A description of each objective, for --embedding text; by default its name.", default_factory=list
    )
    rank: int = setting("Rank; for pblora that of the branch that follows the preference.", default=8)
    shared_rank: int = setting("Rank of the branch of pblora that no preference reaches.", default=0)
    factor: float = setting("What the adapter's output is multiplied by.", default=2.0)
    dropout: float = setting("Dropout before the adapter.", default=0.0)
    targets: list[str] = setting(
        "Linear layers that get adapters, or all-linear.", default_factory=lambda: ["q_proj", "k_proj", "v_proj"]
    )
    from_layer: int = setting(
        "First decoder layer that is adapted; late-branching guides share those below.", default=0
    )
    generator: str = setting("moslora: linear, trunk or alpha.", default="linear")
    embedding: str = setting("What an objective is to the generator: text, one_hot or random.", default="text")
    scale: bool = setting("moslora: scale the features.", default=True)
    shift: bool = setting("moslora: shift the features.", default=True)
    train_beta: float = setting("Temperature of the loss, and the factor of the reward.", default=0.01)
    global_weight: float = setting("Weight of the global term of the loss.", default=0.5)
    global_form: str = setting("scalarised, mixed_label, vertices or scores.", default="scalarised")
    label_smoothing: float = setting("Share of labels taken to be wrong, in [0, 0.5).", default=0.0)
    preferences: str = setting("How training preferences are drawn: dirichlet, vertices or grid.", default="dirichlet")
    concentration: float = setting("Of the Dirichlet distribution.", default=0.5)
    per_batch: bool = setting("One preference for the whole batch, for comparison.", default=False)
    subtract_reference: bool = setting("Log-probabilities relative to the base model.", default=False)
    normalise_length: bool = setting("Mean instead of summed log-probabilities.", default=False)

    def __post_init__(self):
        self.objectives, self.texts = as_list(self.objectives), as_list(self.texts)
        self.targets = as_list(self.targets)
        self.adapter = ADAPTER_OF_METHOD.get(self.adapter, self.adapter)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        one_of("adapter", self.adapter, ("lora", "pblora", "moslora", "none"))
        one_of("generator", self.generator, ("linear", "trunk", "alpha"))
        one_of("embedding", self.embedding, ("text", "one_hot", "random"))
        one_of("preferences", self.preferences, ("dirichlet", "vertices", "grid"))
