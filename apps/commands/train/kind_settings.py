"""Which kinds of reward models read which settings; a setting that the kind does not read is refused."""

from ....rm.errors import UsageError
from ....rm.training.trainer import RewardArguments
from ....rm.types import OVERALL
from ...settings.fields import changed_settings
from .settings import GuideConfig, TrainConfig

FROM_SCRATCH = ("scalar", "process", "latent", "multi_head")
BY_GRADIENT = (*FROM_SCRATCH, "autoregressive")
FITTED = ("linear", "embedding")
PAIR_LOSS = ("scalar", "multi_head")
PADDING_FREE = ("scalar", "multi_head", "process")
STREAMED = ("scalar", "autoregressive")
SEVERAL_OBJECTIVES = ("scalar", "autoregressive")
WITHOUT_OBJECTIVE = {"ensemble": "has the objectives of its members", "process": "learns labels of steps"}

LORA = ("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules")
SMALL = ("small_hidden", "small_layers", "small_vocabulary")
READERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("loss", "center_rewards_coefficient"), PAIR_LOSS),
    **dict.fromkeys(("stream", "stream_block"), STREAMED),
    **dict.fromkeys(("model", "dtype", "max_length"), (*BY_GRADIENT, "embedding")),
    **dict.fromkeys(("chat_template", "on_long", "lora", "bos", *LORA), BY_GRADIENT),
    "eos": tuple(kind for kind in BY_GRADIENT if kind != "process"),  # a process model reads up to the last step
    **dict.fromkeys(SMALL, FROM_SCRATCH),
    "padding_free": PADDING_FREE,
    "inverse_regularization": FITTED,
    "on_bad_row": (*BY_GRADIENT, *FITTED, "boosted"),
    "resume": (*BY_GRADIENT, *FITTED),
}
"""Kinds that read a setting; others of `TrainConfig` are read by all kinds."""
BY_ALL = ("objectives", "output_dir", "seed", "disable_tqdm", "use_cpu")
"""Settings of guides and of the trainer that no kind refuses."""


def check_read(config: TrainConfig, guide: GuideConfig, arguments: RewardArguments) -> None:
    """Raise a `UsageError` for settings that the kind of reward model does not read."""
    kind, names = config.kind, guide.objectives
    if config.eval_data and kind not in (*BY_GRADIENT, "ensemble"):
        raise UsageError(f"--kind {kind} is fitted without evaluation; leave --eval_data out and use rewardlab eval")
    for settings, otherwise in ((config, ()), (guide, ("autoregressive",)), (arguments, BY_GRADIENT)):
        for name in changed_settings(settings):
            readers = READERS.get(name, otherwise)
            if readers and name not in BY_ALL and ("linear" if ":" in kind else kind) not in readers:
                listed = " and ".join([", ".join(readers[:-1]), readers[-1]] if readers[1:] else readers)
                raise UsageError(f"--{name} belongs to --kind {listed}, got {kind}; leave it out")
    _check_switched_on(config)
    if kind in WITHOUT_OBJECTIVE and names != [OVERALL]:
        raise UsageError(f"--kind {kind} {WITHOUT_OBJECTIVE[kind]}; leave --objective and --objectives out")
    if kind not in SEVERAL_OBJECTIVES and len(names) > 1:
        raise UsageError(f"--kind {kind} learns one objective, got {', '.join(names)}; name one")


def _check_switched_on(config: TrainConfig) -> None:
    """Raise a `UsageError` for settings of adapters without adapters, and of streams without a stream."""
    changed = changed_settings(config)
    adapters = [name for name in LORA if name in changed]
    if adapters and config.kind != "autoregressive" and not config.lora:
        raise UsageError(f"--{adapters[0]} belongs to --lora; add --lora, or leave it out")
    if "stream_block" in changed and not config.stream:
        raise UsageError("--stream_block belongs to --stream; add --stream, or leave it out")
