"""The settings of every verb, one dataclass each; a YAML file fills them and flags override it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from ..rm.errors import UsageError
from ..rm.plugins import load
from ..rm.types import OVERALL


def say(help: str, **default: Any) -> Any:
    """A field with its help text."""
    return field(metadata={"help": help}, **default)


def as_list(value: str | list[str] | None) -> list[str]:
    """One as a list of one."""
    return [value] if isinstance(value, str) else list(value or [])


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse another value."""
    if value not in choices:
        raise UsageError(f"--{name} is one of {', '.join(choices)}, got '{value}'")


def given(name: str, value: Any) -> None:
    """Refuse a setting that is missing."""
    if not value:
        raise UsageError(f"--{name} is missing")


@dataclass
class TrainConfig:
    """Which model, which data, what to do with rows that do not fit."""

    data: list[str] = say(
        "Preference files (.jsonl, .json, .parquet, also .gz) or hub-id[@revision][:split].", default_factory=list
    )
    output: str = say("Folder for the trained model.", default="")
    eval_data: list[str] = say(
        "Preference data for evaluation and for choosing the best checkpoint.", default_factory=list
    )
    kind: str = say("scalar, linear, embedding, autoregressive, multi_head, ensemble or boosted.", default="scalar")
    model: str | None = say(
        "Backbone to start from: path or Hub id. Scalar without one: a small model from scratch.", default=None
    )
    objective: str = say("Which label of the pairs to learn.", default=OVERALL)
    loss: str = say("One of rm/losses, as name(key=value), or package.module:factory.", default="bradley_terry")
    max_length: int | None = say("Longest sequence in tokens.", default=None)
    chat_template: str | None = say("Jinja file, or plain: turns joined by blank lines.", default=None)
    on_bad_row: Literal["refuse", "skip"] = say("What to do with a row that cannot be used.", default="refuse")
    on_long: Literal["truncate", "skip", "refuse"] = say(
        "What to do with a pair beyond max_length.", default="truncate"
    )
    dtype: str = say("Precision of the weights: float32 or bfloat16.", default="float32")
    lora: bool = say("Train low-rank adapters instead of all weights.", default=False)
    lora_r: int = say("Rank.", default=16)
    lora_alpha: int = say("Scale is alpha / r.", default=32)
    lora_dropout: float = say("Dropout before the adapters.", default=0.0)
    lora_target_modules: list[str] = say("Layers that get adapters.", default_factory=lambda: ["all-linear"])
    small_hidden: int = say("Width of the small model from scratch.", default=128)
    small_layers: int = say("Layers of the small model from scratch.", default=2)
    small_vocabulary: int = say("Tokens that the small model learns from the training text.", default=4096)
    inverse_regularization: float | None = say(
        "C of the linear and embedding heads; larger is less shrunk.", default=None
    )
    golden: int = say("Conversations kept with their scores beside the weights.", default=16)
    trust_remote_code: bool = say("Run code that comes with a model.", default=False)
    stream: bool = say(
        "Read --data as training goes, for files that do not fit into memory: shuffled a block at a time, resumed "
        "exactly. Needs --max_steps.",
        default=False,
    )
    stream_block: int = say("Pairs of a block, which are read and shuffled together.", default=4096)
    processes: int = say("How many torchrun started; they share every batch.", default=1)
    resume: bool = say("Continue a run that was cut off.", default=False)
    overwrite: bool = say("Replace the output folder.", default=False)

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


