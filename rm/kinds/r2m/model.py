"""R2M: a scalar reward model whose head also attends to the policy's hidden states of the same completion."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ....kernels.dispatch import bounds_of
from ....kernels.r2m_attention import r2m_attention
from ...backbones.forward_hooks import head_inputs, module_inputs
from ...backbones.sequence_scores import decoder_head
from ...backbones.tokenization import pad, right_padded
from ...contract.scoring_contract import load_contract
from ...errors import DataError, UsageError
from ...types import Example
from .._batches import batches_of
from ..scalar.foreign import last_linear
from ..scalar.model import ScalarRewardModel, load_scalar

BODY, HEAD = "body", "feedback.safetensors"


class R2MHead(nn.Module):
    """r = φ((1 - ω) Ĥ + ω H),   Ĥ = softmax(q kᵀ / √d) v W_o,   q = H W_q,  k = h W_k,  v = h W_v

    R2M, Huang et al. 2026, arXiv:2601.22664, eqs. 3 and 4. H (width D) is the reward token: the input of the trained
    reward model's head φ. h (width P) are the policy's last hidden states of prompt and completion, without gradient. d
    is `width`. φ is initialised from the trained model, and the matrices W by Xavier uniform from `seed` (our choice).
    With `zero_out` W_o starts at 0, so that for any ω > 0 the initial order of completions is unchanged.
    """

    def __init__(self, score: nn.Linear, policy_width: int, width: int, *, zero_out: bool = False, seed: int = 0):
        super().__init__()
        D, generator = score.in_features, torch.Generator().manual_seed(seed)
        self.score = score

        def xavier(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns), generator=generator))

        self.W_q, self.W_k, self.W_v = xavier(D, width), xavier(policy_width, width), xavier(policy_width, width)
        self.W_o = nn.Parameter(torch.zeros(width, D)) if zero_out else xavier(width, D)
        self.to(score.weight.device)

    def forward(
        self, tokens: Float[Tensor, "N D"], states: Float[Tensor, "T P"], bounds: Int[Tensor, " N+1"], omega: float
    ) -> Float[Tensor, "N K"]:
        """Return rewards in float32; row n attends to states[bounds[n] : bounds[n + 1]]."""
        tokens = tokens.to(self.W_q.dtype)
        read = r2m_attention(tokens, states, bounds, self.W_q, self.W_k, self.W_v, self.W_o)
        return self.score((1 - omega) * read + omega * tokens)


class R2MRewardModel:
    """A scalar reward model whose head is replaced by an R2M head. At `omega` 1 an untrained head changes no reward."""

    reads_states = True

    def __init__(self, body: ScalarRewardModel, head: R2MHead, omega: float = 1.0):
        self.body, self.head, self.omega = body, head, omega
        self.contract = replace(body.contract, kind="r2m")

    @classmethod
    def on(
        cls, body: ScalarRewardModel, policy_width: int, width: int, *, zero_out: bool = False, seed: int = 0
    ) -> "R2MRewardModel":
        """Create the model from a trained reward model. The linear head is copied, the attention is untrained."""
        return cls(body, R2MHead(linear_head(body), policy_width, width, zero_out=zero_out, seed=seed))

    def rate(self, examples: Sequence[Example], states: Sequence[Float[Tensor, "S P"]] | None = None) -> np.ndarray:
        """Return rewards [N, K] in float64, given the policy's last hidden states of prompt and completion."""
        if states is None:
            raise UsageError(
                "an R2M reward model reads the policy's hidden states, which are missing; use it in policy training, "
                f"or score with its {BODY} folder"
            )
        with torch.no_grad():
            return self.rewards(reward_tokens(self.body, examples), states).double().cpu().numpy()

    def rewards(self, tokens: Float[Tensor, "N D"], states: Sequence[Float[Tensor, "S P"]]) -> Float[Tensor, "N K"]:
        """Return the head's rewards of reward tokens; differentiable."""
        lengths = torch.tensor([len(state) for state in states])
        return self.head(
            tokens, torch.cat([*states]).to(tokens.device), bounds_of(lengths).to(tokens.device), self.omega
        )

    def save(self, folder: Path) -> None:
        """Save the scalar model in a subfolder, and the head in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self.body.save(folder / BODY)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.head.state_dict().items()}
        save_file(weights, folder / HEAD, metadata={"omega": repr(self.omega)})
        self.contract.save(folder)


def load_r2m(source: str, **options: Any) -> R2MRewardModel:
    """Load the reward model in a folder written by `R2MRewardModel.save`; options are those of `scalar`."""
    folder = Path(source)
    body = load_scalar(str(folder / BODY), **options)
    try:
        with safe_open(folder / HEAD, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            omega = float(file.metadata()["omega"])
        policy_width, width = weights["W_k"].shape
        head = R2MHead(linear_head(body), policy_width, width)
        head.load_state_dict(weights)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{folder / HEAD}: not the head of an R2M reward model ({error}); give the full folder"
        ) from error
    model = R2MRewardModel(body, head, omega)
    if model.contract != load_contract(folder):
        raise DataError(
            f"{folder}: {BODY} is not the file that was saved with the model; give the folder as it was saved"
        )
    return model


def linear_head(body: ScalarRewardModel) -> nn.Linear:
    """Return a float32 copy of a reward model's head."""
    head = _reward_head(body.model)
    # the head is a module of Transformers of any class
    if not isinstance(weight := getattr(head, "weight", None), Tensor) or weight.dim() != 2:
        name = body.model.config.model_type
        raise UsageError(f"a '{name}' reward model has no linear head; give a sequence classifier that has one")
    bias = getattr(head, "bias", None)
    copied = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device=weight.device)
    copied.load_state_dict({"weight": weight.detach()} | ({} if bias is None else {"bias": bias.detach()}))
    return copied


def _reward_head(model: Any) -> nn.Module | None:
    """Return a decoder's head, or the last linear layer of an encoder's head."""
    return decoder_head(model) or last_linear(model, model.config.num_labels)


def reward_tokens(
    body: ScalarRewardModel, examples: Sequence[Example], *, batch_tokens: int = 16_384
) -> Float[Tensor, "N D"]:
    """Return the reward token H of every example; equal texts are computed once. Differentiable."""
    rows = [tuple(encoded.ids) for encoded in body.encoder.encode_all(examples)]
    distinct = [*dict.fromkeys(rows)]
    device = next(body.model.parameters()).device
    body.model.eval()
    order, tokens = [], []
    for indices in batches_of([len(row) for row in distinct], batch_tokens):
        batch = pad([distinct[position] for position in indices])
        tokens.append(tokens_before_head(body.model, batch.tokens.to(device), batch.attention.to(device)))
        order += [distinct[position] for position in indices]
    parse_source = {row: index for index, row in enumerate(order)}
    return torch.cat(tokens)[[parse_source[row] for row in rows]]


def tokens_before_head(
    model: nn.Module, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]
) -> Float[Tensor, "N D"]:
    """Return the input of a head: at the last token of the mask for a decoder, after the pooling for an encoder."""
    tokens, attention = right_padded(tokens, attention)
    inputs = {"input_ids": tokens, "attention_mask": attention.long()}
    if decoder_head(model) is None:
        return module_inputs(model, _reward_head(model), **inputs)
    states = head_inputs(model, **inputs)
    return states[torch.arange(len(tokens), device=tokens.device), attention.sum(dim=1) - 1]
