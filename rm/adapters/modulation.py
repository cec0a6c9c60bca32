"""How a preference changes an adapter's rank-r features: by a core matrix (PBLoRA) or by scale and shift (MoSLoRA)."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...kernels.lora_film import low_rank
from ..backbones.tokenization import pad
from ..errors import UsageError

Generator = Literal["linear", "trunk", "alpha"]
Embedding = Literal["text", "one_hot", "random"]


class Modulation(NamedTuple):
    """u -> M u + δ for rank-r features u, a row each; M = diag(scale) or core, the identity where both are None."""

    scale: Float[Tensor, "N r"] | None = None
    core: Float[Tensor, "N r r"] | None = None
    shift: Float[Tensor, "N r"] | None = None

    @property
    def rows(self) -> int | None:
        """How many; None where nothing depends on the preference."""
        return next((len(tensor) for tensor in self if tensor is not None), None)

    def map(self, change: Any) -> "Modulation":
        """The same change to every tensor that is there."""
        return Modulation(*(None if tensor is None else change(tensor) for tensor in self))

    @staticmethod
    def side_by_side(parts: "Sequence[Modulation]") -> "Modulation":
        """Of several adapters' features in one row; all are of one kind."""
        scale, core, shift = zip(*parts, strict=True)
        return Modulation(
            scale=None if scale[0] is None else torch.cat(scale, 1),
            core=None if core[0] is None else torch.stack([torch.block_diag(*row) for row in zip(*core, strict=True)]),
            shift=None if shift[0] is None else torch.cat(shift, 1),
        )

    def matrix(self, rank: int) -> Float[Tensor, "r r"]:
        """M of a single row."""
        if self.core is not None:
            return self.core[0]
        return torch.eye(rank) if self.scale is None else self.scale[0].diag()


# ---- from α to what the layers read: once per request ----