@dataclass
class GuideConfig:
    """An autoregressive reward model (--kind autoregressive): which adapter, which loss; the objectives of any."""

    adapter: str = say("lora (GenARM), pblora (PARM) or moslora (UniARM); none trains all weights.", default="moslora")
    objectives: list[str] = say(
        "Labels of the pairs to follow, in this order. --data NAME=FILE says that a file is labelled for one of them.",
        default_factory=lambda: [OVERALL],
    )
    texts: list[str] = say(
        "A description of each objective, for --embedding text; by default its name.", default_factory=list
    )
    rank: int = say("Rank; for pblora that of the branch that follows the preference.", default=8)
    shared_rank: int = say("Rank of the branch of pblora that no preference reaches.", default=0)
    factor: float = say("What the adapter's output is multiplied by.", default=2.0)
    dropout: float = say("Dropout before the adapter.", default=0.0)
    targets: list[str] = say(
        "Linear layers that get adapters, or all-linear.", default_factory=lambda: ["q_proj", "k_proj", "v_proj"]
    )
    from_layer: int = say("First decoder layer that is adapted; late-branching guides share those below.", default=0)
    generator: str = say("moslora: linear, trunk or alpha.", default="linear")
    embedding: str = say("What an objective is to the generator: text, one_hot or random.", default="text")
    scale: bool = say("moslora: scale the features.", default=True)
    shift: bool = say("moslora: shift the features.", default=True)
    train_beta: float = say("Temperature of the loss, and the factor of the reward.", default=0.01)
    global_weight: float = say("Weight of the global term of the loss.", default=0.5)
    global_form: str = say("scalarised, mixed_label, vertices or scores.", default="scalarised")
    label_smoothing: float = say("Share of labels taken to be wrong, in [0, 0.5).", default=0.0)
    preferences: str = say("How training preferences are drawn: dirichlet, vertices or grid.", default="dirichlet")
    concentration: float = say("Of the Dirichlet distribution.", default=0.5)
    per_batch: bool = say("One preference for the whole batch, for comparison.", default=False)
    subtract_reference: bool = say("Log-probabilities relative to the base model.", default=False)
    normalise_length: bool = say("Mean instead of summed log-probabilities.", default=False)

    def __post_init__(self):
        self.objectives, self.texts = as_list(self.objectives), as_list(self.texts)
        self.targets = as_list(self.targets)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        one_of("adapter", self.adapter, ("lora", "pblora", "moslora", "none"))
        one_of("generator", self.generator, ("linear", "trunk", "alpha"))
        one_of("embedding", self.embedding, ("text", "one_hot", "random"))
        one_of("preferences", self.preferences, ("dirichlet", "vertices", "grid"))


@dataclass
class EvalConfig:
    """Which models on which suite."""

    benchmark: str = say("A suite of benchmarks/suites.", default="pairs")
    model: list[str] = say(
        "Model folders, Hub ids, package.module:factory, or served(urls=[http://a:8000, http://b:8000]).",
        default_factory=list,
    )
    read_as: str | None = say("Read the models as this kind, such as autoregressive or implicit.", default=None)
    preference: str | None = say(
        "Read autoregressive models at a preference, such as helpful=0.7,harmless=0.3.", default=None
    )
    reference_policy: str | None = say("What an implicit reward is relative to: path or Hub id.", default=None)
    scores: list[str] = say("Files of stored scores, by case id, to add up as models.", default_factory=list)
    reference: list[str] = say("Scorers to show beside the models, such as a gold reward.", default_factory=list)
    data: list[str] = say("The suite's data: files, or hub-id[@revision][:split].", default_factory=list)
    output: str = say("Run folder.", default="")
    objective: str | None = say(
        "Label of the pairs, and the objective of models with several; by default their mean.", default=None
    )
    on_bad_row: Literal["refuse", "skip"] = say("What to do with a row that cannot be used.", default="refuse")
    samples: int = say("Bootstrap samples.", default=1000)
    seed: int = say("Of the bootstrap, the random null and the folds.", default=0)
    trust_remote_code: bool = say("Run code that comes with a model.", default=False)
    processes: int = say("How many torchrun started; they share the cases.", default=1)
    resume: bool = say("Continue a run that was cut off.", default=False)
    overwrite: bool = say("Replace the run folder.", default=False)

    def __post_init__(self):
        self.model, self.scores = as_list(self.model), as_list(self.scores)
        self.reference, self.data = as_list(self.reference), as_list(self.data)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("model", self.model or self.scores)
        if self.reference_policy and self.read_as != "implicit":
            raise UsageError("--reference_policy belongs to --read_as implicit")
        given("output", self.output)
        one_of("on_bad_row", self.on_bad_row, ("refuse", "skip"))


