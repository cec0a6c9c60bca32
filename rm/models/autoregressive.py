"""An autoregressive reward model: a causal language model whose log-probability of an answer is the reward."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from tqdm import tqdm
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from ..contract import FILE, ScoringContract, load_contract
from ..encode import EncodedAnswer, Encoder, describe_tokenizer, pad
from ..errors import DataError, UsageError
from ..logprobs import answer_logprobs
from ..trunks import check_vocabulary, load_tokenizer
from ..types import Example
from .scalar import batches_of, context_of

SETTINGS = "autoregressive.json"


class AutoregressiveRewardModel:
    """r(x, y) = β Σ_t log π_r(y_t | x, y_<t), over the tokens of the answer          Xu et al. 2024, arXiv:2410.08193

    The answer is everything behind the prompt, EOS or end of turn included. Nothing is divided by the answer's length,
    so a longer answer has a lower reward unless training made up for it.
    """

    def __init__(self, model: PreTrainedModel, encoder: Encoder, *, beta: float = 1.0):
        self.model = model
        self.encoder = encoder
        self.beta = beta
        self.contract = encoder.contract

    def logprobs(self, examples: Sequence[Example], *, batch_tokens: int = 16_384) -> list[np.ndarray]:
        """log π_r of every token of each answer in nats, the last tokens of `encoder.encode(example).ids`."""
        rows = [self.encoder.encode_answer(example) for example in examples]
        return model_logprobs(self.model, rows, batch_tokens)

    def rate(self, examples: Sequence[Example], *, batch_tokens: int = 16_384) -> np.ndarray:
        """Rewards [N, 1] in float64; examples of like length share a batch of at most `batch_tokens` tokens."""
        return sums(self.logprobs(examples, batch_tokens=batch_tokens), self.beta)

    def save(self, folder: Path) -> None:
        """The language model as plain Transformers writes it, tokenizer, β and contract."""
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save_pretrained(folder)
        self.encoder.tokenizer.save_pretrained(folder)
        (folder / SETTINGS).write_text(json.dumps({"beta": self.beta}) + "\n", encoding="utf-8")
        self.contract.save(folder)


def model_logprobs(model: PreTrainedModel, rows: Sequence[EncodedAnswer], batch_tokens: int) -> list[np.ndarray]:
    """What a language model says of each answer's tokens, in nats and float64; one array per row."""
    device = next(model.parameters()).device
    found: list[np.ndarray] = [np.empty(0)] * len(rows)
    model.eval()
    with torch.inference_mode():
        for places in tqdm(batches_of([len(row.ids) for row in rows], batch_tokens), desc="scoring", disable=None):
            batch = pad([rows[place].ids for place in places])
            start = torch.tensor([rows[place].start for place in places])
            logprobs = answer_logprobs(model, batch.tokens.to(device), batch.attention.to(device), start.to(device))
            for place, values in zip(places, logprobs.double().cpu().numpy(), strict=True):
                found[place] = values[rows[place].start : len(rows[place].ids)]
    return found


def sums(logprobs: Sequence[np.ndarray], beta: float) -> np.ndarray:
    """β times the sum of each answer's values, as rewards [N, 1]."""
    return beta * np.array([values.sum() for values in logprobs], float)[:, None]


def autoregressive(
    source: str,
    *,
    beta: float | None = None,
    max_length: int | None = None,
    chat_template: str | None = None,
    dtype: str = "float32",
    device: str | None = None,
    trust_remote_code: bool = False,
) -> AutoregressiveRewardModel:
    """A causal language model from a folder or Hub id as a reward model, or a folder that we saved.

    A saved folder brings its β and its contract; any other has β = 1 unless told. `max_length` in tokens.
    """
    folder = Path(source)
    contract = load_contract(folder) if (folder / FILE).exists() else None
    saved = read_settings(folder / SETTINGS) if contract and contract.kind == "autoregressive" else {}
    beta = settled(source, "beta", beta, saved.get("beta"), 1.0)
    dtype = contract.dtype if contract else dtype
    tokenizer = load_tokenizer(source, chat_template=chat_template, trust_remote_code=trust_remote_code)
    model = load_causal_lm(source, tokenizer, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    max_length = settled(source, "max_length", max_length, contract and contract.max_length, None)
    contract = contract or answer_contract(
        "autoregressive", tokenizer, [model], dtype=dtype, max_length=max_length, beta=check_beta(beta)
    )
    return AutoregressiveRewardModel(model, Encoder(tokenizer, contract), beta=check_beta(beta))


def answer_contract(
    kind: str,
    tokenizer: PreTrainedTokenizerBase,
    models: Sequence[PreTrainedModel],
    *,
    dtype: str,
    max_length: int | None,
    beta: float,
    backbone: str | None = None,
) -> ScoringContract:
    """The contract of a reward that sums over the answer's tokens; the shortest context of the models is the limit."""
    return ScoringContract(
        kind=kind,
        dtype=dtype,
        truncation="left",
        max_length=max_length or min(context_of(model.config, tokenizer) for model in models),
        beta=beta,
        backbone=backbone,
        **describe_tokenizer(tokenizer),
    )


def load_causal_lm(
    source: str,
    tokenizer: PreTrainedTokenizerBase,
    *,
    dtype: str,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """A causal language model (or an adapter over one) with all of its weights, for a tokenizer."""
    if (Path(source) / FILE).exists() and (kind := load_contract(Path(source)).kind) != "autoregressive":
        raise DataError(f"{source}: a reward model of kind '{kind}', no language model; give a causal language model")
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=getattr(torch, dtype),
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"{source}: cannot be loaded as a causal language model ({(str(error).splitlines() or ['?'])[0]}); give a "
            "folder or Hub id with config.json and safetensors weights"
        ) from error
    model, facts = loaded
    if absent := sorted([*facts["missing_keys"], *(key for key, *_ in facts["mismatched_keys"])]):
        raise DataError(
            f"{source}: the weights lack {', '.join(absent[:4])}, so its scores would be random; give the whole folder "
            "of a causal language model"
        )
    check_vocabulary(tokenizer, model, source)
    model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()
    if _looks_ahead(model):
        raise DataError(f"{source}: its predictions see later tokens ({model.config.model_type}); give a causal model")
    return model


@torch.inference_mode()
def _looks_ahead(model: Any) -> bool:
    """Encoders load as language models too; there the first position changes with the second token."""
    first, second = (model(input_ids=torch.tensor([[0, other]], device=model.device)).logits[0, 0] for other in (0, 1))
    return not torch.allclose(first, second, rtol=1e-3, atol=1e-4, equal_nan=True)


def read_settings(path: Path) -> dict[str, Any]:
    """The small JSON file that says what is not in the weights."""
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        return settings | {"beta": float(settings["beta"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: missing or damaged ({error}); restore it, or save the model again") from error


def settled(source: str, name: str, asked: Any, saved: Any, otherwise: Any) -> Any:
    """What a saved folder says, else what was asked for; asking for something else than the folder says is an error."""
    if saved is not None and asked not in (None, saved):
        raise UsageError(f"{source} was saved with {name} {saved}, got {asked}; leave it out, or start from the base")
    return next((value for value in (saved, asked) if value is not None), otherwise)


def check_beta(beta: float) -> float:
    """β is a finite number above 0."""
    if not (math.isfinite(beta) and beta > 0):
        raise UsageError(f"beta is a finite number above 0, got {beta}")
    return beta
