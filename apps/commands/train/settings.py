"""The settings of `rewardlab train`."""

from dataclasses import dataclass, replace
from typing import Literal

from ....rm.contract.scoring_contract import Edge
from ....rm.errors import UsageError
from ....rm.registry import check_name, load
from ....rm.types import OVERALL
from ...settings.fields import Settings, given, one_of, setting
from ...settings.reading import bos_setting, eos_setting

KINDS = ("scalar", "process", "latent", "linear", "embedding", "autoregressive", "multi_head", "ensemble", "boosted")


@dataclass
class TrainConfig(Settings):
    """Settings of reward model training: model, data, loss, and handling of unusable rows."""

    data: list[str] = setting(
        "Preference files (.jsonl, .json, .parquet, .csv, also compressed) or hub-id[@revision][:split].",
        group="Data and output",
        default_factory=list,
    )
    output: str = setting("Folder for the trained model.", default="")
    eval_data: list[str] = setting(
        "Preference data for evaluation and for choosing the best checkpoint.", default_factory=list
    )
    kind: str = setting("Kind of reward model.", group="Model", choices=KINDS, default="scalar")
    model: str | None = setting(
        "Backbone to start from: path or Hub id. By default, kind scalar trains a small model from scratch.",
        default=None,
    )
    objective: str = setting("Objective (label of the pairs) to learn.", default=OVERALL)
    loss: str = setting(
        "Loss of pairs, such as scaled_bradley_terry; or file.py:function.",
        registry="rm.losses",
        default="bradley_terry",
    )
    max_length: int | None = setting("Maximum length of a sequence in tokens.", default=None)
    chat_template: str | None = setting("Jinja file, or plain: turns joined by blank lines.", default=None)
    bos: Edge | None = bos_setting()
    eos: Edge | None = eos_setting()
    on_bad_row: Literal["refuse", "skip"] = setting("What to do with a row that cannot be used.", default="refuse")
    on_long: Literal["truncate", "skip", "refuse"] = setting(
        "What to do with a pair beyond max_length.", default="truncate"
    )
    dtype: str = setting("Precision of the weights.", choices=("float32", "bfloat16"), default="float32")
    lora: bool = setting(
        "Train low-rank adapters instead of all weights; guides always have them.", group="LoRA", default=False
    )
    lora_r: int | None = setting("Rank of the adapters; by default 16, and 8 for guides.", default=None)
    lora_alpha: float | None = setting("The adapters' output is multiplied by alpha / r; by default 2 r.", default=None)
    lora_dropout: float = setting("Dropout before the adapters.", default=0.0)
    lora_target_modules: list[str] = setting(
        "Layers with adapters; by default all-linear, and q_proj k_proj v_proj for guides.", default_factory=list
    )
    small_hidden: int = setting(
        "Width of the small model from scratch.", group="Small model from scratch", advanced=True, default=128
    )
    small_layers: int = setting("Layers of the small model from scratch.", advanced=True, default=2)
    small_vocabulary: int = setting(
        "Vocabulary size of the small model's tokenizer, which is trained on the training data.",
        advanced=True,
        default=4096,
    )
    inverse_regularization: float | None = setting(
        "C of the linear and embedding heads; larger values regularize less.", group="Run", advanced=True, default=None
    )
    golden: int = setting(
        "Number of golden conversations saved with their scores beside the weights.", advanced=True, default=16
    )
    trust_remote_code: bool = setting("Run code that comes with a model.", default=False)
    stream: bool = setting(
        "Stream --data during training, for files that do not fit into memory: shuffled block by block, with exact "
        "resume. Requires --max_steps.",
        default=False,
    )
    stream_block: int = setting(
        "Number of pairs in a block, which is loaded and shuffled at once.", advanced=True, default=4096
    )
    processes: int = setting("Number of processes started by torchrun; each batch is sharded over them.", default=1)
    resume: bool = setting("Continue a run that was cut off.", default=False)
    overwrite: bool = setting("Replace the output folder.", default=False)

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        if ":" in self.kind:
            load("rm.models", self.kind)
        else:
            check_name("rm.models", self.kind)
            one_of("kind", self.kind, KINDS)
        if self.kind != "ensemble":
            given("data", self.data)
        one_of("dtype", self.dtype, ("float32", "bfloat16", "float16"))


ADAPTER_OF_METHOD = {"genarm": "lora", "parm": "pblora", "uniarm": "moslora"}