@dataclass
class VerifyConfig:
    """A run of `eval` to add up again."""

    run: str = say("The run folder; may stand without the flag.", default="")

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("run", self.run)


@dataclass
class CompareConfig:
    """Two runs of `eval` on the same data."""

    runs: list[str] = say("The run before and the run after; may stand without the flag.", default_factory=list)
    scorer: str | None = say("Which scorer, where a run has several models.", default=None)
    gate: str | None = say("YAML rules `- {area: overall, max_drop: 0.01}`; a broken one exits with 5.", default=None)
    output: str | None = say("Folder for the comparison.", default=None)
    samples: int = say("Bootstrap samples.", default=1000)
    seed: int = say("Of the bootstrap.", default=0)
    overwrite: bool = say("Replace the folder.", default=False)

    def __post_init__(self):
        self.runs = as_list(self.runs)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("runs", self.runs)


@dataclass
class BoardConfig:
    """Runs of `eval` to rank."""

    runs: str = say("Folder that holds the runs; may stand without the flag.", default="")
    output: str = say("Folder for the leaderboard.", default="")
    overwrite: bool = say("Replace the folder.", default=False)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        for name in ("runs", "output"):
            given(name, getattr(self, name))


@dataclass
class DecodeConfig:
    """A base model, the autoregressive reward models that guide it, and what each token is drawn by."""

    base: str | None = say(
        "Language model to be guided: path or Hub id; by default the one of the adapter.", default=None
    )
    arm: list[str] = say(
        "Autoregressive reward model: a folder or Hub id, or one per objective as name=folder. None: plain decoding.",
        default_factory=list,
    )
    preference: str | None = say("Share of every objective, such as helpful=0.7,harmless=0.3.", default=None)
    sweep: int | None = say("Decode at so many preferences from one end to the other, in one batch.", default=None)
    weight: float = say("w = 1 / beta: how much the reward model counts.", default=1.0)
    data: str = say(
        "Rows with a prompt (.jsonl, .parquet ...), a .txt of one prompt a line, or - for stdin.", default="-"
    )
    output: str | None = say(
        "A .jsonl file, with every token's log-probabilities; else answers go to stdout.", default=None
    )
    temperature: float = say("0 is greedy.", default=1.0)
    top_k: int = say("0 is off.", default=0)
    top_p: float = say("1 is off.", default=1.0)
    min_p: float = say("0 is off.", default=0.0)
    seed: int = say("Each prompt's noise comes from this seed plus its place.", default=0)
    max_new_tokens: int = say("Longest answer in tokens.", default=256)
    stop: list[str] = say("Strings that end an answer.", default_factory=list)
    batch_size: int = say("Answers that are decoded together.", default=64)
    chat_template: str | None = say("Of the base: Jinja file, or plain.", default=None)
    dtype: str | None = say("Precision of the base; by default the reward model's.", default=None)
    trust_remote_code: bool = say("Run code that comes with a model.", default=False)
    resume: bool = say("Continue an output file that was cut off.", default=False)
    overwrite: bool = say("Replace the output file.", default=False)

    def __post_init__(self):
        self.arm, self.stop = as_list(self.arm), as_list(self.stop)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("base", self.base or self.arm)
        if self.preference and self.sweep:
            raise UsageError("--preference is one point and --sweep many; give one of them")
        if self.output and not self.output.endswith(".jsonl"):
            raise UsageError(f"--output ends with .jsonl, got '{self.output}'")
        if self.dtype is not None:
            one_of("dtype", self.dtype, ("float32", "bfloat16", "float16"))


