"""Load backbones of any Hugging Face architecture safely, and build small ones."""

import copy
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from logging import LogRecord
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import torch
from peft import PeftModel
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from ..contract.scoring_contract import FILE, PLAIN_TEMPLATE, load_contract
from ..errors import UNREADABLE, DataError, UsageError
from ..io.hub_names import absence_reason
from .chat_templates import check_template
from .hub import (
    HEAD,
    check_claims,
    check_layers,
    parse_source,
    record_model_commit,
    refuse_pickles,
    replace_head,
    stored_head,
    tokenizer_source,
    warn_of_unused_tensors,
)
from .sequence_scores import decoder_head
from .tokenization import edge_tokens

PAD = "<|pad|>"
SMALL_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
Architecture = Literal["qwen3", "llama"]
CLASSIFIERS: tuple[Any, Any] = (AutoModelForSequenceClassification, AutoModelForTokenClassification)


class _HiddenBars:
    """Hook that hides Transformers' progress bars from the first of overlapping contexts to the end of the last."""

    lock, contexts, earlier = Lock(), 0, None

    @classmethod
    def change(cls, by: int) -> None:
        """Add 1 at the beginning of a context, and -1 at its end."""
        with cls.lock:
            if by > 0 and not cls.contexts:
                cls.earlier = logging.set_tqdm_hook(lambda _, args, options: logging.EmptyTqdm(*args, **options))
            cls.contexts += by
            if not cls.contexts:
                logging.set_tqdm_hook(cls.earlier)


@contextmanager
def hidden_weight_bars() -> Iterator[None]:
    """Hide Transformers' progress bars of loading and saving weights within the context, but not those of downloads."""
    _HiddenBars.change(1)
    try:
        yield
    finally:
        _HiddenBars.change(-1)


def load_tokenizer(
    source: str, *, chat_template: str | None = None, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """Load a tokenizer; for an adapter, load the base model's. `chat_template` is a Jinja file or `plain`."""
    holder = tokenizer_source(source)
    location = parse_source(holder, trust_remote_code=trust_remote_code)
    check_layers(source)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            location.name, revision=location.revision, trust_remote_code=trust_remote_code
        )
    except Exception as error:  # damaged files raise the errors of their parsers
        raise DataError(f"{holder}: no tokenizer there ({absence_reason(holder, error)})") from error
    if chat_template is not None:
        tokenizer.chat_template = _read_template(chat_template)
    check_template(tokenizer.chat_template, source)
    return tokenizer


def _read_template(name: str) -> str:
    if name == "plain":
        return PLAIN_TEMPLATE
    if not Path(name).is_file():
        raise UsageError(f"no chat template file '{name}'; give a Jinja file, or 'plain'")
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: not a readable chat template ({error}); give a Jinja file in UTF-8") from error