@dataclass
class GuideConfig(Settings):
    """Settings of autoregressive reward models (adapter, loss), and the objectives of any kind of model."""

    adapter: str = setting(
        "Method whose adapter is trained; none trains all weights.",
        group="Guides (--kind autoregressive) and objectives",
        choices=("genarm", "parm", "uniarm", "none"),
        default="uniarm",
    )
    objectives: list[str] = setting(
        "Objectives (labels of the pairs), in order. --data NAME=FILE assigns the labels of a file to one of them.",
        default_factory=lambda: [OVERALL],
    )
    texts: list[str] = setting(
        "A description of each objective, for --embedding text; by default its name.",
        advanced=True,
        default_factory=list,
    )
    shared_rank: int = setting(
        "Rank of PARM's preference-independent branch, beside --lora_r.", advanced=True, default=0
    )
    from_layer: int = setting(
        "First decoder layer with an adapter; late-branching guides share the layers below it.", default=0
    )
    generator: str = setting(
        "UniARM's generator of preference-dependent features.", choices=("linear", "trunk", "alpha"), default="linear"
    )
    embedding: str = setting(
        "Embedding of an objective in the generator.",
        choices=("text", "one_hot", "random"),
        advanced=True,
        default="text",
    )
    scale: bool = setting("UniARM: scale the features.", advanced=True, default=True)
    shift: bool = setting("UniARM: shift the features.", advanced=True, default=True)
    train_beta: float = setting("β of the loss, and factor of the reward.", default=0.01)
    objective_betas: list[str] = setting(
        "β of the loss for single objectives, as NAME=β; by default --train_beta. A larger β makes a weaker guide.",
        advanced=True,
        default_factory=list,
    )
    ignore_ties: bool = setting(
        "Take a tie for an objective as unlabelled, instead of as a demand for equal log-probabilities.", default=False
    )
    rate_of_a: float = setting("Learning rate of the adapter's A, relative to --learning_rate.", default=1.0)
    rate_of_modulation: float = setting(
        "Learning rate of generators (UniARM) or cores (PARM), relative to --learning_rate.", advanced=True, default=1.0
    )
    monitor_steps: int = setting(
        "Steps between measurements of whether the guide reads its context, in runs of at least as many; 0: none.",
        advanced=True,
        default=25,
    )
    restarts: int = setting(
        "Restarts after a collapse in the first half of the training, each with half of A's learning rate.", default=0
    )
    global_weight: float = setting("Weight of the global term of the loss.", default=0.5)
    global_form: str = setting(
        "Form of the global term.",
        choices=("scalarised", "mixed_label", "vertices", "scores"),
        advanced=True,
        default="scalarised",
    )
    label_smoothing: float = setting("Assumed share of wrong labels, in [0, 0.5).", default=0.0)
    preferences: str = setting(
        "Distribution of training preferences.", choices=("dirichlet", "vertices", "grid"), default="dirichlet"
    )
    concentration: float = setting("Concentration of the Dirichlet distribution.", default=0.5)
    per_batch: bool = setting(
        "Sample one preference per batch instead of one per pair, for comparison.", advanced=True, default=False
    )
    subtract_reference: bool = setting("Subtract the log-probabilities of the base model.", default=False)
    normalise_length: bool = setting(
        "Average log-probabilities over tokens instead of summing.", advanced=True, default=False
    )
    token_baseline: str = setting(
        "Subtracted from every token's log-probability: nothing; the base model's mean; or, token by token, the "
        "base model's expectation of the guide's log-probability.",
        choices=("none", "constant", "expected"),
        default="none",
    )
    span: bool = setting(
        "UniARM: describe objectives by coordinates in the span of their vectors, one number per objective.",
        advanced=True,
        default=False,
    )

    def __post_init__(self):
        super().__post_init__()
        self.adapter = ADAPTER_OF_METHOD.get(self.adapter, self.adapter)

    def validate(self) -> None:
        """Raise a `UsageError` if a setting is missing or contradicts another."""
        one_of("adapter", self.adapter, ("lora", "pblora", "moslora", "none"))
        one_of("generator", self.generator, ("linear", "trunk", "alpha"))
        one_of("embedding", self.embedding, ("text", "one_hot", "random"))
        one_of("token_baseline", self.token_baseline, ("none", "constant", "expected"))
        one_of("preferences", self.preferences, ("dirichlet", "vertices", "grid"))


def with_objectives(config: TrainConfig, guide: GuideConfig) -> tuple[TrainConfig, GuideConfig]:
    """Return the settings with a single objective under both of its names, --objective and --objectives."""
    names = [config.objective] if guide.objectives == [OVERALL] else guide.objectives
    if config.objective not in (OVERALL, *names):
        raise UsageError(
            f"--objective {config.objective} is not one of --objectives {' '.join(names)}; give one of the two settings"
        )
    return replace(config, objective=names[0]) if len(names) == 1 else config, replace(guide, objectives=names)