@dataclass
class WorldConfig:
    """The toy world as files."""

    output: str = say("Folder for the data and the start policy.", default="")
    pairs: int = say("Training pairs.", default=6000)
    test: int = say("Unseen pairs for evaluation.", default=1000)
    architecture: Literal["qwen3", "llama"] = say("Of the start policy.", default="qwen3")
    seed: int = say("Of everything.", default=0)
    overwrite: bool = say("Replace the folder.", default=False)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("output", self.output)
        one_of("architecture", self.architecture, ("qwen3", "llama"))


@dataclass
class StudyConfig:
    """A study of benchmarks/studies."""

    name: str = say("Which one; may stand without the flag.", default="")
    data: str = say("Folder with the data that the study names; none for one that makes its own.", default="")
    output: str = say("Run folder for its tables, figures and per-item scores.", default="")
    cache: str = say("Folder that keeps what a second run need not train again.", default="~/.cache/rewardlab")
    seed: int = say("Of everything.", default=0)
    workers: int = say("Processes of one thread each.", default=2)
    rows: int | None = say("Shorten every data set to this many rows, for a try-out.", default=None)
    only: list[str] = say("Recipes of a study that has several, by name; none for all.", default_factory=list)
    overwrite: bool = say("Replace the run folder.", default=False)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        for name in ("name", "output"):
            given(name, getattr(self, name))


@dataclass
class InspectConfig:
    """Runs in the browser, and the models that explain them and decode there."""

    run: str = say("A run folder, or a folder of runs; may stand without the flag.", default="")
    model: list[str] = say("Reward models that explain what runs hold: folders or Hub ids.", default_factory=list)
    base: str | None = say("Language model of the playground; by default the one of its adapter.", default=None)
    arm: list[str] = say("Autoregressive reward model of the playground, as for `decode`.", default_factory=list)
    host: str = say("Address to listen on; another than 127.0.0.1 needs a token.", default="127.0.0.1")
    port: int = say("Port; 0 takes a free one.", default=7860)
    token: str | None = say("Password that a visitor has to give (user name: rewardlab).", default=None)
    trust_remote_code: bool = say("Run code that comes with a model.", default=False)

    def __post_init__(self):
        self.model, self.arm = as_list(self.model), as_list(self.arm)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("run", self.run)


@dataclass
class LintConfig:
    """Preference data, and what they are checked against."""

    data: list[str] = say("Preference files or Hub ids; may stand without the flag.", default_factory=list)
    against: list[str] = say(
        "Benchmarks whose prompts must not be in it: NAME for the suite's data on the Hub, NAME=FILE for files here.",
        default_factory=list,
    )
    model: str | None = say(
        "Reward model that reads the answers: its tokenizer, template and max_length tell what truncation makes alike.",
        default=None,
    )
    max_length: int | None = say(
        "Longest conversation in tokens, where another than the model's is meant.", default=None
    )
    near: float = say("Share of 3-word shingles from which a prompt is nearly a benchmark's.", default=0.7)
    alike: float = say("Share of 3-word shingles from which two answers are near-identical.", default=0.9)
    fix: str | None = say("Write the rows that are left to this .jsonl, and what was left out beside it.", default=None)
    keep: list[str] = say("Reasons that --fix leaves a row in for.", default_factory=lambda: ["tie"])
    output: str | None = say("Folder for the report and every finding.", default=None)
    trust_remote_code: bool = say("Run code that comes with a model.", default=False)
    overwrite: bool = say("Replace the files of --fix and --output.", default=False)

    def __post_init__(self):
        self.data, self.against, self.keep = as_list(self.data), as_list(self.against), as_list(self.keep)

    def validate(self) -> None:
        """Refuse what cannot be run."""
        given("data", self.data)
        if self.max_length is not None and not self.model:
            raise UsageError("--max_length counts a model's tokens; name it with --model")
        if self.fix and not self.fix.endswith(".jsonl"):
            raise UsageError(f"--fix ends with .jsonl, got '{self.fix}'")


@dataclass
class DoctorConfig:
    """How to tell what works here."""

    json: bool = say("Nothing but the JSON object on stdout.", default=False)

    def validate(self) -> None:
        """Nothing to refuse."""