def ensure_pad(tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """Give the tokenizer a pad token that is not EOS, if the embedding of `rows` rows has a spare row.

    Other software pools at the last token that is not the pad token. If pad equals EOS, that is the token before EOS,
    so saved folders must not pad with EOS. Without a spare row the pad token is unchanged: our own pooling uses the
    attention mask.
    """
    last = edge_tokens(tokenizer)[1]
    if tokenizer.pad_token is not None and tokenizer.pad_token != last:
        return
    spare = [token for token in tokenizer.get_added_vocab() if "pad" in token.lower() or "reserved" in token.lower()]
    if tokenizer.unk_token not in (None, last):
        spare.append(tokenizer.unk_token)
    if spare:
        tokenizer.pad_token = spare[0]
    elif len(tokenizer) < rows:
        tokenizer.add_special_tokens({"pad_token": PAD})
    elif tokenizer.pad_token is None:
        tokenizer.pad_token = last


def small_tokenizer(texts: Iterable[str], vocabulary: int = 4096) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on the texts, with a chat template."""
    from tokenizers import ByteLevelBPETokenizer

    special = ["<|pad|>", "<|eos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=vocabulary, min_frequency=2, special_tokens=special, show_progress=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer,
        pad_token="<|pad|>",
        eos_token="<|eos|>",
        additional_special_tokens=special[2:],
        model_max_length=2048,
    )
    tokenizer.chat_template = SMALL_TEMPLATE
    return tokenizer


def small_config(
    tokenizer: PreTrainedTokenizerBase,
    architecture: Architecture = "qwen3",
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    positions: int = 2048,
) -> Any:
    """Return the config of a small model. Do not use Qwen 2, for which AutoTokenizer would replace the tokenizer."""
    return AutoConfig.for_model(
        architecture,
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=hidden * 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=positions,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )


def classifier_from_config(config: Any, names: tuple[str, ...], seed: int, per_token: bool = False) -> PreTrainedModel:
    """Create a classifier of sequences, or of their tokens, with named outputs and random weights."""
    torch.manual_seed(seed)
    name_labels(config, names, per_token)
    return CLASSIFIERS[per_token].from_config(config)


def load_classifier(
    source: str,
    objectives: tuple[str, ...],
    *,
    fresh_head: bool,
    per_token: bool = False,
    dtype: str = "float32",
    seed: int = 0,
    trust_remote_code: bool = False,
) -> tuple[PreTrainedModel, list[str]]:
    """Load a backbone as a classifier of sequences, or of tokens, with K outputs; return it and its new tensors.

    With `fresh_head`, tensors outside the trunk that the weights lack are initialised from the seed (right only at the
    start of training), and their names are returned. Otherwise a missing or mismatched tensor raises `DataError`.
    Value heads and biases of heads are loaded from where they are stored (`hub.stored_head`).
    """
    torch.manual_seed(seed)
    with _convert_loading_errors(source, "reward model"):
        config = load_config(source, trust_remote_code=trust_remote_code)
        if config.is_encoder_decoder:
            raise DataError(f"{source} is an encoder-decoder ({config.model_type}); give a causal or an encoder model")
        name_labels(config, objectives, per_token)
        options = {"trust_remote_code": trust_remote_code, "config": config, "fresh_head": fresh_head}
        model, absent = _from_pretrained(CLASSIFIERS[per_token], source, dtype, **options)
    head = stored_head(source) if decoder_head(model) is not None else None
    if head is not None and len(head.weight) == len(objectives):
        replace_head(model, head, source)
        absent = [key for key in absent if key != f"{HEAD}.weight"]
    trunk = [key for key in absent if key.startswith(f"{model.base_model_prefix}.") and ".pooler." not in key]
    if trunk or (absent and not fresh_head):
        raise DataError(
            f"{source}: the weights lack {', '.join((trunk or absent)[:4])}, so its scores would be random; "
            "give the folder of a trained reward model, or train one with rewardlab train"
        )
    return model, absent


def load_causal_lm(
    source: str,
    tokenizer: PreTrainedTokenizerBase,
    *,
    dtype: str = "float32",
    device: str | None = None,
    trust_remote_code: bool = False,
    kind: str = "autoregressive",
) -> PreTrainedModel:
    """Load a causal language model, plain, adapted or from a reward model's folder, and check its tokenizer."""
    if (Path(source) / FILE).exists() and (stated := load_contract(Path(source)).kind) != kind:
        raise DataError(f"{source} is a reward model of kind '{stated}'; give a causal language model")
    options: Any = {"dtype": dtype, "trust_remote_code": trust_remote_code}
    model, absent = load_pretrained(AutoModelForCausalLM, source, "causal language model", **options)
    if any("SequenceClassification" in name for name in model.config.architectures or ()):
        raise DataError(f"{source} is a reward model; give a causal language model")
    if absent:
        raise DataError(
            f"{source}: the weights lack {', '.join(absent[:4])}, so its scores would be random; give the full folder"
        )
    check_vocabulary(tokenizer, model, source)
    model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()
    if _looks_ahead(model):
        raise DataError(f"{source}: its logits depend on later tokens ({model.config.model_type}); give a causal model")
    return model


def load_pretrained(
    auto: Any, source: str, what: str, *, dtype: str = "float32", **options: Any
) -> tuple[Any, list[str]]:
    """Load a model by an auto class; return it and the names of missing tensors, for which callers raise an error."""
    with _convert_loading_errors(source, what):
        return _from_pretrained(auto, source, dtype, **options)


@torch.inference_mode()
def _looks_ahead(model: Any) -> bool:
    """Return whether later tokens change earlier logits: encoders load as causal language models without an error."""
    first, second = (model(input_ids=torch.tensor([[0, other]], device=model.device)).logits[0, 0] for other in (0, 1))
    return not torch.allclose(first, second, rtol=1e-3, atol=1e-4, equal_nan=True)


def _from_pretrained(
    auto: Any, source: str, dtype: str, *, fresh_head: bool = False, **options: Any
) -> tuple[Any, list[str]]:
    """Load a model from safetensors; return it and the names of missing and mismatched tensors; warn of unread ones."""
    trusting = bool(options.get("trust_remote_code"))
    location = parse_source(source, trust_remote_code=trusting)
    if Path(source).is_dir():
        refuse_pickles(Path(source))
    if (Path(source) / "config.json").exists():  # the folder of an adapter has none
        check_claims(options.get("config") or load_config(source, trust_remote_code=trusting), source)
    with (
        hidden_weight_bars(),
        _suppress_reports(),
    ):  # callers refuse missing tensors, except for a head that is to be trained
        model, facts = auto.from_pretrained(
            location.name,
            revision=location.revision or "main",
            dtype=dtype,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
    record_model_commit(source)
    warn_of_unused_tensors(model, facts["unexpected_keys"], source, fresh_head)
    return model, sorted([*facts["missing_keys"], *(key for key, *_ in facts["mismatched_keys"])])


def load_trunk(source: str, *, dtype: str = "float32", trust_remote_code: bool = False) -> tuple[Any, Any]:
    """Load a backbone in eval mode and its tokenizer; raise `DataError` if a tensor (except a pooler's) is missing."""
    location = parse_source(source, trust_remote_code=trust_remote_code)
    options = {"revision": location.revision or "main", "trust_remote_code": trust_remote_code}
    try:
        tokenizer = AutoTokenizer.from_pretrained(location.name, **options)
        with hidden_weight_bars():
            model, facts = AutoModel.from_pretrained(
                location.name, dtype=dtype, use_safetensors=True, output_loading_info=True, **options
            )
        record_model_commit(source)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(f"{source}: cannot be loaded as an encoder ({str(error).splitlines()[0]})") from error
    absent = sorted(name for name in facts["missing_keys"] if not name.startswith("pooler."))
    if absent:
        raise DataError(
            f"{source}: the weights lack {', '.join(absent[:4])}, so its states would be random; give the full folder"
        )
    return model.eval(), tokenizer


@contextmanager
def _suppress_reports() -> Iterator[None]:
    """Suppress Transformers' reports of missing and unread tensors within the context; this module reports them."""

    def keep(record: LogRecord) -> bool:
        """Return whether a log record is not a suppressed report."""
        text = record.getMessage()
        return "LOAD REPORT" not in text or any(status in text for status in ("MISMATCH", "CONVERSION", "ERROR"))

    logger = logging.get_logger("transformers.modeling_utils")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def load_config(source: str, *, trust_remote_code: bool = False) -> Any:
    """Load the config.json of a folder or of `id[@revision]`."""
    location = parse_source(source, trust_remote_code=trust_remote_code)
    check_layers(source)
    return AutoConfig.from_pretrained(location.name, revision=location.revision, trust_remote_code=trust_remote_code)


@contextmanager
def _convert_loading_errors(source: str, what: str) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (*UNREADABLE, RuntimeError, ImportError, AssertionError, SafetensorError) as error:
        raise DataError(
            f"{source}: cannot be loaded as a {what} ({absence_reason(source, error)}); give a folder or Hub id with "
            "config.json and safetensors weights"
        ) from error


def name_labels(config: Any, objectives: tuple[str, ...], per_token: bool = False) -> None:
    """Name the outputs in a classifier's config, and set the problem type, from which vLLM derives the activation."""
    config.num_labels = len(objectives)
    config.id2label = dict(enumerate(objectives))
    config.label2id = {name: index for index, name in enumerate(objectives)}
    config.problem_type = "multi_label_classification" if per_token else "regression"


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, model: nn.Module, source: str) -> None:
    """Raise `DataError` if the tokenizer has ids for which the model has no embedding."""
    rows = embedding_rows(model)
    if len(tokenizer) > rows:
        raise DataError(
            f"{source}: the tokenizer has {len(tokenizer)} tokens and the model's embedding {rows} rows; "
            "give the model's own tokenizer"
        )


def embedding_rows(model: Any) -> int:
    """Return the number of rows of the input embedding."""
    return model.get_input_embeddings().weight.shape[0]


def merged_copy(model: PeftModel) -> PreTrainedModel:
    """Return a copy of an adapted model with the adapter merged into its weights, W + s B A, and the adapted head."""
    return copy.deepcopy(model).merge_and_unload()


def share_weights(model: Any) -> Any:
    """Return a second model that shares the weights, so that it can be adapted without copying them."""
    tensors = (*model.parameters(), *model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


@torch.no_grad()
def fingerprint(model: nn.Module, values: int = 64) -> str:
    """Return sixteen hexadecimal digits that identify a model by its weights, independent of the loaded precision.

    Hashes names and shapes of all parameters, and up to `values` evenly spaced elements of each in bfloat16: a
    fine-tuned copy differs in nearly every tensor.
    """
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        flat = weight.reshape(-1)
        indices = torch.linspace(0, flat.numel() - 1, min(values, flat.numel()), dtype=torch.float64).long()
        sample = flat[indices.to(flat.device)].to(torch.bfloat16).float().tolist()
        digest.update(f"{name} {tuple(weight.shape)} {sample}".encode())
    return digest.hexdigest()[:16]