class Preferences(nn.Module):
    """α itself: what PBLoRA's cores are mixed by."""

    def __init__(self, k: int):
        super().__init__()
        self.width = k

    def forward(self, alpha: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """Unchanged."""
        return alpha


class MixedVector(nn.Module):
    """p(α) = Σ_i α_i o_i from frozen descriptions o_i of the objectives, for `trunk` through h = SiLU(W p + b)."""

    objectives: Tensor

    def __init__(self, objectives: Float[Tensor, "K E"], hidden: int | None = None):
        super().__init__()
        self.register_buffer("objectives", objectives.float())
        self.trunk = None if hidden is None else nn.Sequential(nn.Linear(objectives.shape[1], hidden), nn.SiLU())
        self.width = objectives.shape[1] if hidden is None else hidden

    def forward(self, alpha: Float[Tensor, "N K"]) -> Float[Tensor, "N H"]:
        """What every layer's generator reads."""
        mixed = alpha @ self.objectives
        return mixed if self.trunk is None else self.trunk(mixed)


# ---- one per adapted layer ----


class BilinearCore(nn.Module):
    """PBLoRA: ΔW(α) = s (B1 W1 A1 + B2 W2(α) A2),  W2(α) = Σ_i α_i V_i             Lin et al. 2025, arXiv:2505.06274

    As one core on r = r1 + r2 features: blockdiag(W1, W2(α)). W1 and V as in the public code: Kaiming uniform.
    """

    def __init__(self, k: int, shared_rank: int, rank: int):
        super().__init__()
        self.shared_rank, self.rank = shared_rank, rank
        self.shared: Tensor
        if shared_rank:
            self.shared = nn.Parameter(torch.empty(shared_rank, shared_rank))
        else:  # FSDP cannot split a parameter without numbers
            self.register_buffer("shared", torch.empty(0, 0))
        self.mixed = nn.Parameter(torch.empty(k, rank * rank))
        for weight in (self.shared, self.mixed):
            if weight.numel():
                nn.init.kaiming_uniform_(weight, a=5**0.5)

    def forward(self, alpha: Float[Tensor, "N K"]) -> Modulation:
        """The core [N, r1 + r2, r1 + r2]."""
        mixed = (alpha @ self.mixed).view(-1, self.rank, self.rank)
        first = nn.functional.pad(self.shared, (0, self.rank, 0, self.rank))
        return Modulation(core=first + nn.functional.pad(mixed, (self.shared_rank, 0, self.shared_rank, 0)))


class ScaleAndShift(nn.Module):
    """MoSLoRA: u -> γ(α) ⊙ u + δ(α),  γ = 1 + G_γ, δ = G_δ                                 UniARM, arXiv:2602.09538

    That features are modulated affinely by a mixed vector is the paper's; tap point, 1 + G and generators are ours.
    G starts at 0, so that training begins with a plain LoRA.
    """

    def __init__(self, width: int, rank: int, *, scale: bool, shift: bool, bias: bool):
        super().__init__()
        self.scale, self.shift = (self._generator(width, rank, bias) if enabled else None for enabled in (scale, shift))

    @staticmethod
    def _generator(width: int, rank: int, bias: bool) -> nn.Linear:
        generator = nn.Linear(width, rank, bias=bias)
        for parameter in generator.parameters():
            nn.init.zeros_(parameter)
        return generator

    def forward(self, mixed: Float[Tensor, "N H"]) -> Modulation:
        """γ and δ [N, r]."""
        return Modulation(
            scale=None if self.scale is None else 1 + self.scale(mixed),
            shift=None if self.shift is None else self.shift(mixed),
        )


# ---- decoding on a CPU, where a token's small products take less time than the calls for them ----


class Readers:
    """Adapters that read one tensor; side by side they are one: A stacked, B and cores on a diagonal."""

    def __init__(self, indices: Sequence[int], adapters: Sequence[tuple[Tensor, Tensor, Modulation]]):
        A, B, rows = zip(*adapters, strict=True)
        self.places, self.widths = indices, [len(matrix) for matrix in B]
        self.A, self.B = torch.cat(A), torch.block_diag(*(matrix.t() for matrix in B)).t()
        self.rows = Modulation.side_by_side(rows)._asdict()

    def shares(self, x: Float[Tensor, "N 1 m"]) -> dict[int, Tensor]:
        """B (M A x + δ) of every adapter."""
        return dict(zip(self.places, low_rank(x, self.A, self.B, **self.rows).split(self.widths, 2), strict=True))


class Block:
    """The adapters of a module's layers. Those that read one tensor, as q, k and v do, are called for at once.

    Which those are shows at the first token. They read the same object, whose numbers stay while the module runs.
    """

    def __init__(self):
        self.adapters: list[tuple[Tensor, Tensor, Modulation]] = []
        self.readers: dict[int, Readers] = {}
        self.x: Tensor | None = None
        self.shares: dict[int, Tensor] = {}

    def add(self, A: Float[Tensor, "r m"], B: Float[Tensor, "n r"], rows: Modulation) -> int:
        """One more adapter; its place."""
        self.adapters.append((A, B, rows))
        return len(self.adapters) - 1

    def share(self, index: int, x: Float[Tensor, "N 1 m"], start: int) -> Float[Tensor, "_ 1 n"]:
        """What an adapter adds to the rows from `start` on."""
        if x is not self.x:
            self.x, self.shares = x, self.readers[index].shares(x[start:]) if index in self.readers else {}
        if index not in self.shares:
            indices = [*self.shares, index]
            shared = Readers(indices, [self.adapters[position] for position in indices])
            self.readers |= dict.fromkeys(indices, shared)
            self.shares = shared.shares(x[start:])
        return self.shares[index]


# ---- what an objective is, as a vector ----


def one_hot_objectives(k: int) -> Float[Tensor, "K E"]:
    """o_i = e_i: the generator reads α itself."""
    return torch.eye(k)


def random_objectives(k: int, width: int, seed: int = 0) -> Float[Tensor, "K E"]:
    """Orthogonal directions of unit RMS, drawn from the seed; they know nothing of the objectives."""
    if width < k:
        raise UsageError(f"{k} orthogonal directions need a width of at least {k}, got {width}")
    drawn = torch.randn(width, k, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(drawn).Q.T * width**0.5


@torch.no_grad()
def text_objectives(model: Any, tokenizer: Any, texts: Sequence[str], *, centred: bool = True) -> Float[Tensor, "K E"]:
    """o_i = the mean of the frozen model's last hidden states over a description of the objective.

    Language models' embeddings point nearly the same way; `centred` subtracts the objectives' mean and brings each to
    unit RMS, so that p(α) moves with α.
    """
    batch = pad(tokenizer(list(texts), add_special_tokens=False).input_ids)
    device = next(model.parameters()).device
    states = model(
        input_ids=batch.tokens.to(device), attention_mask=batch.attention.long().to(device), output_hidden_states=True
    ).hidden_states[-1]
    weight = batch.attention[..., None].to(states)
    means = ((states * weight).sum(1) / weight.sum(1)).float().cpu()
    if not centred:
        return means
    means = means - means.mean(dim=0) if len(means) > 1 else means
    size = means.pow(2).mean(dim=1, keepdim=True).sqrt()
    if not (size > 1e-6).all():
        raise UsageError(f"the descriptions {list(texts)} read the same to this model; word them differently")
    return means / size
